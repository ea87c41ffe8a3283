"""docs/how-attention-runs.md: what it names exists, and attention takes the stops that it lists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from shapeshift import kernels
from shapeshift.attention import BACKENDS
from shapeshift.attention.packing import Packing
from shapeshift.model.attention import Attention
from shapeshift.positions import get
from shapeshift.positions.base import AT_ATTENTION, DESCRIBED_BY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-attention-runs.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", PAGE, flags=re.MULTILINE))
WALKS = [title for title in SECTIONS if " in training on a " in title]
NAMED = r"`([\w.]+)`,\s+in\s+`(src/shapeshift/[\w/]+\.py)`"


def stops(title: str) -> list[tuple[str, str]]:
    """Return the function and the file of each stop of a walk."""
    text = SECTIONS[title]
    found = re.findall(rf"^\d+\. {NAMED}", text, flags=re.MULTILINE)
    assert len(found) == len(re.findall(r"^\d+\. ", text, flags=re.MULTILINE)), "a stop names one"
    return found


def test_there_are_four_walks_of_at_most_eight_stops() -> None:
    kinds = {(kind, device) for kind in ("Shaw", "RoPE") for device in ("CPU", "GPU")}
    assert set(WALKS) == {f"{kind} in training on a {device}" for kind, device in kinds}
    for title in WALKS:
        assert 1 < len(stops(title)) <= 8


@pytest.mark.parametrize(("name", "path"), sorted(set(re.findall(NAMED, PAGE))))
def test_a_function_that_the_page_names_exists(name: str, path: str) -> None:
    if path.endswith("gpu.py"):
        # They import Triton, which is not everywhere.
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
        return
    module = ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    source = inspect.getsourcefile(found)
    assert source is not None
    assert Path(source) == ROOT / path


@pytest.mark.parametrize(("title", "kind"), [(WALKS[0], "shaw"), (WALKS[2], "rotary")])
def test_training_on_a_cpu_takes_these_stops_in_this_order(title: str, kind: str) -> None:
    if not kernels.is_available(torch.float32):
        pytest.skip("compiled kernels")
    assert title.endswith("CPU")
    attention = Attention(64, 4, 0.0, get(kind, num_heads=4, head_dim=16))
    packing = Packing(torch.tensor([0, 1, 2, 3, 4, 5, 8, 9]), (2, 6))
    x = torch.randn(8, 64, requires_grad=True)
    pos = torch.arange(6)[None]
    called: list[tuple[str, str]] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            called.append((code.co_qualname, code.co_filename))

    sys.setprofile(watch)
    try:
        attention(x, x, pos, pos, None, packing=(packing, packing))
    finally:
        sys.setprofile(None)
    rest = iter(called)
    for stop in ((name, str(ROOT / path)) for name, path in stops(title)):
        assert stop in rest, f"{stop} is not called after those before it"


def test_the_tables_have_every_backend_and_every_hook() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", SECTIONS["The backends"], flags=re.MULTILINE)
    assert rows == [*BACKENDS]
    said = re.findall(
        r"^\| (`.*?) \|", SECTIONS["What a kind says, and who reads it"], re.MULTILINE
    )
    names = {name for row in said for name in re.findall(r"`(\w+)`", row)}
    assert names == {"embed", *AT_ATTENTION, *DESCRIBED_BY.values()}


def test_the_matrix_of_backends_does_not_depend_on_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/positions.md would differ on a computer without a compiler or a GPU otherwise."""
    made = runpy.run_path(str(ROOT / "docs" / "generate_positions.py"))["_attention"]
    before = made()
    assert any("`cpu`" in line for line in before)
    assert any("`triton`" in line for line in before)
    for available in (True, False):
        monkeypatch.setattr(kernels, "is_available", lambda dtype, found=available: found)
        monkeypatch.setattr(kernels, "HAS_TRITON", available)
        monkeypatch.setattr(kernels, "compiles_for", lambda device, found=available: found)
        assert made() == before
