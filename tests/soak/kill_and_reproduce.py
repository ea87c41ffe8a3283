"""Kill `shapeshift reproduce`, run it again, and compare with one that was left alone.

    python tests/soak/kill_and_reproduce.py --kills 30 --seed 1

The same command runs again and again in a process group of its own, which dies by SIGKILL: at a
random operation on files or update, before it or after it, or at a random moment. Every fifth
attempt trains in processes of its own, which outlive the group for a moment, as they do a crash.
Then it is left alone. After that, two commands at once make the same from the beginning.

Prints a JSON report; exits with 1 unless weights, measurements and the written table equal those of
an undisturbed run, no step of any run was recorded twice, and the two shared the work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import process_group
import toy_paper
from process_group import (
    finish,
    kill,
    killing,
    run_script,
    wait_until,
    without_clock,
    wrap_operations,
)

from shapeshift.lab import work
from shapeshift.lab.cell_folder import StepRecord
from shapeshift.training.log import read_log
from shapeshift.training.trainer import Trainer

KINDS = ("event", "event", "moment", "event", "children")
EVENTS = 200
"""More or less: the place of a kill is drawn from as many as a short piece of work has."""
CLOCK = {"tokens_per_s", "training_s"}
MANY = 20
"""Of so many kills, some come after a step that was recorded."""


def arm(place: int, when: str) -> None:
    """Kill this process at an update or at an operation on files."""
    wrapper = killing(place, when)
    Trainer._update = wrapper(Trainer._update)
    wrap_operations(wrapper)


def note_trainings(path: Path) -> None:
    """Add a line to a file for each run that this process begins to train."""
    train = work.train

    def noted(config, directory, *arguments, **named):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{Path(directory).parent.name}\n")
        return train(config, directory, *arguments, **named)

    work.train = noted


def start(
    folder: Path, directory: str, output: Path, jobs: int = 0, bomb: tuple[int, str] | None = None
) -> int:
    """Run the command in a new process group; return its number."""

    def prepare():
        if bomb is not None:
            arm(*bomb)
        toy_paper.install(folder)
        note_trainings(output.with_suffix(".trained"))

    command = ["reproduce", "toy", "--directory", directory, "--jobs", str(jobs)]
    return process_group.start(folder, output, command, prepare)


def num_updates(directory: Path) -> int:
    """Return how many updates the logs of all runs know."""
    return sum(
        path.read_bytes().count(b'"loss"') for path in directory.glob("cells/*/run/log.jsonl")
    )


def attempt(folder: Path, directory: str, output: Path, kind: str, rng: random.Random) -> bool:
    """Start the command and kill it; return False if it came to its end before."""
    if kind == "event":
        bomb = (rng.randrange(EVENTS), rng.choice(["before", "after"]))
        return finish(start(folder, directory, output, bomb=bomb), output)
    before = num_updates(folder / directory)
    child = start(folder, directory, output, jobs=2 if kind == "children" else 0)
    if kind == "children":
        wait_until(lambda: num_updates(folder / directory) > before, child)
    time.sleep(rng.uniform(0, 0.5))
    kill(child)
    return finish(child, output)


def records(directory: Path) -> dict[str, tuple[int, str]]:
    """Return each record of a step: when it was written, and its hash."""
    return {
        str(path.relative_to(directory)): (path.stat().st_mtime_ns, _sha256(path))
        for path in sorted(directory.glob("cells/*/steps/*.json"))
        if not path.name.startswith(".")
    }


def fingerprint(directory: Path) -> dict[str, object]:
    """Return what two equal results have in common: all but the clock and the folder."""
    found = {}
    for path in sorted(directory.glob("cells/*/steps/[!.]*.json")):
        record = StepRecord.model_validate_json(path.read_bytes())
        values = [m.model_dump() for m in record.measurements if m.metric not in CLOCK]
        found[f"{path.parts[-3]}/{record.step}"] = [record.checkpoint[:12], _digest(values)]
    for path in sorted(directory.glob("cells/*/run/log.jsonl")):
        log = without_clock(read_log(path))
        updates = [line["update"] for line in log if "loss" in line]
        found[f"{path.parts[-3]}/log"] = [len(updates), len(set(updates)), _digest(log)]
    [item] = directory.glob("*/toy/table/item.json")
    table = json.loads(item.read_bytes())["tables"]
    header = (directory / "tiny/toy/results.csv").read_text(encoding="utf-8").count("\n")
    return found | {"table": _digest(table), "num_results": header - 1}


def soak(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Kill the command again and again; return what was done and what came out.

    A command that comes to its end before has done its work: another one begins anew.
    """
    toy_paper.write_project(folder, options.updates)
    num_kills = options.kills
    output = folder / "output.txt"
    rng, kills = random.Random(options.seed), dict.fromkeys(KINDS, 0)
    rewritten: list[str] = []
    results, most = [], 0
    while sum(kills.values()) < num_kills:
        directory = f"killed-{len(results)}"
        kept: dict[str, tuple[int, str]] = {}
        killed = True
        while killed:
            number = sum(kills.values())
            kind = KINDS[number % len(KINDS)]
            if number < num_kills:
                killed = attempt(folder, directory, output, kind, rng)
                kills[kind] += killed
            else:
                killed = finish(start(folder, directory, output), output)
                if killed:
                    raise SystemExit(f"{directory} was killed by somebody else")
            most = max(most, len(kept))
            now = records(folder / directory)
            rewritten += [name for name, made in kept.items() if now.get(name) != made]
            kept = now
        results.append(fingerprint(folder / directory))
    if finish(start(folder, "alone", output), output):
        raise SystemExit("alone was killed by somebody else")
    return {
        "kills": kills,
        "num_kills": sum(kills.values()),
        "recorded_before_the_last_attempt": most,
        "recorded_twice": rewritten,
        "alone": fingerprint(folder / "alone"),
        "killed": results,
        "shared": share(folder),
    }


def share(folder: Path) -> dict[str, object]:
    """Run two commands at once; return which runs each has trained, and what came out."""
    outputs = [folder / f"output-{number}.txt" for number in range(2)]
    children = [start(folder, "shared", output) for output in outputs]
    for child, output in zip(children, outputs, strict=True):
        finish(child, output)
    trained = [
        path.read_text(encoding="utf-8").split() if path.exists() else []
        for path in (output.with_suffix(".trained") for output in outputs)
    ]
    return {"trained": trained, "result": fingerprint(folder / "shared")}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]


def is_good(report: dict[str, object]) -> bool:
    """Return whether the kills have changed nothing, and two commands have shared the work."""
    trained = [cell for each in report["shared"]["trained"] for cell in each]
    return (
        (report["recorded_before_the_last_attempt"] or report["num_kills"] < MANY)
        and not report["recorded_twice"]
        and all(each == report["alone"] for each in report["killed"])
        and report["alone"] == report["shared"]["result"]
        and len(trained) == len(set(trained)) == toy_paper.NUM_CELLS
    )


if __name__ == "__main__":
    run_script(__doc__, soak, is_good, kills=30, seed=1, updates=24)
