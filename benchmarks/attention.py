"""Our kernel of attention, and attention in steps (matmul, softmax, matmul), against PyTorch's
fused kernel, forward and backward, or with --inference forward alone.

    python benchmarks/attention.py

Decides, for CPUs without a C compiler, `FUSED_FROM` of `attention/backends/sdpa.py`. Prints
milliseconds, the median of several runs, by length and precision: float32, and bf16 where the
processor has it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention import attend_with_probs
from shapeshift.attention.backends.cpu import attend_rows
from shapeshift.positions import Representation
from shapeshift.training.precision import choose_precision, tune_cpu


def ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attend_rows((q, k, v), (None, None), mask)


def explicit(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    pos = torch.arange(q.shape[2])[None]
    return attend_with_probs(q, k, v, mask, Representation(), pos, pos)[0]


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def median_ms(step: Callable[[], object], repeats: int) -> float:
    step()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, default=4096, help="B × L, the same for each length")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--inference", action="store_true")
    args = parser.parse_args()
    tune_cpu()
    dtypes = dict.fromkeys([torch.float32, choose_precision("auto", torch.device("cpu"))])
    print(f"{torch.get_num_threads()} threads, {args.tokens} tokens, torch {torch.__version__}")
    ways = (ours, explicit, fused) if kernels.is_available(torch.float32) else (explicit, fused)
    print("length  precision " + "".join(f"{way.__name__ + ' ms':>13}" for way in ways))
    for length in (16, 32, 64, 128, 256, 512, 1024, 2048):
        for dtype in dtypes:
            shape = (max(1, args.tokens // length), args.heads, length, args.head_dim)
            q, k, v = (
                torch.randn(shape, dtype=dtype, requires_grad=not args.inference) for _ in range(3)
            )
            gradient = torch.randn(shape, dtype=dtype)
            mask = torch.zeros(shape[0], 1, 1, length, dtype=dtype)

            def step(way: Callable[..., Tensor]) -> None:
                out = way(q, k, v, mask)  # noqa: B023
                if out.requires_grad:
                    out.backward(gradient)  # noqa: B023

            times = [median_ms(partial(step, way), args.repeats) for way in ways]
            name = str(dtype).removeprefix("torch.")
            print(f"{length:6}  {name:9} " + "".join(f"{time:13.1f}" for time in times), flush=True)


if __name__ == "__main__":
    main()
