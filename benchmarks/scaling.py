"""How training speed grows with processes: the same updates in one process and in several.

    python benchmarks/scaling.py                           # two cores: 1 process x 2 threads, 2 x 1
    python benchmarks/scaling.py --processes 1 2 4 8 --device cuda

Every line trains the same batches on the built-in grammar. On a CPU the threads are shared among
the processes; on GPUs each process has one, and the ideal is a speed in proportion.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from shapeshift.config import load_config
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import prepared_directory
from shapeshift.training.log import read_log

SOURCES = Path(__file__).resolve().parents[1] / "src"


def write_config(path: Path, args: argparse.Namespace) -> None:
    """Write settings that all lines share: logs in two halves, of which the second is counted."""
    document = {
        "data": {
            "corpus": {
                "corpus": "grammar", "num_train": 20000, "num_valid": 20, "num_test": 20,
            },
            "subwords": {"vocab_size": 2000},
        },
        "model": {"size": args.size},
        "training": {
            "max_updates": 2 * args.updates,
            "accumulation": max(args.processes),
            "batch": {"max_tokens": args.tokens // max(args.processes)},
            "log_every": args.updates,
            "checkpoint_every": 2 * args.updates,
            "device": args.device,
            "precision": args.precision,
        },
    }  # fmt: skip
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML


def tokens_per_s(folder: Path, num_processes: int, num_threads: int) -> float:
    """Train; return the speed in the second half."""
    run = f"run-{num_processes}"
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(num_processes),
    ]
    command = ["-m", "shapeshift", "train", "config.yaml", "--run", run, "--no-test"]
    if num_processes > 1:
        command = [*launcher, "-m", "--", *command[1:]]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": str(num_threads)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return float([line for line in read_log(folder / run / "log.jsonl") if "loss" in line][-1][
        "tokens_per_s"
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--threads", type=int, default=2, help="of all processes together")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--size", default="small")
    parser.add_argument("--tokens", type=int, default=8192, help="padded, of an update")
    parser.add_argument("--updates", type=int, default=20, help="that are timed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_config(folder / "config.yaml", args)
        config = load_config(folder / "config.yaml")
        prepare(config.data, prepared_directory(config.data, folder / "prepared"))
        first = None
        for count in args.processes:
            speed = tokens_per_s(folder, count, max(1, args.threads // count))
            first = first or speed
            print(f"{count} processes: {speed:12,.0f} tokens/s {speed / first:6.2f} x", flush=True)


if __name__ == "__main__":
    main()
