"""A study's document: what it refuses, and the way to a file and back."""

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.study.document import DocumentTable, Entry, Finding, StudyDocument, summary

TABLE = DocumentTable(
    name="one",
    title="BLEU",
    header=("position", "BLEU"),
    rows=((Entry(text="ape"), Entry(text="0.30", value=0.1 + 0.2)),),
    notes=("a note",),
    figure="a caption",
)
DOCUMENT = StudyDocument(
    paper="toy", study="one", title="Table 1", citation="nobody", profile="tiny", command="x",
    version="0.1", time="2024-01-01T00:00:00+00:00", tables=(TABLE,), unfinished=("shape/2",),
    findings=(Finding(claim="a > b", verdict="supported", measured="3 > 2", paper="2 > 1"),),
    configs={"ab12": "seed: 1\n"},
)  # fmt: skip


def test_a_document_comes_back_with_every_digit_and_a_change_is_noticed(tmp_path):
    path = DOCUMENT.save(tmp_path / "new" / "folder")
    assert StudyDocument.load(path) == DOCUMENT
    text = path.read_text(encoding="utf-8")
    assert "0.30000000000000004" in text
    path.write_text(text.replace("0.30000000000000004", "0.31"), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"study\.json: differs from .*; remove it and run"):
        StudyDocument.load(path)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"title": 3}', b"\xff\xfe"])
def test_a_file_of_something_else_is_one_line(tmp_path, content):
    path = tmp_path / "study.json"
    path.write_bytes(content)
    with pytest.raises(ShapeshiftError, match=r"^.*study\.json: not the document of a study.*$"):
        StudyDocument.load(path)


@pytest.mark.parametrize(
    ("values", "show", "expected"),
    [
        ([36.0, 36.5, 38.0], "mean ± stdev (median)", "36.83 ± 1.04 (median 36.50)"),
        ([36.0, 36.5, 38.0], "mean ± stdev", "36.83 ± 1.04"),
        ([36.5], "mean ± stdev (median)", "36.50"),
    ],
)
def test_seeds_are_shown_as_the_papers_show_theirs(values, show, expected):
    assert summary(values, show).text == expected
