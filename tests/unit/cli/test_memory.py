"""Commands under a limit of memory: one line, wherever the memory ends."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from .running import python

SETTINGS = """
extends: short
data: {corpus: {num_train: 300, num_valid: 5, num_test: 5}, subwords: {vocab_size: 300}}
model: {dim: 32, ff_dim: 64}
training:
  max_updates: 2
  precision: fp32
  schedule: {name: inverse_sqrt, peak: 0.003, warmup_updates: 2}
"""

# Libraries that end the whole process when they get no memory, before Python sees an error: the
# loader, the C++ runtime, OpenBLAS. Where that happens differs between machines.
ENDED_BY_A_LIBRARY = ("cannot allocate memory", "terminate called", "OpenBLAS")


@pytest.mark.slow
def test_a_training_without_memory_ends_in_one_line(tmp_path: Path) -> None:
    """From the imports to the last update; with more than the last limits it may succeed."""
    (tmp_path / "tiny.yaml").write_text(SETTINGS)
    in_one_line = 0
    for megabytes in (100, 300, 640, 680, 720, 760, 800, 1_000):
        limit = megabytes << 20
        ended = python(
            "-m", "shapeshift", "train", "tiny.yaml", "--run", f"run-{megabytes}", "--no-test",
            cwd=tmp_path,
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )  # fmt: skip
        what = f"{megabytes} MiB, {ended.returncode}: {ended.stderr}"
        assert "Traceback" not in ended.stderr, what
        if ended.returncode == 0 or any(text in ended.stderr for text in ENDED_BY_A_LIBRARY):
            continue
        assert ended.returncode == 1, what
        assert ended.stderr.splitlines()[-1].startswith("shapeshift: error: out of memory"), what
        in_one_line += 1
    assert in_one_line >= 3  # five to seven, depending on the machine
