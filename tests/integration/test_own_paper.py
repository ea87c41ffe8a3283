"""A paper of one's own: the folder that docs/tutorials/own-paper.md shows, in one command."""

from __future__ import annotations

import re
from pathlib import Path

from shapeshift.study.document import StudyDocument

from ..unit.cli.running import shapeshift
from .conftest import MINE

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "own-paper.md"


def write_paper(folder: Path) -> None:
    """Write the files of the page, with a base of a second for its profile `tiny`."""
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"`(relative/\w+\.yaml)`.*?^```yaml\n(.*?)^```", text, re.DOTALL | re.M)
    assert [name for name, _ in named] == ["relative/paper.yaml", "relative/table1.yaml"]
    (folder / "relative").mkdir()
    for name, content in named:
        (folder / name).write_text(content.replace("base: short", "base: mine.yaml"), "utf-8")
    (folder / "relative" / "mine.yaml").write_text(MINE, encoding="utf-8")


def test_one_command_makes_its_table_next_to_the_published_one(tmp_path: Path) -> None:
    write_paper(tmp_path)
    command = ("reproduce", "relative", "--profile", "tiny")
    status, _, err = shapeshift(tmp_path, *command, "--dry-run")
    assert status == 0, err
    assert not (tmp_path / "reproduced" / "tiny").exists()
    status, _, err = shapeshift(tmp_path, *command, "--jobs", "0")
    assert status == 0, err
    study = tmp_path / "reproduced" / "tiny" / "relative" / "table1"
    document = StudyDocument.load(study / "study.json")
    ours, published = document.tables
    assert [row[0].text for row in ours.rows] == ["absolute", "relative"]
    assert all(row[1].value is not None for row in ours.rows)
    assert [row[1].value for row in published.rows] == [26.5, 26.8]
    (finding,) = document.findings
    assert finding.verdict == "not tested in this profile"
    assert (study / "table1.csv").is_file()
    assert "once more" in (tmp_path / "reproduced" / "report.html").read_text(encoding="utf-8")
