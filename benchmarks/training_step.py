"""What our dropout and our loss save in a training step on a CPU, against PyTorch's own.

    python benchmarks/training_step.py

The four combinations take turns in one run; medians in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift.model import ModelConfig, build, label_smoothed_loss, layers, loss
from shapeshift.positions import PRESETS


def torch_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    return F.dropout(x, p, training)


def torch_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    log_probs = (hidden @ weight.t()).log_softmax(-1, dtype=torch.float32)
    nll = F.nll_loss(log_probs, targets, reduction="sum")
    return (1 - epsilon) * nll - epsilon * log_probs.mean(-1).sum(), nll.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    config = ModelConfig(size=args.size, dropout=0.3)
    model = build(config, PRESETS["ape"], args.vocabulary, args.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    shape = (args.tokens // args.length, args.length)
    source, target = (torch.randint(5, args.vocabulary, shape) for _ in range(2))

    def step_ms() -> float:
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = label_smoothed_loss(model, source, target, target, 0.1)
        (made.smoothed / made.num_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        return 1e3 * (time.perf_counter() - began)

    ours = (layers.dropout, loss.linear_cross_entropy)
    ways = {
        "PyTorch's": (torch_dropout, torch_loss),
        "our dropout": (ours[0], torch_loss),
        "our loss": (torch_dropout, ours[1]),
        "both": ours,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats + 1):
        for name, (layers.dropout, loss.linear_cross_entropy) in ways.items():
            times[name].append(step_ms())
    for name, values in times.items():
        print(f"{name:12} {statistics.median(values[1:]):7.0f} ms")


if __name__ == "__main__":
    main()
