"""An item's document: what it refuses, and the way to a file and back."""

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.results import Row
from shapeshift.papers.document import (
    DocumentFigure,
    DocumentTable,
    Entry,
    Finding,
    ItemDocument,
)

ROW = Row(
    grid="mine", scale="tiny", cell="ab12", axes={"position": "ape"}, seed=1, measure="score-test",
    checkpoint="c", command="shapeshift x", version="0.1", time="2024-01-01", metric="BLEU",
    value=0.1 + 0.2, dataset="test", signature="nrefs:1|tok:13a",
)  # fmt: skip
TABLE = DocumentTable(
    name="one",
    title="BLEU",
    header=("position", "BLEU"),
    rows=((Entry(text="ape"), Entry(text="0.30", value=0.1 + 0.2, rows=(0,))),),
    notes=("a note",),
)
HEAD = {
    "paper": "toy", "item": "one", "title": "Table 1", "citation": "nobody", "scale": "tiny",
    "command": "shapeshift reproduce toy", "version": "0.1", "time": "2024-01-01T00:00:00+00:00",
}  # fmt: skip


def make(**changes):
    fields = HEAD | {
        "tables": (TABLE,),
        "figures": (DocumentFigure(name="f", title="a figure", table="one", alt="two bars"),),
        "findings": (Finding(claim="a > b", verdict="supported", measured="3 > 2", paper="2 > 1"),),
        "measurements": (ROW,),
        "configs": {"ab12": "seed: 1\n"},
        "unfinished": ("shape/2",),
    }
    return ItemDocument(**(fields | changes))


def test_a_document_comes_back_from_its_file_as_it_was(tmp_path):
    document = make()
    path = document.save(tmp_path / "new" / "folder")
    assert path.name == "item.json"
    again = ItemDocument.load(path)
    assert again == document
    assert again.tables[0].rows[0][1].value == 0.1 + 0.2  # every digit


def test_a_number_that_has_changed_is_noticed(tmp_path):
    path = make().save(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "0.30000000000000004" in text
    path.write_text(text.replace("0.30000000000000004", "0.31"), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"item\.json: differs from .*; remove it and run"):
        ItemDocument.load(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"title": 3}', b"\xff\xfe", b"null"])
def test_a_file_of_something_else_is_one_line(tmp_path, content):
    path = tmp_path / "item.json"
    path.write_bytes(content)
    with pytest.raises(ShapeshiftError) as caught:
        ItemDocument.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: not the document of an item")
    assert "\n" not in message
