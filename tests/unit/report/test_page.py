import shutil
from urllib.parse import unquote

import pytest

from shapeshift.report.collect import collect
from shapeshift.report.page import page

from .reading import read
from .written import HOSTILE, table_item


@pytest.fixture(scope="module")
def text(reproduced):
    return page(collect(reproduced), reproduced)


@pytest.fixture(scope="module")
def tree(text):
    return read(text)


def article(tree, name):
    return tree.one("article", id=f"item-{name}")


def fields(table):
    return [[cell.text for cell in row.children] for row in table.one("tbody").children]


def test_the_findings_stand_first_with_their_counts(tree):
    assert tree.one("dl", class_="counts").text == "supported 1 contradicted 1 inconclusive 2"
    rows = fields(tree.one("section", id="findings").one("table"))
    assert len(rows) == 4
    assert rows[1] == [
        "RPE is slower to train than APE.",
        "✗ contradicted",
        "0.98 times the speed of APE",
        "0.91",
        "SHAPE table2",
        "tiny",
    ]


def test_items_tell_how_far_they_are(tree):
    rows = fields(tree.one("section", id="items").one("table"))
    assert [row[:5] for row in rows[:2]] == [
        [
            "Table 2: BLEU and speed",
            "SHAPE",
            "tiny",
            "1 supported, 1 contradicted, 1 inconclusive",
            "12 of 14",
        ],
        ["Figure 3: BLEU by source length", "SHAPE", "small", "–", "3 of 3"],
    ]
    assert "interpolate, ape, seed 1" in article(tree, "shape-table2-tiny").text


def test_ours_stands_beside_the_papers(tree):
    (beside,) = article(tree, "shape-table2-tiny").all("div", class_="side-by-side")
    ours, paper = (block.one("table") for block in beside.children)
    assert fields(ours)[2] == ["vanilla", "shape", "30.56 ± 0.60", "0.98", "–"]
    assert fields(paper)[2] == ["vanilla", "shape", "30.49", "–", "–"]
    assert "speed: over ape's" in beside.children[0].text
    tested = ours.one("tbody").children[0].all(title="test against the baseline: p = 0.042")
    assert [field.text for field in tested] == ["29.52 ± 0.60"]


def test_figures_are_inside_with_their_table(tree):
    figures = article(tree, "shape-figure3-small").all("div", class_="figure")
    assert [len(figure.all("img")) for figure in figures] == [1, 1]
    (view,) = figures[0].all("details")
    assert fields(view.one("table"))[0] == ["ape", "28.9", "25.4", "21.9", "18.4"]
    assert (
        figures[1].one("a", href=f"#{view.one('table').attributes['aria-labelledby']}") is not None
    )


def test_every_name_is_given_once_and_every_reference_is_met(tree):
    names = [node.attributes["id"] for node in tree.all() if "id" in node.attributes]
    assert len(names) == len(set(names))
    pointed = [
        value.removeprefix("#")
        for node in tree.all()
        for name, value in node.attributes.items()
        if name == "aria-labelledby" or (name == "href" and value.startswith("#"))
    ]
    assert len(pointed) > 20
    assert set(pointed) <= set(names)


def test_files_are_linked_where_they_are(tree, reproduced):
    links = {a.attributes["href"] for a in tree.all("a") if a.attributes["href"][0] != "#"}
    there = {str(path.relative_to(reproduced)) for path in reproduced.rglob("*") if path.is_file()}
    assert {unquote(link) for link in links} == there - {"report.html"}


def test_links_start_at_the_folder_of_the_page(reproduced, tmp_path):
    made = read(page(collect(reproduced), reproduced / "tiny"))
    links = [a.attributes["href"] for a in made.all("a") if a.attributes["href"][0] != "#"]
    assert "shape/table2/table2.csv" in links
    assert "../small/shape/figure3/figure3.svg" in links


def test_the_page_is_whole_without_the_files_and_with_a_damaged_figure(reproduced, tmp_path):
    directory = shutil.copytree(reproduced, tmp_path / "copy")
    path = directory / "small" / "shape" / "figure3" / "figure3.svg"
    path.write_bytes(path.read_bytes()[:2000])

    def figures():
        made = read(page(collect(directory), directory))
        links = {a.attributes["href"] for a in made.all("a") if a.attributes["href"][0] != "#"}
        own = article(made, "shape-figure3-small").all("div", class_="figure")
        return own, {name.rpartition("/")[2] for name in links}

    (first, second), _ = figures()
    assert "figure3.svg is missing or damaged. Three falling lines" in first.text
    assert "open" in first.one("details").attributes
    assert second.all("img")
    for path in directory.rglob("*"):
        if path.is_file() and path.name != "item.json":
            path.unlink()
    (first, _), links = figures()
    assert "figure3.svg is missing or damaged. Three falling lines" in first.text
    assert links == {"item.json"}


def test_no_text_becomes_markup(tree, text):
    hostile = article(tree, "outside-table10-tiny")
    assert not hostile.all("script")
    assert hostile.one("h3").text == f"{HOSTILE} tiny"
    assert len(tree.all("script")) == 1
    assert text.count("<script") == 1


def test_the_same_results_give_the_same_page(reproduced, text, tmp_path):
    copy = shutil.copytree(reproduced, tmp_path / "copy")
    assert page(collect(copy), copy) == text


def test_a_study_has_what_was_expected_and_no_paper(tmp_path):
    document = table_item()
    ours = tuple(table for table in document.tables if table.origin == "ours")
    changes = {"paper": "studies", "citation": "a study of one's own, mine.yaml", "tables": ours}
    study = document.model_copy(update=changes)
    study.save(tmp_path)
    made = read(page(collect(tmp_path), tmp_path))
    assert made.one("p", class_="lead").text.startswith("1 item, made with Shapeshift 0.1.0;")
    own = article(made, "studies-table2-tiny").text
    assert "Expected 0.91" in own
    assert "Ours" not in own
    study.model_copy(update={"findings": (), "item": "other"}).save(tmp_path)
    made = read(page(collect(tmp_path), tmp_path))
    assert not made.all("section", id="findings")
    assert not made.all("a", href="#findings")
