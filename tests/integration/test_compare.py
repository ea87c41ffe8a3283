"""`shapeshift compare`, small: positions from the built-in grammar to tables and a figure."""

import pytest

from shapeshift.study.document import StudyDocument

from ..unit.cli.running import shapeshift
from .conftest import MINE

SHAPE = "shape-7 position=shape position.position_ids.max_offset=7"
POSITIONS = ("--position", "ape,rpe", "--position", SHAPE)


def compare(folder, *arguments):
    status, out, err = shapeshift(folder, "compare", "mine.yaml", *arguments, "--jobs", "0")
    assert status == 0, err
    return out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the positions have been compared."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "mine.yaml").write_text(MINE, encoding="utf-8")
    compare(folder, *POSITIONS)
    return folder


def test_positions_stand_side_by_side_with_unseen_lengths_marked(folder):
    study = folder / "compared" / "mine" / "positions" / "comparison"
    overall, by_length = StudyDocument.load(study / "study.json").tables
    assert [row[0].text for row in overall.rows] == ["ape", "rpe", "shape-7"]
    assert all(entry.value is not None for row in overall.rows[1:] for entry in row[1:])
    assert by_length.header == ("source length", "segments", "ape", "rpe", "shape-7")
    assert [row[0].text for row in by_length.rows] == ["0–20", "21–40‡", "≥ 41‡"]
    assert any("unseen" in note or "in training" in note for note in by_length.notes)
    assert (study / "bleu-by-length.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_runs_twice_and_another_system_joins(folder):
    logs = {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}
    assert len(logs) == 3
    compare(folder, "--position", "rpe,ape,nope")
    assert logs.items() <= {x: x.stat().st_mtime_ns for x in folder.rglob("log.jsonl")}.items()
    document = StudyDocument.load(folder / "compared/mine/positions/comparison/study.json")
    assert [row[0].text for row in document.tables[0].rows] == ["rpe", "ape", "nope"]
    assert len([*folder.rglob("log.jsonl")]) == 4


def test_two_names_of_one_run_are_refused(folder):
    same = ("--position", "ape", "--position", "same position=ape position.name=same")
    status, _, err = shapeshift(folder, "compare", "mine.yaml", *same, "--directory", "of same")
    assert status == 1
    assert "'ape' and 'same' are two names of the same run; leave one out" in err
    assert not (folder / "of same").exists()
