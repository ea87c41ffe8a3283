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
import tempfile
import time
from pathlib import Path

import torch
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import process_group
from process_group import TIMEOUT_S, finish, has_ended, kill, kill_own, wrap_operations

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
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdef", k=rng.randint(1, 3))) for _ in range(20)]
    (folder / "text").mkdir()
    sizes = {"train": 100, "valid": 8, "test": 4}
    for split, size in sizes.items():
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 6))) + "\n" for _ in range(size)]
        (folder / "text" / f"{split}.low").write_text("".join(lines), encoding="utf-8")
        (folder / "text" / f"{split}.up").write_text("".join(lines).upper(), encoding="utf-8")
    corpus = {"corpus": "files", "root": "text", "source": "low", "target": "up"}
    document = {
        "data": {
            "corpus": corpus | {split: [split] for split in sizes},
            "subwords": {"vocab_size": 40},
        },
        "model": {
            "dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1,
            "dropout": 0.1,
        },
        "position": "shape",
        "training": {
            "max_updates": max_updates,
            "batch": {"max_sentences": 8},
            "accumulation": 2,
            "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 20},
            "precision": "fp32",
            "device": "cpu",
            "log_every": 1,
            "checkpoint_every": CHECKPOINT_EVERY,
            "keep_checkpoints": 2,
            "average_checkpoints": 2,
        },
    }  # fmt: skip
    (folder / "toy.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")


def arm(place: int, when: str) -> None:
    """Kill this process at an operation of its saves, which record a validation as well; the one
    numbered `place` counting from 0."""
    count, saving = 0, False

    def while_saving(method):
        def call(*arguments, **named):
            nonlocal saving
            saving = True
            result = method(*arguments, **named)
            saving = False
            return result

        return call

    def counted(operation):
        def call(self, *arguments):
            nonlocal count
            here = saving and count == place
            count += saving
            if here and when == "during" and operation.__name__ == "write":
                file, data = arguments
                operation(self, file, data[: len(data) // 2])
                kill_own()
            if here and when != "after":
                kill_own()
            result = operation(self, *arguments)
            if here:
                kill_own()
            return result

        return call

    Checkpoints.save = while_saving(Checkpoints.save)
    Checkpoints.record = while_saving(Checkpoints.record)
    wrap_operations(counted)


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
            more = rng.randint(1, 2 * CHECKPOINT_EVERY)
            deadline = time.monotonic() + TIMEOUT_S
            while num_updates(run) < before + more and time.monotonic() < deadline:
                if has_ended(child):
                    break
                time.sleep(0.001)
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
    log = read_log(run / "log.jsonl")
    for line in log:
        line.pop("tokens_per_s", None)
        line.pop("elapsed_s")
    return {
        "weights": sha256(last / MODEL),
        "optimizer": sha256(last / OPTIMIZER),
        "average": sha256(run / AVERAGE),
        "cursor": [progress.update, progress.epoch, progress.batch, progress.best_update],
        "log": hashlib.sha256(json.dumps(log, sort_keys=True).encode()).hexdigest(),
        "log_lines": len(log),
    }


def soak(folder: Path, num_kills: int, seed: int) -> dict[str, object]:
    """Kill a run `num_kills` times; return what was done and what came out."""
    # A kill undoes nothing that was saved, and lets through two saves or so at most.
    max_updates = CHECKPOINT_EVERY * (2 * num_kills + 4) + 1
    write_project(folder, max_updates)
    output = folder / "output.txt"
    rng, kills = random.Random(seed), dict.fromkeys(KINDS, 0)
    misreported, run = [], folder / "killed"
    for number in range(num_kills):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), options.kills, options.seed)
    report["elapsed_s"] = round(time.monotonic() - began, 1)
    print(json.dumps(report, indent=2))
    good = (
        report["num_kills"] == options.kills
        and report["alone"] == report["killed"]
        and not report["leftovers"]
        and not report["misreported"]
    )
    sys.exit(not good)


if __name__ == "__main__":
    main()
