"""Everything that needs a GPU, in one go: the `gpu` tests and the speed of each position scheme.

    python benchmarks/gpu_check.py          # or: make gpu-check

Writes benchmarks/results/gpu-check.txt: the device, versions, the tests' outcome, the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
STEPS = (
    ("-m", "pytest", "-m", "gpu", "-q", "tests"),
    ("benchmarks/speed.py", "--size", "base", "--length", "32", "--tokens", "16384"),
    ("benchmarks/speed.py", "--size", "base", "--length", "512", "--tokens", "16384"),
)


def main() -> int:
    if not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 1
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}"]
    failed = 0
    for step in STEPS:
        done = subprocess.run([sys.executable, *step], cwd=ROOT, capture_output=True, text=True)
        failed |= done.returncode
        lines += ["", f"$ python {' '.join(step)}", (done.stdout + done.stderr).strip()]
    report = "\n".join(lines) + "\n"
    print(report)
    results = ROOT / "benchmarks" / "results"
    results.mkdir(exist_ok=True)
    (results / "gpu-check.txt").write_text(report, encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
