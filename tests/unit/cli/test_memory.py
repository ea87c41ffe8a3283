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


@pytest.mark.parametrize("megabytes", [100, 300, 640, 720, 800, 1_000])
def test_a_training_without_memory_ends_in_one_line(tmp_path: Path, megabytes: int) -> None:
    """From the imports to the last update; with more than the last limits it may succeed."""
    (tmp_path / "tiny.yaml").write_text(SETTINGS)
    limit = megabytes << 20
    ended = python(
        "-m", "shapeshift", "train", "tiny.yaml", "--run", "run", "--no-test",
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )  # fmt: skip
    assert "Traceback" not in ended.stderr
    if ended.returncode not in (0, 127):  # 127: the loader has ended the process
        assert ended.returncode == 1
        last = ended.stderr.splitlines()[-1]
        assert last.startswith("shapeshift: error: out of memory")
