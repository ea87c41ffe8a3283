"""`shapeshift` in a process group of its own that a test may kill, and toys for it to train.

Processes are forked from a server that has imported the package, so that time goes into the work
and not into imports.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "shapeshift.cli.run_plan", "shapeshift.run.train", "shapeshift.study.planning"]
)
TIMEOUT_S = 300


class Command:
    """A command at work.

    Args:
        folder: to run in.
        arguments: of `shapeshift`.
        prepare: functions and their arguments, called in the new process first.
    """

    def __init__(self, folder: Path, *arguments: str, prepare: tuple[tuple[Any, ...], ...] = ()):
        self._streams = [
            folder / f"{os.getpid()}-{time.monotonic_ns()}.{x}" for x in ("out", "err")
        ]
        self._process = CONTEXT.Process(
            target=_run, args=(folder, self._streams, arguments, prepare)
        )
        self._process.start()

    def wait_until(self, done: Callable[[], bool]) -> None:
        """Wait until something has happened, or the command is over."""
        deadline = time.monotonic() + TIMEOUT_S
        while not done() and self._process.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def send(self, number: int) -> None:
        """Send a signal to the command."""
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End the command and all that it has started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has not yet made a group of its own
            self._process.kill()

    def finish(self) -> tuple[int, str, str]:
        """Wait for the end; return its status and what was printed."""
        self._process.join(TIMEOUT_S)
        texts = (path.read_text("utf-8") if path.exists() else "" for path in self._streams)
        return (self._process.exitcode, *texts)

    def was_killed(self) -> bool:
        """Wait for the end, which is by SIGKILL or a good one."""
        status, _, err = self.finish()
        assert status in (0, -signal.SIGKILL), err
        return status != 0


def _run(
    folder: Path,
    streams: list[Path],
    arguments: tuple[str, ...],
    prepare: tuple[tuple[Any, ...], ...],
) -> None:
    import torch

    from shapeshift.cli import main

    os.setsid()
    os.chdir(folder)
    for number, path in enumerate(streams, start=1):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), number)
    torch.set_num_threads(1)
    for function, *values in prepare:
        function(*values)
    sys.argv = ["shapeshift", *arguments]
    main()


def kill_at(place: int, when: str, saving: bool) -> None:
    """Let this process kill its group, as a power cut would.

    Args:
        place: the number of the operation on files at which it does, from 0.
        when: before the operation, after it, or in the middle (`during`) if it writes, else before.
        saving: whether only operations of checkpoints count; otherwise updates count, too.
    """
    from shapeshift._system.files import Disk
    from shapeshift.training.checkpoints import Checkpoints
    from shapeshift.training.trainer import Trainer

    num_calls, depth = 0, 0

    def kill_group() -> None:
        os.killpg(0, signal.SIGKILL)
        time.sleep(TIMEOUT_S)  # the signal may take a moment to arrive

    def killing(method: Callable) -> Callable:
        def call(*arguments):
            nonlocal num_calls
            counts = depth or not saving
            here = counts and num_calls == place
            num_calls += bool(counts)
            if here and when == "during" and method is io.FileIO.write:
                file, data = arguments
                method(file, data[: len(data) // 2])
            if here and when != "after":
                kill_group()
            result = method(*arguments)
            if here:
                kill_group()
            return result

        return call

    def counting(method: Callable) -> Callable:
        def call(*arguments):
            nonlocal depth
            depth += 1
            result = method(*arguments)
            depth -= 1
            return result

        return call

    for name in [each for each in vars(Disk) if not each.startswith("_")]:
        setattr(Disk, name, staticmethod(killing(getattr(Disk(), name))))
    if saving:  # a validation is recorded as well
        Checkpoints.save, Checkpoints.record = map(counting, (Checkpoints.save, Checkpoints.record))
    else:
        Trainer._update = killing(Trainer._update)


def write_toy(folder: Path, max_updates: int, **training: object) -> dict[str, object]:
    """Write text whose translation is upper case; return the configuration of a tiny model."""
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdef", k=rng.randint(1, 3))) for _ in range(20)]
    text = folder / "text"
    text.mkdir(parents=True)
    sizes = {"train": 120, "valid": 12, "test": 21}
    for split, size in sizes.items():
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 5))) + "\n" for _ in range(size)]
        if split == "test":
            lines[2] = "\n"  # an empty sentence
        (text / f"{split}.low").write_text("".join(lines), encoding="utf-8")
        (text / f"{split}.up").write_text("".join(lines).upper(), encoding="utf-8")
    corpus = {"corpus": "files", "root": str(text), "source": "low", "target": "up"}
    return {
        "data": {
            "corpus": corpus | {split: [split] for split in sizes},
            "subwords": {"vocab_size": 40},
        },
        "model": {
            "dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1,
            "dropout": 0.1,
        },
        "training": {
            "max_updates": max_updates,
            "batch": {"max_sentences": 8},
            "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 20},
            "precision": "fp32",
            "device": "cpu",
            "log_every": 1,
            "keep_checkpoints": 2,
            "average_checkpoints": 2,
            **training,
        },
    }  # fmt: skip


def write_run(
    folder: Path, max_updates: int, checkpoint_every: int = 3, position: object = "shape"
) -> None:
    """Write `toy.yaml` and its text."""
    toy = write_toy(folder, max_updates, accumulation=2, checkpoint_every=checkpoint_every)
    (folder / "toy.yaml").write_text(yaml.safe_dump(toy | {"position": position}), "utf-8")


def write_study(folder: Path, max_updates: int, **grid: object) -> None:
    """Write `toy.yaml`, a study of two positions and two seeds, and its text."""
    base = write_toy(folder, max_updates, checkpoint_every=4) | {"decoding": {"beam": 1}}
    axes = {"position": {name: [f"position={name}"] for name in ("ape", "shape")}}
    table = {
        "title": "BLEU",
        "rows": ["position"],
        "columns": {"BLEU": {"split": "test"}},
        "baseline": {"position": "ape"},
    }
    study = {
        "title": "a toy",
        "grid": {"axes": axes, "seeds": [1, 2], "base": base, "measures": ["score-test"], **grid},
        "tables": [table],
    }
    (folder / "toy.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")


def note_trainings(path: Path) -> None:
    """Add a line to a file for each run that this process begins to train."""
    from shapeshift.study import work

    original = work.train

    def noted(config, directory, *arguments, **options):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{Path(directory).parent.name}\n")
        return original(config, directory, *arguments, **options)

    work.train = noted


def without_clock(log: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the lines of a log without what differs from run to run."""
    return [{k: v for k, v in x.items() if k not in ("tokens_per_s", "elapsed_s")} for x in log]
