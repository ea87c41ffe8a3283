"""Training speed on a CPU, quiet and next to a process that keeps one core busy.

    python benchmarks/busy_neighbour.py [--size tiny] [--rounds 3] [--spin-counts 300,10000]

Each line is a way for idle OpenMP threads to wait: that of the command line
(`shapeshift._system.threads`), which looks every second whether others need the cores, libgomp's
default, `OMP_WAIT_POLICY=passive`, a single thread, and other spin counts. The ways take turns,
each in a process of its own, quiet and then busy. Figures are medians over the rounds of the median
step, in target tokens a second, with the range; ratios are to libgomp's default on the quiet
machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")


def train(size: str, seconds: float, ours: bool) -> float:
    """Return target tokens a second of the median training step, on batches of one shape."""
    import torch

    from shapeshift._system.threads import set_num_threads
    from shapeshift.model import ModelConfig, build
    from shapeshift.positions import SCHEMES
    from shapeshift.training.config import TrainingConfig
    from shapeshift.training.step import TrainingStep, random_batch

    torch.manual_seed(0)
    config = ModelConfig(size=size)
    if ours:
        set_num_threads(config.dim)
    model = build(config, SCHEMES["ape"], 1000, 1000).train()
    step = TrainingStep(model, TrainingConfig(precision="fp32"))
    batch = random_batch(64, 16, (1000, 1000), torch.device("cpu"))
    for _ in range(3):
        step(batch)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        step(batch)
        times.append(time.perf_counter() - began)
    return batch.num_target_tokens / statistics.median(times)


def measure(policy: dict[str, str] | None, args: argparse.Namespace, busy: bool) -> float:
    """Train in a process of its own, next to a busy one on the last core that it may use."""
    environment = {key: os.environ[key] for key in os.environ if key not in VARIABLES}
    environment |= {"PYTHONPATH": str(SOURCES)} | (policy or {})
    command = [sys.executable, __file__, "--size", args.size, "--seconds", str(args.seconds)]
    command += ["--worker", "ours" if policy is None else "environment"]
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    neighbour = subprocess.Popen([sys.executable, "-c", spin]) if busy else None
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each process")
    parser.add_argument("--spin-counts", default="", help="more values of GOMP_SPINCOUNT")
    parser.add_argument("--worker", choices=["ours", "environment"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(train(args.size, args.seconds, args.worker == "ours"))
        return
    policies: dict[str, dict[str, str] | None] = {
        "libgomp's default": {},
        "shapeshift": None,
        "passive": {"OMP_WAIT_POLICY": "passive"},
        "one thread": {"OMP_NUM_THREADS": "1"},
    }
    for count in filter(None, args.spin_counts.split(",")):
        policies[f"spin {count}"] = {"GOMP_SPINCOUNT": count}
    speeds: dict[tuple[str, bool], list[float]] = {}
    for _ in range(args.rounds):
        for name, policy in policies.items():
            for busy in (False, True):
                speeds.setdefault((name, busy), []).append(measure(policy, args, busy))
    base = statistics.median(speeds["libgomp's default", False])
    print(f"{args.size}, fp32, {len(os.sched_getaffinity(0))} cores, {args.rounds} rounds")
    print(f"{'waiting':18} {'quiet tokens/s':>24} {'ratio':>6} {'busy tokens/s':>24} {'ratio':>6}")
    for name in policies:
        cells = []
        for busy in (False, True):
            values = speeds[name, busy]
            middle = statistics.median(values)
            cells.append(f"{middle:9,.0f} ({min(values):,.0f}-{max(values):,.0f})".rjust(24))
            cells.append(f"{middle / base:6.2f}")
        print(f"{name:18} {' '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
