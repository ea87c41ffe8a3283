"""What our dropout, our loss and our compiled kernels save in a training step on a CPU, against
PyTorch's own.

    python benchmarks/training_step.py [--system rpe] [--length 30]

They take turns in one run; medians in milliseconds, and how many times as fast as with PyTorch's.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.model import ModelConfig, build, label_smoothed_loss, layers, loss
from shapeshift.positions import SCHEMES
from shapeshift.training.precision import autocast, choose_precision


def torch_dropout(x: Tensor, p: float, training: bool, relu: bool = False) -> Tensor:
    return F.dropout(F.relu(x) if relu else x, p, training)


def torch_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    log_probs = F.linear(hidden, weight, bias).log_softmax(-1, dtype=torch.float32)
    nll = F.nll_loss(log_probs, targets, reduction="sum")
    return (1 - epsilon) * nll - epsilon * log_probs.mean(-1).sum(), nll.detach()


def no_kernels(x: Tensor) -> bool:
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="small")
    parser.add_argument("--system", default="ape", choices=SCHEMES)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precision", default="auto", help="bf16, fp32 or auto")
    args = parser.parse_args()
    device = torch.device("cpu")
    dtype = choose_precision(args.precision, device)
    torch.manual_seed(0)
    config = ModelConfig(size=args.size, dropout=0.3)
    model = build(config, SCHEMES[args.system], args.vocabulary, args.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    shape = (args.tokens // args.length, args.length)
    source, target = (torch.randint(5, args.vocabulary, shape) for _ in range(2))

    def step_ms() -> float:
        began = time.perf_counter()
        with autocast(device, dtype):
            made = label_smoothed_loss(model, source, target, target, 0.1)
        (made.smoothed / made.num_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        return 1e3 * (time.perf_counter() - began)

    theirs = (torch_dropout, torch_loss, no_kernels)
    ours = (layers.dropout, loss.linear_cross_entropy, kernels.serves)
    ways = {
        "PyTorch's": theirs,
        "all ours": ours,
        "its dropout": (theirs[0], *ours[1:]),
        "its loss": (ours[0], theirs[1], ours[2]),
        "no kernels": (*ours[:2], theirs[2]),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeats + 1):
        for name, way in ways.items():
            layers.dropout, loss.linear_cross_entropy, kernels.serves = way
            times[name].append(step_ms())
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    first = next(iter(ways))
    for name, value in medians.items():
        print(f"{name:12} {value:7.0f} ms {medians[first] / value:7.2f}")


if __name__ == "__main__":
    main()
