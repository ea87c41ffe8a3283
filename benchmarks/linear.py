"""Products of few rows with weights in the layouts of `shapeshift.model.inference`.

    python benchmarks/linear.py [--precision bf16]

A weight lies in memory as `(N, K)` and PyTorch multiplies, or in float32 in the panels of our
kernel, in bf16 in oneDNN's blocks. Prints microseconds a product, the least of several runs, which
take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift.model.inference import BlockedLinear, PanelLinear

ROWS = (8, 32, 128, 512, 4096)
SIZES = ((256, 256), (256, 768), (256, 1024), (1024, 256), (256, 8000), (512, 2048), (2048, 512))


def microseconds(product: Callable[[Tensor], Tensor], x: Tensor, size: int) -> float:
    calls = max(5, 500_000_000 // (len(x) * size))
    began = time.process_time()
    for _ in range(calls):
        product(x)
    return 1e6 * (time.process_time() - began) / calls


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    bf16 = parser.parse_args().precision == "bf16"
    torch.set_num_threads(1)
    dtype, linear = (torch.bfloat16, BlockedLinear) if bf16 else (torch.float32, PanelLinear)
    print(f"rows      K      N   (N, K)   {'blocks' if bf16 else 'panels'}  ratio")
    for rows in ROWS:
        for k, n in SIZES:
            x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((rows, k), (n, k), (n,)))
            products: list[Callable[[Tensor], Tensor]] = [
                lambda x, w=weight, b=bias: F.linear(x, w, b),
                linear(weight, bias),
            ]
            times = [[microseconds(each, x, n * k) for each in products] for _ in range(8)][1:]
            first, second = (min(column) for column in zip(*times, strict=True))
            print(f"{rows:4} {k:6} {n:6} {first:8.1f} {second:8.1f} {first / second:6.2f}")


if __name__ == "__main__":
    main()
