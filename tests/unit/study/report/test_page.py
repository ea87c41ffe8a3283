import shutil
from urllib.parse import unquote

import pytest
from lxml import html

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.report import report
from shapeshift.study.report.collect import collect
from shapeshift.study.report.page import page

from .written import HOSTILE, table_item, write_reproduced


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A folder of results; not to be changed."""
    return write_reproduced(tmp_path_factory.mktemp("reproduced"))


@pytest.fixture(scope="module")
def text(reproduced):
    return page(collect(reproduced), reproduced)


@pytest.fixture(scope="module")
def tree(text):
    return html.document_fromstring(text)


def parsed(directory, root=None):
    return html.document_fromstring(page(collect(directory), root or directory))


def words(node):
    """All text of an element, without needless space."""
    return " ".join(" ".join(node.xpath(".//text()")).split())


def article(tree, name):
    [found] = tree.xpath(f"//article[@id='study-{name}']")
    return found


def fields(node):
    """The fields of the first table of an element."""
    return [[words(planned) for planned in row] for row in node.xpath("(.//tbody)[1]/tr")]


def links(tree):
    return {unquote(href) for href in tree.xpath("//a/@href") if href[0] != "#"}


def test_findings_and_items_stand_first(tree):
    [counts] = tree.xpath("//dl[@class='counts']")
    assert words(counts) == "supported 1 contradicted 1 inconclusive 2"
    rows = fields(tree.get_element_by_id("findings"))
    assert len(rows) == 4
    assert rows[1] == [
        "RPE is slower to train than APE.", "✗ contradicted", "0.98 times", "0.91", "SHAPE table2",
        "tiny",
    ]  # fmt: skip
    first, second, _ = (row[:5] for row in fields(tree.get_element_by_id("studies")))
    verdicts = "1 supported, 1 contradicted, 1 inconclusive"
    assert first == ["Table 2: BLEU and speed", "SHAPE", "tiny", verdicts, "12 of 14"]
    assert second == ["Figure 3: BLEU by source length", "SHAPE", "small", "–", "3 of 3"]
    table2 = article(tree, "shape-table2-tiny")
    assert "interpolate, ape, seed 1" in words(table2)
    assert {code.text for code in table2.xpath(".//ul[@class='notes']//code")} == {" <sep> "}
    assert words(tree.xpath("//p[@class='lead']")[0]).startswith("3 studies, made with")


def test_ours_stands_beside_the_papers(tree):
    [beside] = article(tree, "shape-table2-tiny").find_class("side-by-side")
    ours, paper = beside
    assert fields(ours)[2] == ["vanilla", "shape", "30.56 ± 0.60", "0.98", "–"]
    assert fields(paper)[2] == ["vanilla", "shape", "30.49", "–", "–"]
    assert "speed: over ape's" in words(ours)
    tested = ours.xpath(".//tr[1]/td[@title='test against the baseline: p = 0.042']")
    assert [words(field) for field in tested] == ["29.52 ± 0.60"]


def test_every_name_is_given_once_and_every_reference_is_met(tree):
    names = tree.xpath("//@id")
    assert len(names) == len(set(names))
    pointed = tree.xpath("//@aria-labelledby")
    pointed += [href[1:] for href in tree.xpath("//a/@href") if href[0] == "#"]
    assert len(pointed) > 20
    assert set(pointed) <= set(names)


def test_files_are_linked_from_the_folder_of_the_page(tree, reproduced):
    there = {str(path.relative_to(reproduced)) for path in reproduced.rglob("*") if path.is_file()}
    assert links(tree) == there
    made = parsed(reproduced, reproduced / "tiny")
    assert {"shape/table2/table2.csv", "../small/shape/figure3/lengths.svg"} <= links(made)


def test_a_figure_is_inside_with_its_table_even_if_its_file_is_damaged(tree, reproduced, tmp_path):
    def figure(tree):
        [found] = article(tree, "shape-figure3-small").find_class("figure")
        return found

    assert len(figure(tree).xpath(".//img")) == 1
    assert fields(figure(tree))[0] == ["ape", "28.9", "25.4", "21.9"]
    directory = shutil.copytree(reproduced, tmp_path / "copy")
    path = directory / "small" / "shape" / "figure3" / "lengths.svg"
    path.write_bytes(path.read_bytes()[:2000])
    made = parsed(directory)
    assert "lengths.svg is missing or damaged" in words(figure(made))
    assert figure(made).xpath(".//details[@open]")
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "study.json":
            path.unlink()
    made = parsed(directory)
    assert "lengths.svg is missing or damaged" in words(figure(made))
    assert {link.rpartition("/")[2] for link in links(made)} == {"study.json"}


def test_no_text_becomes_markup_and_the_same_results_give_the_same_page(tree, text, reproduced):
    hostile = article(tree, "outside-table10-tiny")
    assert not hostile.xpath(".//script")
    assert words(hostile.xpath(".//h3")[0]) == f"{HOSTILE} tiny"
    assert text.count("<script") == 1
    assert page(collect(reproduced), reproduced) == text


def test_a_study_has_what_was_expected_and_no_paper(tmp_path):
    document = table_item()
    changes = {"paper": "studies", "tables": document.tables[:1]}
    document.model_copy(update=changes).save(tmp_path)
    for name in ("same", "again"):
        other = changes | {"study": "other", "findings": ()}
        document.model_copy(update=other).save(tmp_path / name)
    made = parsed(tmp_path)
    own = words(article(made, "studies-table2-tiny"))
    assert "Expected 0.91" in own
    assert "Ours" not in own
    assert len({*made.xpath("//article/@id")}) == 3
    assert "Findings" not in words(article(made, "studies-other-tiny"))


def test_the_head_says_that_too_few_runs_give_no_verdict(tmp_path):
    document = table_item()
    few = document.findings[0].model_copy(update={"verdict": "two runs"})
    document.model_copy(update={"findings": (few,)}).save(tmp_path)
    made = parsed(tmp_path)
    assert words(made.xpath("//p[@class='lead']")[0]).startswith("1 study, made with")
    assert words(made.xpath("//dl[@class='counts']")[0]) == "no verdict from two runs 1"


def test_papers_items_and_profiles_are_in_order(tmp_path):
    places = [
        ("zebra", "table10", "tiny"), ("shape", "unknown", "tiny"), ("shape", "table2", "paper"),
        ("shape", "table2", "huge"), ("shape", "table2", "tiny"), ("adder", "table1", "tiny"),
    ]  # fmt: skip
    for number, (paper, study, profile) in enumerate(places):
        own = {"paper": paper, "study": study, "profile": profile, "citation": f"of {paper}"}
        table_item().model_copy(update=own).save(tmp_path / str(number))
    papers = collect(tmp_path)
    assert [(paper.name, paper.title, paper.citation) for paper in papers] == [
        ("shape", "SHAPE", "of shape"), ("adder", "Adder", "of adder"),
        ("zebra", "Zebra", "of zebra"),
    ]  # fmt: skip
    studies = [(study.document.study, study.document.profile) for study in papers[0].studies]
    assert studies == [
        ("table2", "tiny"), ("table2", "paper"), ("table2", "huge"), ("unknown", "tiny")
    ]  # fmt: skip
    assert papers[0].studies[0].directory == tmp_path / "4"


def test_a_folder_without_items_and_a_foreign_document_are_named(tmp_path):
    with pytest.raises(ShapeshiftError, match="run `shapeshift reproduce PAPER` first"):
        collect(tmp_path)
    with pytest.raises(ShapeshiftError, match="nowhere: no such folder"):
        collect(tmp_path / "nowhere")
    (tmp_path / "study.json").write_text('{"name": "someone else\'s"}')
    with pytest.raises(ShapeshiftError, match=r"study\.json: not the document of a study"):
        collect(tmp_path)


def test_the_command_writes_the_page_where_it_is_told(tmp_path, capsys):
    results = table_item().save(tmp_path / "results" / "tiny").parent.parent
    report(results)
    page = tmp_path / "pages" / "all.html"
    report(results, page)
    counts = "studies: 1; claims: 1 supported, 1 contradicted, 1 inconclusive"
    shown = [counts, str(results / "report.html"), counts, str(page)]
    assert capsys.readouterr().out.splitlines() == shown
    assert 'href="tiny/study.json"' in (results / "report.html").read_text("utf-8")
    assert 'href="../results/tiny/study.json"' in page.read_text("utf-8")
    with pytest.raises(ShapeshiftError, match=r"report\.html: cannot be written: "):
        report(results, page / "report.html")
