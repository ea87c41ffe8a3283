"""Tables as Markdown, LaTeX and CSV, and the files of an item."""

import csv
import io
import math

from matplotlib.figure import Figure as Drawing

from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, ItemDocument, words
from shapeshift.papers.item import Figure
from shapeshift.papers.write import (
    comma_separated,
    latex,
    markdown,
    write_item,
)

TABLE = DocumentTable(
    name="table2",
    title="BLEU & speed",
    header=("set|up", "BLEU", "50 %"),
    rows=(
        (Entry(text="a_b | c"), Entry(text="30.46 ± 0.10*", value=30.456789012345678),
         Entry(text="–")),
        (Entry(text='say "no", twice'), Entry(text="-1", value=-1e-17), Entry(text="1", value=1.0)),
    ),
    notes=("p < 0.05", "a full stop."),
)  # fmt: skip


def test_a_latex_table_has_a_row_each_and_shows_special_characters():
    signs = DocumentTable(
        name="t", title="t", header=("≥ 10 %", "b"), rows=(words("x^2 & {y}", "30.46 ± 0.10†"),)
    )
    lines = latex(signs).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}"
    rows = [line for line in lines if line.endswith(r"\\")]
    assert rows[0] == r"$\geq$ 10 \% & b \\"
    assert rows[1].endswith(r"2 \& \{y\} & 30.46 ± 0.10† \\")


def test_csv_holds_numbers_in_full_and_words_as_they_are_shown():
    header, *rows = csv.reader(io.StringIO(comma_separated(TABLE), newline=""))
    assert header == ["set|up", "BLEU", "50 %"]
    assert [row[0] for row in rows] == ["a_b | c", 'say "no", twice']
    assert float(rows[0][1]) == 30.456789012345678
    assert math.copysign(1, float(rows[1][1])) == -1
    assert float(rows[1][1]) == -1e-17
    assert rows[0][2] == "–"


def test_csv_has_the_p_values_of_columns_with_tests():
    rows = (
        (Entry(text="ape"), Entry(text="1.00", value=1.0), Entry(text="2", value=2.0)),
        (Entry(text="rpe"), Entry(text="3.00*", value=3.0, p_value=0.004), Entry(text="–")),
    )
    table = DocumentTable(name="t", title="t", header=("position", "BLEU", "speed"), rows=rows)
    assert [*csv.reader(io.StringIO(comma_separated(table), newline=""))] == [
        ["position", "BLEU", "BLEU, p", "speed"],
        ["ape", "1.0", "", "2.0"],
        ["rpe", "3.0", "0.004", "–"],
    ]


def test_markdown_keeps_pipes_inside_their_fields():
    lines = markdown(TABLE).splitlines()
    assert lines[0] == "**BLEU & speed**"
    table = [line for line in lines if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in table}) == 1
    assert r"a_b \| c" in table[2]
    assert lines[-2:] == ["- p < 0.05", "- a full stop."]


def test_an_item_is_all_files_the_document_last(tmp_path):
    about = DocumentFigure(name="figure1", title="a figure", table="table2", alt="nothing")
    document = ItemDocument(
        paper="toy", item="one", title="t", citation="c", scale="tiny", command="x", version="0",
        time="now", tables=(TABLE,), figures=(about,),
    )  # fmt: skip
    paths = write_item(document, [Figure(about, Drawing(figsize=(1, 1)))], tmp_path / "toy")
    names = [path.name for path in paths]
    assert names[-1] == "item.json"
    assert sorted(names[:-1]) == sorted(
        [f"table2.{suffix}" for suffix in ("md", "tex", "csv")]
        + [f"figure1.{suffix}" for suffix in ("svg", "png", "pdf")]
    )
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == sorted(names)
    assert all(path.stat().st_size for path in paths)
