"""What each position representation costs: time and memory of whole training steps, by length.

    python benchmarks/positions.py [--size base] [--lengths 32,160,1024] [--precision bf16]
    python benchmarks/positions.py --memory --lengths 1024
    python benchmarks/positions.py --attention [encoder|decoder]

A step is forward, backward and Adam on random sentences of one length, a batch of `--tokens`. Each
of the other systems takes turns with APE, so that other work on the machine meets both, and each
step comes after one of the other. A ratio is the time of the two APE steps around a step of the
system over that step's, the median over these. `textbook` is Shaw et al. with the n × n × d tensor
of relative vectors built in each layer, as toolkits have it. `--attention` measures one
self-attention layer alone (forward and backward), `--memory` the peak memory of a process that does
two steps: resident memory on a CPU, allocated memory on a GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from shapeshift._system.errors import nearest
from shapeshift.model import ModelConfig, build
from shapeshift.model.attention import Attention
from shapeshift.positions import SCHEMES, Part, Scheme, Shaw, Stack, place
from shapeshift.positions.pairs import Table
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import autocast, choose_device, choose_precision, tune_cpu
from shapeshift.training.step import TrainingStep, random_batch

SYSTEMS = {
    "ape": SCHEMES["ape"],
    "shape": SCHEMES["shape"],
    "rpe": SCHEMES["rpe"],
    "rpe-keys": Scheme(parts=(Part("shaw", options={"add_to": "keys"}),)),
    "textbook": SCHEMES["rpe"],
    "skew": SCHEMES["skew"],
    "t5": SCHEMES["t5"],
    "alibi": SCHEMES["alibi"],
    "rope": SCHEMES["rope"],
    "tupe": SCHEMES["tupe"],
}


class Textbook(Shaw):
    """Shaw's representation as it is written: a_ij is built for every pair, n × n × E."""

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        each = self._each(self.keys, pos_q, pos_k)
        return torch.einsum("bhqe,qke->bhqk", q, each)

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return torch.einsum("bhqk,qke->bhqe", probs, self._each(self.values, pos_q, pos_k))

    def _each(self, table: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return table[0][Table(table, -self.max_distance).rows(pos_q, pos_k)[0]]  # (Q, K, E)


def step_of(name: str, length: int, args: argparse.Namespace) -> Callable[[], None]:
    """Return a function that does one training step of a system on sentences of one length."""
    torch.manual_seed(0)
    model = build(ModelConfig(size=args.size), SYSTEMS[name], args.vocabulary, args.vocabulary)
    model.to(args.device)
    if name == "textbook":
        for module in model.modules():
            if isinstance(module, Shaw):
                module.__class__ = Textbook
    num_sentences = max(1, args.tokens // length)
    batch = random_batch(num_sentences, length, (args.vocabulary, args.vocabulary), args.device)
    config = TrainingConfig(precision=args.precision)
    return partial(TrainingStep(model, config), batch)


def attention_of(name: str, length: int, args: argparse.Namespace) -> Callable[[], None]:
    """Return a function that passes through one self-attention, there and back."""
    torch.manual_seed(0)
    config = ModelConfig(size=args.size)
    causal = args.attention == "decoder"
    stack = Stack(args.attention, config.dim, config.num_heads, 1)
    position = place(SYSTEMS[name], stack).self_attention[0]
    if name == "textbook":
        position.__class__ = Textbook
    layer = Attention(config.dim, config.num_heads, 0.0, position).to(args.device)
    size = max(1, args.tokens // length)
    x = torch.randn(size, length, config.dim, device=args.device, requires_grad=True)
    mask = None if causal else torch.zeros(size, 1, 1, length, device=args.device)
    pos = torch.arange(length, device=args.device)[None]

    def step() -> None:
        with autocast(args.device, args.dtype):
            out = layer(x, x, pos, pos, mask, causal=causal)
        out.sum().backward()

    return step


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Callable[[], None], args: argparse.Namespace) -> float:
    clock = time.process_time if args.cpu_time else time.perf_counter
    wait(args.device)
    began = clock()
    step()
    wait(args.device)
    return clock() - began


def compare(length: int, args: argparse.Namespace) -> None:
    """Print a row for each system."""
    make = attention_of if args.attention else step_of
    first, *others = args.systems
    baseline = make(first, length, args)
    for name in others:
        by_turns = (baseline, make(name, length, args)) * (args.repeats + 2)
        times = [timed(step, args) for step in by_turns][1:-1]
        befores, own, afters = times[1:-1:2], times[2::2], times[3::2]
        ratios = [
            (before + after) / 2 / took
            for before, took, after in zip(befores, own, afters, strict=True)
        ]
        print(
            f"{length:6}  {name:9} {1e3 * statistics.median(befores):9.1f}"
            f" {1e3 * statistics.median(own):9.1f}"
            f"  {statistics.median(ratios):6.3f}  {min(ratios):.3f}–{max(ratios):.3f}",
            flush=True,
        )


def peak_bytes(name: str, length: int, args: argparse.Namespace) -> int:
    """Return the peak memory of two training steps in this process."""
    step = step_of(name, length, args)
    for _ in range(2):
        step()
    if args.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compare_memory(length: int, args: argparse.Namespace) -> None:
    """Print a row for each system, each measured in a process of its own."""
    first = None
    for name in args.systems:
        command = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps([name, length])]
        got = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        first = first or got
        print(f"{length:6}  {name:9} {got / 1e9:9.2f}  {got / first:6.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--lengths", default="32,160,512,1024,2048", help="subwords a sentence")
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="ratios are to the first")
    parser.add_argument("--precision", default="auto", help="bf16, fp32 or auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--attention",
        choices=["encoder", "decoder"],
        nargs="?",
        const="encoder",
        help="one self-attention layer alone, the encoder's by default",
    )
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="processor time instead of wall time: for a shared machine, with OMP_NUM_THREADS=1",
    )
    parser.add_argument("--memory", action="store_true", help="peak memory instead of time")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.systems = args.systems.split(",")
    for name in args.systems:
        if name not in SYSTEMS:
            known = f"{nearest(name, SYSTEMS)} (known: {', '.join(SYSTEMS)})"
            parser.exit(2, f"--systems: unknown system {name!r}{known}\n")
    args.device = choose_device(args.device)
    args.dtype = choose_precision(args.precision, args.device)
    if args.device.type == "cpu":
        tune_cpu()
    if args.one:
        print(peak_bytes(*json.loads(args.one), args))
        return
    print(
        f"{args.size}, {args.tokens} tokens, vocabulary {args.vocabulary},"
        f" {str(args.dtype).removeprefix('torch.')}, {torch.get_num_threads()} threads,"
        f" {args.device}, torch {torch.__version__}"
    )
    print(
        "length  system           GB   ratio"
        if args.memory
        else f"length  system    {args.systems[0]:>6}, ms        ms   ratio  range"
    )
    for length in map(int, args.lengths.split(",")):
        (compare_memory if args.memory else compare)(length, args)


if __name__ == "__main__":
    main()
