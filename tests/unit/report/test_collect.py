import pytest

from shapeshift.cli.report import report
from shapeshift.errors import ShapeshiftError
from shapeshift.report.collect import collect

from .written import table_item


def test_papers_items_and_scales_are_in_order(tmp_path):
    places = [
        ("zebra", "table10", "tiny"),
        ("shape", "unknown", "tiny"),
        ("shape", "table2", "paper"),
        ("shape", "table2", "huge"),
        ("shape", "table2", "tiny"),
        ("adder", "table1", "tiny"),
    ]
    for number, (paper, item, scale) in enumerate(places):
        own = {"paper": paper, "item": item, "scale": scale, "citation": f"of {paper}"}
        table_item().model_copy(update=own).save(tmp_path / str(number))
    papers = collect(tmp_path)
    titles = [(paper.name, paper.title, paper.citation) for paper in papers]
    assert titles == [
        ("shape", "SHAPE", "of shape"),
        ("adder", "Adder", "of adder"),
        ("zebra", "Zebra", "of zebra"),
    ]
    items = [(item.document.item, item.document.scale) for item in papers[0].items]
    assert items == [
        ("table2", "tiny"), ("table2", "paper"), ("table2", "huge"), ("unknown", "tiny")
    ]  # fmt: skip
    assert papers[0].items[0].directory == tmp_path / "4"


def test_a_folder_without_items_and_a_foreign_document_are_named(tmp_path):
    with pytest.raises(ShapeshiftError, match="run `shapeshift reproduce PAPER` first"):
        collect(tmp_path)
    with pytest.raises(ShapeshiftError, match="nowhere: no such folder"):
        collect(tmp_path / "nowhere")
    (tmp_path / "item.json").write_text('{"name": "someone else\'s"}')
    with pytest.raises(ShapeshiftError, match=r"item\.json: not the document of an item"):
        collect(tmp_path)


def test_the_command_writes_the_page_where_it_is_told(tmp_path, capsys):
    results = table_item().save(tmp_path / "results" / "tiny").parent.parent
    report(results)
    page = tmp_path / "pages" / "all.html"
    report(results, page)
    counts = "items: 1; claims: 1 supported, 1 contradicted, 1 inconclusive"
    shown = [counts, str(results / "report.html"), counts, str(page)]
    assert capsys.readouterr().out.splitlines() == shown
    assert 'href="tiny/item.json"' in (results / "report.html").read_text("utf-8")
    assert 'href="../results/tiny/item.json"' in page.read_text("utf-8")
    with pytest.raises(ShapeshiftError, match=r"report\.html: cannot be written: "):
        report(results, page / "report.html")
