"""What a token of a training step costs as sentences, width and vocabulary grow, next to theory.

    python benchmarks/growth.py [--positions ape,rpe,rope] [--figure growth.png]

Training steps (forward, backward, Adam) of the small model, one setting changed at a time, each
with the same number of tokens. Theory counts matrix products: per token and layer the projections,
the feed-forward layer and n keys of attention, and once the output projection. Processors reach a
higher rate with larger matrices, so time may grow more slowly than theory. The last column is the
growth of time from the row before, divided by that of theory: above 1 it grew faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch

from shapeshift.model import ModelConfig, build
from shapeshift.positions import SCHEMES
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import tuned
from shapeshift.training.step import TrainingStep, random_batch

DEFAULT = {"length": 128, "width": 256, "vocabulary": 8000}
AXES = {
    "length": (32, 64, 128, 256, 512, 1024, 2048),
    "width": (128, 256, 512, 1024),
    "vocabulary": (2000, 4000, 8000, 16000, 32000),
}
LAYERS, CLIP = 3, 16


def giga_operations(position: str, length: int, width: int, vocabulary: int) -> float:
    """Return the multiplications and additions for a source and a target token, in 10^9."""
    layer = 4 * width**2 + 2 * width * 4 * width
    attention = 2 * length * width
    relative = 2 * min(length, 2 * CLIP + 1) * width if position == "rpe" else 0
    encoder = layer + attention + relative
    decoder = layer + 4 * width**2 + 2 * attention + relative
    forward = LAYERS * (encoder + decoder) + width * vocabulary
    return 2 * 3 * forward / 1e9


class System:
    def __init__(self, position: str, point: dict[str, int], tokens: int, precision: str):
        self.point = point
        torch.manual_seed(0)
        width, vocabulary = point["width"], point["vocabulary"]
        config = ModelConfig(size="small", dim=width, num_heads=width // 64, ff_dim=4 * width)
        model = build(config, SCHEMES[position], vocabulary, vocabulary)
        self.step = TrainingStep(model, TrainingConfig(precision=precision))
        sentences = max(1, tokens // point["length"])
        self.batch = random_batch(
            sentences, point["length"], (vocabulary, vocabulary), torch.device("cpu")
        )
        self.tokens = sentences * point["length"]
        self.times: list[float] = []

    def run(self) -> None:
        began = time.perf_counter()
        self.step(self.batch)
        self.times.append(time.perf_counter() - began)

    @property
    def microseconds(self) -> float:
        """Of a source and a target token."""
        return 1e6 * statistics.median(self.times[1:]) / self.tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--positions", default="ape,rpe,rope")
    parser.add_argument("--tokens", type=int, default=2048, help="of a batch, each side")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    positions = args.positions.split(",")
    measured: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    with tuned(torch.device("cpu")):
        for axis, values in AXES.items():
            print(f"{axis:>10}  position  us/token  GFLOP/s  time / theory, growth")
            for value in values:
                point = DEFAULT | {axis: value}
                systems = {
                    name: System(name, point, args.tokens, args.precision) for name in positions
                }
                for _ in range(args.repeats + 1):
                    for system in systems.values():
                        system.run()
                for name, system in systems.items():
                    theory, rows = (
                        giga_operations(name, **point),
                        measured.setdefault((axis, name), []),
                    )
                    rows.append((value, system.microseconds, theory))
                    growth = "-"
                    if len(rows) > 1:
                        (_, old, old_theory), (_, new, new_theory) = rows[-2:]
                        growth = f"{new / old / (new_theory / old_theory):.2f}"
                    rate = 1e6 * theory / system.microseconds
                    row = f"{system.microseconds:8.1f}  {rate:7.0f}  {growth:>8}"
                    print(f"{value:10}  {name:8}  {row}", flush=True)
    if args.figure:
        draw(measured, args.figure)


def draw(measured: dict[tuple[str, str], list[tuple[int, float, float]]], path: Path) -> None:
    """Draw time, and theory through the first point of the first position."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(AXES), figsize=(12, 4), layout="constrained")
    for panel, axis in zip(panels, AXES, strict=True):
        for (name_of_axis, position), rows in measured.items():
            if name_of_axis != axis:
                continue
            values, times, theory = zip(*rows, strict=True)
            (line,) = panel.loglog(values, times, marker="o", base=2, label=position)
            scaled = [times[0] * x / theory[0] for x in theory]
            panel.loglog(values, scaled, base=2, linestyle=":", color=line.get_color())
        panel.set(xlabel=axis, ylabel="microseconds a token" if axis == "length" else None)
        panel.set_xticks(AXES[axis], [str(x) for x in AXES[axis]])
    panels[0].legend(title="dotted: theory")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
