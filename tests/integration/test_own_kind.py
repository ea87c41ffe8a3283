"""docs/tutorials/own-kind.md: its snippets run, and the kind passes the contract tests."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from shapeshift.positions import KINDS

from ..unit.cli.running import ENVIRONMENT, python  # noqa: TID252 (`tests` is no package)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "own-kind.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_every_snippet_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KINDS, "root_distance", raising=False)  # which the first one adds
    exec("\n".join(SNIPPETS), {"__name__": "root_distance"})
    KINDS.pop("root_distance")


def test_the_kind_passes_the_contract_tests(tmp_path: Path) -> None:
    (tmp_path / "root_distance.py").write_text(SNIPPETS[0], encoding="utf-8")
    (command,) = re.findall(r"^PYTHONPATH=\. \.venv/bin/python (.*)$", PAGE, flags=re.MULTILINE)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ended = python(*command.split(), cwd=ROOT, env=ENVIRONMENT | {"PYTHONPATH": path})
    assert ended.returncode == 0, ended.stdout
    assert int(re.findall(r"(\d+) passed", ended.stdout)[0]) > 50
