import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.papers.document import Finding
from shapeshift.report.collect import collect, count

from .written import table_item


def test_papers_items_and_scales_are_in_order(tmp_path):
    document = table_item()
    places = [
        ("zebra", "table10", "tiny"),
        ("zebra", "table9", "tiny"),
        ("shape", "unknown", "tiny"),
        ("shape", "table2", "paper"),
        ("shape", "table2", "huge"),
        ("shape", "table2", "tiny"),
        ("adder", "table1", "tiny"),
    ]
    for number, (paper, item, scale) in enumerate(places):
        own = {"paper": paper, "item": item, "scale": scale, "citation": f"of {paper}"}
        document.model_copy(update=own).save(tmp_path / str(number))
    papers = collect(tmp_path)
    assert [(paper.name, paper.title) for paper in papers] == [
        ("shape", "SHAPE"),
        ("adder", "Adder"),
        ("zebra", "Zebra"),
    ]
    assert [paper.citation for paper in papers] == ["of shape", "of adder", "of zebra"]
    shape, *_ = papers
    assert [(item.document.item, item.document.scale) for item in shape.items] == [
        ("table2", "tiny"),
        ("table2", "paper"),
        ("table2", "huge"),
        ("unknown", "tiny"),
    ]
    assert shape.items[0].directory == tmp_path / "5"


def test_the_same_item_twice_has_two_places_on_the_page(tmp_path):
    for name in "ab":
        table_item().save(tmp_path / name)
    (paper,) = collect(tmp_path)
    assert len({item.anchor for item in paper.items}) == 2


def test_verdicts_are_counted_in_their_order():
    found = [
        Finding(claim="", verdict=verdict, measured="", paper="")
        for verdict in ("inconclusive", "supported", "inconclusive")
    ]
    assert list(count(found).items()) == [("supported", 1), ("inconclusive", 2)]


def test_an_empty_folder_says_what_to_run(tmp_path):
    with pytest.raises(ShapeshiftError, match="run `shapeshift reproduce PAPER` first"):
        collect(tmp_path)
    with pytest.raises(ShapeshiftError, match="nowhere: no such folder"):
        collect(tmp_path / "nowhere")


def test_a_foreign_document_is_named(tmp_path):
    table_item().save(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "item.json").write_text('{"name": "someone else\'s"}')
    with pytest.raises(ShapeshiftError, match=r"bad/item\.json: ") as error:
        collect(tmp_path)
    assert "\n" not in str(error.value)
