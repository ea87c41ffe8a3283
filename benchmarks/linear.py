"""Products of few rows with a weight that lies in memory as `(N, K)` or as `(K, N)`, in float32.

    python benchmarks/linear.py

Decides the layout of weights in `shapeshift.model.inference`. Prints microseconds a product, the
least of several runs, which take turns.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS = (8, 32, 128, 512)
SIZES = ((256, 256), (256, 768), (256, 1024), (1024, 256), (256, 8000), (512, 2048), (2048, 512))


def microseconds(x: Tensor, weight: Tensor, bias: Tensor) -> float:
    calls = max(5, 500_000_000 // (len(x) * weight.numel()))
    began = time.process_time()
    for _ in range(calls):
        F.linear(x, weight, bias)
    return 1e6 * (time.process_time() - began) / calls


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    print("rows      K      N   (N, K)   (K, N)  ratio")
    for rows in ROWS:
        for k, n in SIZES:
            x, weight, bias = torch.randn(rows, k), torch.randn(n, k), torch.randn(n)
            layouts = [weight, weight.t().contiguous().t()]
            times = [[microseconds(x, layout, bias) for layout in layouts] for _ in range(8)][1:]
            first, second = (min(column) for column in zip(*times, strict=True))
            print(f"{rows:4} {k:6} {n:6} {first:8.1f} {second:8.1f} {first / second:6.2f}")


if __name__ == "__main__":
    main()
