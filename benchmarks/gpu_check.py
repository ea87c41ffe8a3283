"""What needs a GPU: its tests, and speed and memory of training, attention and decoding.

    python benchmarks/gpu_check.py [--sizes base,big] [--lengths 32,512]    # or: make gpu-check

Prints tables and writes benchmarks/results/gpu-check.json, part by part, so that nothing is lost
when it is stopped; parts that are not asked for stay in it, if they are of the same device and
versions. The file names device and versions, and has the measured rate of bf16 products, which
tests failed, and

- commands: `shapeshift train short`, whose batches have hundreds of shapes, and `translate`.
- training: whole steps (forward, backward, Adam) on random sentences of one length, `--tokens` a
  side, by position representation, by Hugging Face's MarianMT in a plain loop under autocast, and
  with `training.compile`. Tokens/s are of both sides. `share` is what the products of the model
  without positions would take at the measured rate, over the time of the step.
- attention: one self-attention without its projections, forward and backward, against each kernel
  of `torch.nn.functional.scaled_dot_product_attention` without positions.
- decoding: beam search and greedy search, all sentences to one length, against MarianMT's.

Medians of five measurements, each of calls that are not waited for one by one, with the range.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from compare import Marian, Ours
from positions import SYSTEMS
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from shapeshift.attention import attend
from shapeshift.model import ModelConfig
from shapeshift.positions import Representation, Stack, place
from shapeshift.training.precision import describe_hardware, tuned
from shapeshift.training.step import random_batch

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu-check.json"
KINDS = ("ape", "shape", "rpe", "rpe-keys", "skew", "t5", "alibi", "rope")
COMPILED = ("ape", "rope")
ROUNDS = 5
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], object], round_s: float) -> tuple[float, float, float]:
    """Return the median, the least and the most seconds of a call, after three that warm up."""
    for _ in range(3):
        began = time.perf_counter()
        work()
        wait()
        once = time.perf_counter() - began
    calls = max(1, int(round_s / once))
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        times.append((time.perf_counter() - began) / calls)
    return statistics.median(times), min(times), max(times)


def peak_mib(work: Callable[[], object]) -> float | None:
    """Return the most memory that was allocated during a call; None on a CPU."""
    if DEVICE.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    work()
    return torch.cuda.max_memory_allocated() / 2**20


def free() -> None:
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()


def product_tflops(size: int) -> float:
    """Return the rate of a bf16 product of two matrices, in 10^12 operations a second."""
    a, b = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / timed(lambda: a @ b, 0.05)[0] / 1e12


def step_flops(size: str, length: int, tokens: int, vocabulary: int) -> float:
    """Return the operations of the matrix products of a step, without those of positions."""
    shape = ModelConfig(size=size)
    D, F = shape.dim, shape.ff_dim
    encoder = 8 * D * D + 4 * D * F + 4 * length * D
    decoder = 16 * D * D + 4 * D * F + 8 * length * D
    layers = shape.encoder_layers * encoder + shape.decoder_layers * decoder
    return 3 * tokens * (layers + 2 * vocabulary * D)  # the backward pass has two for each


def training(args: argparse.Namespace, tflops: float) -> Iterator[dict[str, Any]]:
    for size in args.sizes:
        ways = [(name, False) for name in (*args.systems, "marian")] + [
            (name, True) for name in COMPILED
        ]
        for name, compiled in ways:
            free()
            torch.manual_seed(0)
            V, longest = args.vocabulary, max(args.lengths)
            system: Ours | Marian
            if name == "marian":
                system = Marian(size, V, "bf16", DEVICE, longest)
            else:
                system = Ours(size, V, "bf16", SYSTEMS[name], DEVICE, compiled)
            for length in args.lengths:
                num_sentences = max(1, args.tokens // length)
                batch = random_batch(num_sentences, length, (V, V), DEVICE)
                row: dict[str, Any] = {"size": size, "length": length, "system": name}
                row["compiled"] = compiled
                step = partial(system.train, batch)
                if name != "marian":
                    step = tuned(DEVICE)(step)
                try:
                    began = time.perf_counter()
                    step()
                    wait()
                    row["first_s"] = time.perf_counter() - began
                    seconds = timed(step, args.round_s)
                    row["peak_mib"] = peak_mib(step)
                except torch.OutOfMemoryError:
                    row["failed"] = "out of memory"
                else:
                    tokens = num_sentences * length
                    row |= per_second(2 * tokens, seconds, "tokens_per_s")
                    row["share"] = step_flops(size, length, tokens, V) / seconds[0] / tflops / 1e12
                yield row
            del system, step


def attention(args: argparse.Namespace, _: float) -> Iterator[dict[str, Any]]:
    shape = ModelConfig(size=args.sizes[-1])
    H, E = shape.num_heads, shape.dim // shape.num_heads
    for causal in (False, True):
        for length in args.lengths:
            B = max(1, args.tokens // length)
            heads = [
                torch.randn(B, H, length, E, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)
            ]
            grad = torch.randn_like(heads[0])
            for x in heads:
                x.requires_grad_()
            pos = torch.arange(length, device=DEVICE)[None]
            ways: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {}
            for name in args.systems:
                stack = Stack("decoder" if causal else "encoder", shape.dim, H, 1)
                position = place(SYSTEMS[name], stack).self_attention[0].to(DEVICE)
                ways[name] = attends(heads, position, pos, causal), list(position.parameters())
            for kernel in SDPBackend.__members__:
                if kernel in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"):
                    ways[f"sdpa {kernel}"] = attends_with(heads, kernel, causal), []
            for name, (forward, parameters) in ways.items():
                free()
                row: dict[str, Any] = {"length": length, "causal": causal, "system": name}

                def work() -> None:
                    torch.autograd.grad(forward(), [*heads, *parameters], grad)  # noqa: B023

                try:
                    seconds = timed(work, args.round_s / 4)
                    row["peak_mib"] = peak_mib(work)
                except RuntimeError as error:  # a kernel that this device lacks
                    row["failed"] = str(error).splitlines()[0][:200]
                else:
                    row["ms"], row["range"] = 1e3 * seconds[0], [1e3 * x for x in seconds[1:]]
                yield row


def attends(
    heads: list[Tensor], position: Representation, pos: Tensor, causal: bool
) -> Callable[[], Tensor]:
    def work() -> Tensor:
        q, k = position.rotate(heads[0], heads[1], pos, pos)
        with torch.autocast(DEVICE.type, torch.bfloat16):
            return attend(q, k, heads[2], None, position, pos, pos, causal=causal)

    return work


def attends_with(heads: list[Tensor], kernel: str, causal: bool) -> Callable[[], Tensor]:
    def work() -> Tensor:
        with sdpa_kernel(SDPBackend.__members__[kernel]):
            return scaled_dot_product_attention(*heads, is_causal=causal)

    return work


def decoding(args: argparse.Namespace, _: float) -> Iterator[dict[str, Any]]:
    size, steps = args.sizes[0], args.steps
    V = args.vocabulary
    for beam in (4, 1):
        for sentences in args.sentences:
            source = random_batch(sentences, steps, (V, V), DEVICE).source
            for name in ("ape", "rpe", "rope", "marian"):
                free()
                torch.manual_seed(0)
                system: Ours | Marian
                if name == "marian":
                    system = Marian(size, V, "bf16", DEVICE)
                else:
                    system = Ours(size, V, "bf16", SYSTEMS[name], DEVICE)
                work = partial(system.translate, source, beam, steps)
                if name != "marian":
                    work = tuned(DEVICE)(work)
                seconds = timed(work, args.round_s / 2)
                row: dict[str, Any] = {"size": size, "beam": beam, "batch": sentences}
                row["system"] = name
                yield row | per_second(sentences, seconds, "sentences_per_s")
                del system, work


def per_second(
    count: float, seconds: tuple[float, float, float], name: str
) -> dict[str, float | list[float]]:
    median, least, most = seconds
    return {name: count / median, "range": [count / most, count / least]}


def commands(args: argparse.Namespace, _: float) -> Iterator[dict[str, Any]]:
    """Time `shapeshift train short`, whose batches have hundreds of shapes, and `translate`."""
    paths = str(ROOT / "src") + os.pathsep + os.environ.get("PYTHONPATH", "")
    with tempfile.TemporaryDirectory() as folder:
        train = ["train", "short", "--run", folder + "/run"]
        for command in (train, ["translate", folder + "/run"]):
            began = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "shapeshift", *command],
                input="The boy reads a book.\n",
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": paths},
            )
            row: dict[str, Any] = {"command": command[0], "s": time.perf_counter() - began}
            if done.returncode:
                row["failed"] = done.stderr[-1000:]
            log = Path(folder, "run", "log.jsonl")
            if command is train and log.exists():
                lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
                row["tokens_per_s"] = [x["tokens_per_s"] for x in lines if "tokens_per_s" in x]
            yield row


PARTS = {
    "tests": None,
    "commands": commands,
    "decoding": decoding,
    "attention": attention,
    "training": training,
}


def run_tests() -> dict[str, Any]:
    """Return what pytest counts in the GPU's tests, and the names of those that failed."""
    files = [x for x in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in x.read_text("utf-8")]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-rfE", "-v", *map(str, files)]
    if importlib.util.find_spec("xdist"):  # they compile for longer than they compute
        command += ["-n", str(min(12, os.cpu_count() or 1)), "--dist", "worksteal"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if done.returncode:
        print(done.stdout[-6000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    failed = [x.split(" - ")[0].split(" ", 1)[1] for x in lines if x[:6] in ("FAILED", "ERROR ")]
    return {"exit_code": done.returncode, "outcome": lines[-1].strip("= "), "failed": failed}


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"torch": torch.__version__, "cuda": torch.version.cuda}
    for name in ("triton", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def show(row: dict[str, Any]) -> None:
    def text(value: Any) -> str:
        if isinstance(value, list):
            return " to ".join(map(text, value))
        return f"{value:,.4g}" if isinstance(value, float) else str(value)

    print("  ".join(f"{key} {text(value)}" for key, value in row.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=lambda x: x.split(","), default=["base", "big"])
    parser.add_argument(
        "--lengths", type=lambda x: [int(y) for y in x.split(",")], default=[32, 512, 2048]
    )
    parser.add_argument("--systems", type=lambda x: x.split(","), default=[*KINDS])
    parser.add_argument("--tokens", type=int, default=16384, help="of a side of a training batch")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument(
        "--sentences", type=lambda x: [int(y) for y in x.split(",")], default=[64, 256]
    )
    parser.add_argument(
        "--steps", type=int, default=32, help="tokens that a sentence is decoded to"
    )
    parser.add_argument("--round-s", type=float, default=0.2, help="of one of five measurements")
    parser.add_argument(
        "--parts", type=lambda x: x.split(","), default=[*PARTS], help="of the check"
    )
    parser.add_argument(
        "--on-a-cpu", action="store_true", help="to try this program; writes nothing"
    )
    args = parser.parse_args()
    if DEVICE.type != "cuda" and not args.on_a_cpu:
        print("no CUDA device here", file=sys.stderr)
        return 1
    tflops = product_tflops(8192 if DEVICE.type == "cuda" else 512)
    found: dict[str, Any] = {"device": describe_hardware(DEVICE), "versions": versions()}
    show(found | {"bf16_products_tflops": tflops, "settings": vars(args)})
    before = json.loads(RESULT.read_text("utf-8")) if RESULT.exists() else {}
    if all(before.get(name) == value for name, value in found.items()):
        found = before
    found.setdefault("settings", {})

    def save() -> None:
        if args.on_a_cpu:
            return
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    if "tests" in args.parts:
        found["tests"] = run_tests()
        save()
        print(found["tests"]["outcome"], flush=True)
    for name in [x for x in args.parts if x != "tests"]:
        print(f"\n{name}")
        found[name] = []
        found["settings"][name] = vars(args) | {"bf16_products_tflops": tflops}
        for row in PARTS[name](args, tflops):
            found[name].append(row)
            show(row)
            save()
    return int("tests" in args.parts and found["tests"]["exit_code"])


if __name__ == "__main__":
    sys.exit(main())
