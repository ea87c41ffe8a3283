import pytest

from shapeshift.cli.report import report
from shapeshift.errors import ShapeshiftError

from .written import table_item


def test_it_writes_the_page_where_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    results = table_item().save(tmp_path / "results" / "tiny").parent.parent
    report(results)
    report(results, tmp_path / "pages" / "all.html")
    assert capsys.readouterr().out.splitlines() == [
        "items: 1; claims: 1 supported, 1 contradicted, 1 inconclusive",
        str(results / "report.html"),
        "items: 1; claims: 1 supported, 1 contradicted, 1 inconclusive",
        str(tmp_path / "pages" / "all.html"),
    ]
    assert 'href="tiny/item.json"' in (results / "report.html").read_text("utf-8")
    page = (tmp_path / "pages" / "all.html").read_text("utf-8")
    assert 'href="../results/tiny/item.json"' in page


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    table_item().save(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ShapeshiftError, match=r"report\.html: cannot be written: "):
        report(tmp_path, tmp_path / "file" / "report.html")
