"""The speed of the kernels that are built with the package, next to `-march=native`.

    python benchmarks/instruction_sets.py [--threads 2] [--repeats 30]

Compiles the sources for this processor into a temporary folder and calls both libraries, and those
of the slower instruction sets, by turns. Prints milliseconds of processor time a call, the median,
and how many times as fast as `-march=native` a library is.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import runpy
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from shapeshift.attention.backends.cpu import attend_rows
from shapeshift.kernels import decoding, library, training
from shapeshift.kernels.processor import instruction_sets
from shapeshift.positions.pairs import Table

FOLDER = Path(library.__file__).parent


def compiled_here(dtype: torch.dtype, folder: Path) -> ctypes.CDLL:
    flags = runpy.run_path(str(FOLDER.parents[2] / "setup.py"), run_name="setup")["FLAGS"]
    flags += ["-march=native", '-DSOURCES=""', *["-DBF16"] * (dtype == torch.bfloat16)]
    path = folder / f"{dtype}.so"
    compiler = shlex.split(os.environ.get("CC") or "cc")
    sources = map(str, FOLDER.glob("*.c"))
    subprocess.run([*compiler, *flags, "-o", str(path), *sources, "-lm"], check=True)
    return ctypes.CDLL(str(path))


def calls(dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Return calls of the sizes that training and translation make."""

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape).to(dtype)

    def trained(length: int, tables: bool) -> Callable[[], object]:
        heads = [randn(2048 // length, 8, length, 64).requires_grad_() for _ in range(3)]
        table = Table(randn(1, 33, 64).requires_grad_(), -16) if tables else None

        def train() -> object:
            out = attend_rows(heads, (table, table), dropout_p=0.1)
            return torch.autograd.grad(out, heads, out.detach())

        return train

    logits, targets = randn(1024, 8000), torch.randint(8000, (1024,))
    q, k = randn(32, 8, 1, 64), randn(32, 8, 40, 64)
    made: dict[str, Callable[[], object]] = {
        "attention, 32 tokens": trained(32, False),
        "attention, 256 tokens": trained(256, False),
        "relative, 32 tokens": trained(32, True),
        "relative, 256 tokens": trained(256, True),
        "loss": lambda: training.cross_entropy(logits, targets, 0.9, False),
        "dropout": lambda: training.dropout(logits, 1, 0, 1.0),
        "attention of a step": lambda: decoding.decode_step(q, k, k),
        "continuations": lambda: decoding.best_continuations(
            logits, torch.zeros(256, 4), torch.full((256,), -1), 8, (0, 1)
        ),
    }
    if dtype == torch.float32:
        x, bias, panels = randn(32, 512), randn(2048), decoding.panels(randn(2048, 512))
        made["product"] = lambda: decoding.linear(x, panels, bias, False)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for dtype, name in library.DTYPES.items():
        with tempfile.TemporaryDirectory() as folder:
            found = {"native": compiled_here(dtype, Path(folder))}
        for each in instruction_sets():
            if (path := FOLDER / f"{each}-{name}.so").exists():
                found[each] = ctypes.CDLL(str(path))
        print(f"{name:20}", *(f"{each:>18}" for each in found))
        for what, call in calls(dtype).items():
            times: dict[str, list[float]] = {each: [] for each in found}
            for _ in range(args.repeats + 1):
                for each, own in found.items():
                    library._function.cache_clear()
                    library.library = lambda _, own=own: own
                    call()
                    began = time.process_time()
                    call()
                    times[each].append(1e3 * (time.process_time() - began))
            medians = {each: statistics.median(row[1:]) for each, row in times.items()}
            print(
                f"{what:20}",
                *(f"{x:9.3f} ms {medians['native'] / x:5.2f}" for x in medians.values()),
            )


if __name__ == "__main__":
    main()
