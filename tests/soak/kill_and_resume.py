"""Train, kill, train again, and compare with a run that was left alone.

    python tests/soak/kill_and_resume.py --kills 50 --seed 1

Each attempt runs the same `shapeshift train` in a process group of its own, which dies by SIGKILL:
two times in five at a file operation inside a save (before it, after it, or in the middle of a
write), two in five a random moment after a random update, one in five at a random moment of its
start. The last attempt is left alone.

Prints a JSON report; exits with 1 unless weights, optimiser, cursor and log equal the other run's
and nothing of a save is left over.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
import process_group
from process_group import (
    finish,
    kill,
    killing,
    run_script,
    wait_until,
    without_clock,
    wrap_operations,
    write_toy,
)

from shapeshift.lab.final import AVERAGE
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL, OPTIMIZER, read_manifest

CHECKPOINT_EVERY = 3
OPERATIONS_OF_A_SAVE = 30
"""More or less: the place of a kill is drawn from as many as two saves have."""
KINDS = ("save", "update", "save", "start", "update")


def write_project(folder: Path, max_updates: int) -> None:
    """Write text whose translation is upper case, and the configuration of a tiny model."""
    toy = write_toy(folder, max_updates, accumulation=2, checkpoint_every=CHECKPOINT_EVERY)
    document = yaml.safe_dump(toy | {"position": "shape"})
    (folder / "toy.yaml").write_text(document, encoding="utf-8")


def arm(place: int, when: str) -> None:
    """Kill this process at an operation of its saves, which record a validation as well."""
    saving = False

    def while_saving(method):
        def call(*arguments, **named):
            nonlocal saving
            saving = True
            result = method(*arguments, **named)
            saving = False
            return result

        return call

    Checkpoints.save = while_saving(Checkpoints.save)
    Checkpoints.record = while_saving(Checkpoints.record)
    wrap_operations(killing(place, when, lambda: saving))


def start(folder: Path, run: str, output: Path, bomb: tuple[int, str] | None = None) -> int:
    """Run the command in a new process group; return its number."""
    command = ["train", "toy.yaml", "--run", run, "--no-test"]
    return process_group.start(folder, output, command, bomb and (lambda: arm(*bomb)))


def num_updates(run: Path) -> int:
    """Return how many updates the log of a run knows."""
    path = run / "log.jsonl"
    return path.read_bytes().count(b'"loss"') if path.exists() else 0


def attempt(folder: Path, output: Path, kind: str, rng: random.Random) -> bool:
    """Start the run and kill it; return False if it came to its end before."""
    run = folder / "killed"
    if kind == "save":
        place = rng.randrange(2 * OPERATIONS_OF_A_SAVE)
        child = start(folder, "killed", output, (place, rng.choice(["before", "during", "after"])))
    else:
        before, child = num_updates(run), start(folder, "killed", output)
        if kind == "update":
            enough = before + rng.randint(1, 2 * CHECKPOINT_EVERY)
            wait_until(lambda: num_updates(run) >= enough, child)
            time.sleep(rng.uniform(0, 0.02))
        else:
            time.sleep(rng.uniform(0, 0.4))
        kill(child)
    return finish(child, output)


def newest(run: Path) -> int | None:
    """Return the newest checkpoint there is."""
    return max(Checkpoints(run / "checkpoints", 1).updates(), default=None)


def announced(output: Path) -> int | None:
    """Return the update after which the command said it goes on."""
    found = re.search(r"going on after update (\d+)", output.read_text(encoding="utf-8"))
    return int(found[1]) if found else None


def fingerprint(run: Path) -> dict[str, object]:
    """Return what two equal runs have in common: all but the clock."""

    def sha256(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    last = Checkpoints(run / "checkpoints", 1).path(newest(run) or 0)
    progress = read_manifest(last).progress
    log = without_clock(read_log(run / "log.jsonl"))
    return {
        "weights": sha256(last / MODEL),
        "optimizer": sha256(last / OPTIMIZER),
        "average": sha256(run / AVERAGE),
        "cursor": [progress.update, progress.epoch, progress.batch, progress.best_update],
        "log": hashlib.sha256(json.dumps(log, sort_keys=True).encode()).hexdigest(),
        "log_lines": len(log),
    }


def soak(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Kill a run again and again; return what was done and what came out."""
    # A kill undoes nothing that was saved, and lets through two saves or so at most.
    max_updates = CHECKPOINT_EVERY * (2 * options.kills + 4) + 1
    write_project(folder, max_updates)
    output = folder / "output.txt"
    rng, kills = random.Random(options.seed), dict.fromkeys(KINDS, 0)
    misreported, run = [], folder / "killed"
    for number in range(options.kills):
        kind, before = KINDS[number % len(KINDS)], newest(run)
        if not attempt(folder, output, kind, rng):
            break
        kills[kind] += 1
        said = announced(output)
        # Killed at its start it may not have come to say it.
        if said != before and not (kind == "start" and said is None):
            misreported.append({"kill": number, "newest": before, "said": said})
    for name in ("killed", "alone"):
        if finish(start(folder, name, output), output):
            raise SystemExit(f"{name} was killed by somebody else")
    leftovers = [str(x.relative_to(run)) for x in run.rglob(".*")]
    return {
        "kills": kills,
        "num_kills": sum(kills.values()),
        "max_updates": max_updates,
        "misreported": misreported,
        "leftovers": leftovers,
        "alone": fingerprint(folder / "alone"),
        "killed": fingerprint(run),
    }


def is_good(report: dict[str, object]) -> bool:
    """Return whether the kills have changed nothing."""
    spoilt = report["leftovers"] or report["misreported"]
    return report["alone"] == report["killed"] and not spoilt


if __name__ == "__main__":
    run_script(__doc__, soak, is_good, kills=50, seed=1)
