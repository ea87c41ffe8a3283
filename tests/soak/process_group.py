"""The command in a process group of its own, its end by SIGKILL, and a toy to train meanwhile.

Attempts are forked from one process that has imported the package, so that time goes into the work
and not into imports.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from shapeshift.cli import main as shapeshift_main
from shapeshift.disk import Disk

OPERATIONS = (
    "create", "write", "sync_file", "sync_directory", "mkdir", "rename", "unlink", "rmtree"
)  # fmt: skip
"""Methods of `Disk`: all that is done to files."""

TIMEOUT_S = 300


def wrap_operations(wrapper: Callable[[Callable], Callable]) -> None:
    """Replace all operations on files in this process."""
    for name in OPERATIONS:
        setattr(Disk, name, wrapper(getattr(Disk, name)))


def killing(
    place: int, when: str, counts: Callable[[], bool] = lambda: True
) -> Callable[[Callable], Callable]:
    """Return a wrapper of methods that kills this process group, as a power cut would.

    Args:
        place: the number of the call at which it does, from 0, of all methods that are wrapped.
        when: before that call, after it, or in the middle (`during`) if it writes, else before.
        counts: whether a call counts.
    """
    num_calls = 0

    def kill_group() -> None:
        os.killpg(0, signal.SIGKILL)
        time.sleep(TIMEOUT_S)  # the signal may take a moment to arrive

    def wrapper(method: Callable) -> Callable:
        def call(self, *arguments):
            nonlocal num_calls
            counting = counts()
            here = counting and num_calls == place
            num_calls += counting
            if here and when == "during" and method.__name__ == "write":
                file, data = arguments
                method(self, file, data[: len(data) // 2])
                kill_group()
            if here and when != "after":
                kill_group()
            result = method(self, *arguments)
            if here:
                kill_group()
            return result

        return call

    return wrapper


def wait_until(done: Callable[[], bool], child: int) -> None:
    """Wait until something has happened, or a process is over."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done() and not has_ended(child) and time.monotonic() < deadline:
        time.sleep(0.001)


def kill(child: int) -> None:
    """End a process that was started here, and its group."""
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:  # it has not yet made a group of its own
        os.kill(child, signal.SIGKILL)


def start(
    folder: Path, output: Path, command: Sequence[str], prepare: Callable[[], None] | None = None
) -> int:
    """Run `shapeshift` in a new process group; return its number.

    Args:
        folder: to run in.
        output: a file for what it prints.
        command: its arguments.
        prepare: called in the new process first.
    """
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.chdir(folder)
    handle = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    if prepare is not None:
        prepare()
    sys.argv = ["shapeshift", *command]
    status = 70
    try:
        shapeshift_main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def finish(child: int, output: Path) -> bool:
    """Wait for a process; return whether it was killed.

    Raises:
        SystemExit: it has failed.
    """
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"ended with {status}:\n{output.read_text(encoding='utf-8')}")
    return status == -signal.SIGKILL


def has_ended(child: int) -> bool:
    """Return whether a process is over, and leave it to `finish`."""
    return bool(os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def write_toy(folder: Path, max_updates: int, **training: object) -> dict[str, object]:
    """Write text whose translation is upper case; return the configuration of a tiny model."""
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdef", k=rng.randint(1, 3))) for _ in range(20)]
    text = folder / "text"
    text.mkdir(parents=True)
    sizes = {"train": 100, "valid": 8, "test": 8}
    for split, size in sizes.items():
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 6))) + "\n" for _ in range(size)]
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


def without_clock(log: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the lines of a log without what differs from run to run."""
    return [{k: v for k, v in x.items() if k not in ("tokens_per_s", "elapsed_s")} for x in log]


def run_script(
    documentation: str,
    soak: Callable[[Path, argparse.Namespace], dict[str, object]],
    is_good: Callable[[dict[str, object]], bool],
    **options: int,
) -> None:
    """Run a soak test in a new folder with numbers from the command line; print its report, and
    exit with 1 if it is not good."""
    parser = argparse.ArgumentParser(description=documentation.split("\n")[0])
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), chosen)
    report["elapsed_s"] = round(time.monotonic() - began, 1)
    print(json.dumps(report, indent=2))
    sys.exit(not (report["num_kills"] == chosen.kills and is_good(report)))
