"""A command that is killed again and again ends as one that was left alone; `make soak` kills it
more often."""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from pathlib import Path

import pytest

from shapeshift.run.folder import AVERAGE
from shapeshift.run.record import MeasureRecord
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL, OPTIMIZER, read_manifest

from .commands import Command, kill_at, note_trainings, without_clock, write_run, write_study

CHECKPOINT_EVERY = 3
OPERATIONS_OF_A_SAVE = 30
"""More or less: the place of a kill is drawn from as many as two saves have."""

NUM_CELLS = 4
EVENTS = 200
"""Updates and operations on files of a short piece of a reproduction, more or less."""

CLOCK = {"tokens_per_s", "training_s"}


def num_updates(*logs: Path) -> int:
    """Return how many updates some logs know."""
    return sum(path.read_bytes().count(b'"loss"') for path in logs if path.exists())


def digest(value: object) -> str:
    content = value.read_bytes() if isinstance(value, Path) else json.dumps(value).encode()
    return hashlib.sha256(content).hexdigest()


def train(folder: Path, run: str, *prepare) -> Command:
    return Command(folder, "train", "toy.yaml", "--run", run, "--no-test", prepare=prepare)


def kill_training(folder: Path, kind: str, rng: random.Random) -> tuple[bool, str]:
    """Go on with the run and kill it; return whether it was killed, and its notices."""
    log = folder / "killed" / "log.jsonl"
    if kind == "save":
        place, when = rng.randrange(2 * OPERATIONS_OF_A_SAVE), ["before", "during", "after"]
        command = train(folder, "killed", (kill_at, place, rng.choice(when), True))
    else:
        before, command = num_updates(log), train(folder, "killed")
        if kind == "update":
            enough = before + rng.randint(1, 2 * CHECKPOINT_EVERY)
            command.wait_until(lambda: num_updates(log) >= enough)
        time.sleep(rng.uniform(0, 0.02 if kind == "update" else 0.4))
        command.kill()
    return command.was_killed(), command.finish()[2]


def newest(run: Path) -> int | None:
    return max(Checkpoints(run / "checkpoints", 1).updates(), default=None)


def result_of_run(run: Path) -> dict[str, object]:
    """Return what two equal runs have in common: all but the clock."""
    last = Checkpoints(run / "checkpoints", 1).path(newest(run) or 0)
    progress = read_manifest(last).progress
    return {
        **{path.name: digest(path) for path in (last / MODEL, last / OPTIMIZER, run / AVERAGE)},
        "cursor": [progress.update, progress.epoch, progress.batch, progress.best_update],
        "log": without_clock(read_log(run / "log.jsonl")),
    }


@pytest.mark.parametrize("num_kills", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_training_ends_with_the_same_weights_optimiser_cursor_and_log(
    tmp_path: Path, num_kills: int
) -> None:
    """Killed at an operation on files inside a save, after an update, or at its start."""
    # A kill undoes nothing that was saved, and lets through two saves or so at most.
    write_run(tmp_path, CHECKPOINT_EVERY * (2 * num_kills + 4) + 1, CHECKPOINT_EVERY)
    rng, run = random.Random(3), tmp_path / "killed"
    for number in range(num_kills):
        kind, before = ("save", "update", "save", "start", "update")[number % 5], newest(run)
        killed, err = kill_training(tmp_path, kind, rng)
        assert killed, (number, kind)
        resumed = re.search(r"going on after update (\d+)", err)
        # Killed at its start it may not have come to say it.
        if resumed or kind != "start":
            assert (int(resumed[1]) if resumed else None) == before
    for name in ("killed", "alone"):
        assert not train(tmp_path, name).was_killed()
    assert list(run.rglob(".*")) == []
    assert result_of_run(run) == result_of_run(tmp_path / "alone")


def reproduce(folder: Path, directory: str, *prepare, jobs: int = 0) -> Command:
    arguments = ("reproduce", "toy.yaml", "--directory", directory, "--jobs", str(jobs))
    return Command(folder, *arguments, prepare=prepare)


def kill_reproduction(folder: Path, directory: str, kind: str, rng: random.Random) -> bool:
    """Start the command and kill it; return False if it came to its end before."""
    if kind == "event":
        when = rng.choice(["before", "after"])
        prepare = (kill_at, rng.randrange(EVENTS), when, False)
        return reproduce(folder, directory, prepare).was_killed()
    logs = [*(folder / directory).glob("runs/*/run/log.jsonl")]
    before = num_updates(*logs)
    command = reproduce(folder, directory, jobs=2 if kind == "children" else 0)
    if kind == "children":
        runs = folder / directory / "runs"
        command.wait_until(lambda: num_updates(*runs.glob("*/run/log.jsonl")) > before)
    time.sleep(rng.uniform(0, 0.5))
    command.kill()
    return command.was_killed()


def records(directory: Path) -> dict[str, tuple[int, str]]:
    """Return each record of a measure: when it was written, and its hash."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, digest(path))
        for path in directory.glob("runs/*/measures/[!.]*.json")
    }


def result_of_reproduction(directory: Path) -> dict[str, object]:
    """Return what two equal results have in common: all but the clock and the folder."""
    result: dict[str, object] = {}
    for path in sorted(directory.glob("runs/*/measures/[!.]*.json")):
        record = MeasureRecord.model_validate_json(path.read_bytes())
        values = [x.model_dump() for x in record.results if x.metric not in CLOCK]
        result[f"{path.parts[-3]}/{record.measure}"] = [record.checkpoint[:12], values]
    for path in sorted(directory.glob("runs/*/run/log.jsonl")):
        log = without_clock(read_log(path))
        updates = [line["update"] for line in log if "loss" in line]
        assert len(updates) == len(set(updates))  # each once
        result[f"{path.parts[-3]}/log"] = log
    measured = directory / "full" / "studies" / "toy"
    result["table"] = json.loads((measured / "study.json").read_bytes())["tables"]
    result["num_results"] = (measured / "results.csv").read_text("utf-8").count("\n")
    return result


@pytest.mark.parametrize(
    ("num_kills", "updates"), [(4, 4), pytest.param(30, 24, marks=pytest.mark.soak)]
)
def test_a_reproduction_has_the_same_results_and_records_no_step_twice(
    tmp_path: Path, num_kills: int, updates: int
) -> None:
    """Every fifth attempt trains in processes of its own, which outlive the group for a moment, as
    they do a crash. A command that comes to its end before its kill has done its work: another one
    begins anew."""
    write_study(tmp_path, updates)
    rng, kills, number = random.Random(5), 0, 0
    while kills < num_kills:
        directory, kept, killed = f"killed-{number}", {}, True
        while killed:
            if kills < num_kills:
                kind = ("event", "event", "moment", "event", "children")[kills % 5]
                killed = kill_reproduction(tmp_path, directory, kind, rng)
                kills += killed
            else:
                killed = reproduce(tmp_path, directory).was_killed()
                assert not killed
            now = records(tmp_path / directory)
            assert kept.items() <= now.items()
            kept = now
        number += 1
    # Two commands at once share the runs.
    notes = [tmp_path / f"trained-{number}" for number in range(2)]
    for command in [reproduce(tmp_path, "shared", (note_trainings, note)) for note in notes]:
        assert not command.was_killed()
    trained = [planned for note in notes if note.exists() for planned in note.read_text().split()]
    assert len(trained) == len(set(trained)) == NUM_CELLS
    assert not reproduce(tmp_path, "alone").was_killed()
    alone = result_of_reproduction(tmp_path / "alone")
    assert alone == result_of_reproduction(tmp_path / "shared")
    for each in range(number):
        assert alone == result_of_reproduction(tmp_path / f"killed-{each}")
