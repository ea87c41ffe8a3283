"""Tables as Markdown, LaTeX and CSV, and the files of a study."""

import csv
import io

from matplotlib.figure import Figure

from shapeshift.study.document import DocumentTable, Entry, words
from shapeshift.study.write import comma_separated, latex, markdown, write_study

from .conftest import document

TABLE = DocumentTable(
    name="table2",
    title="BLEU & speed",
    header=("set|up", "BLEU", "50 %"),
    rows=(
        (Entry(text="a_b | c"),
         Entry(text="30.46 ± 0.10*", value=30.456789012345678, p_value=0.004), Entry(text="–")),
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


def test_csv_holds_numbers_in_full_words_as_they_are_shown_and_p_values():
    header, *rows = csv.reader(io.StringIO(comma_separated(TABLE), newline=""))
    assert header == ["set|up", "BLEU", "BLEU, p", "50 %"]
    assert [row[0] for row in rows] == ["a_b | c", 'say "no", twice']
    assert [float(row[1]) for row in rows] == [30.456789012345678, -1e-17]
    assert [row[2:] for row in rows] == [["0.004", "–"], ["", "1.0"]]


def test_an_item_is_all_files_the_document_last(tmp_path):
    drawn = TABLE.model_copy(update={"figure": "a figure", "drawing": Figure(figsize=(1, 1))})
    paths = write_study(document([drawn]), tmp_path / "toy")
    names = [path.name for path in paths]
    assert names[-1] == "study.json"
    kinds = ("csv", "md", "pdf", "png", "svg", "tex")
    assert sorted(names[:-1]) == [f"table2.{kind}" for kind in kinds]
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == sorted(names)
    assert all(path.stat().st_size for path in paths)


def test_overrides_stand_in_every_file_of_our_table_and_in_none_of_the_papers():
    """Else a table of fewer updates passes for one of the paper's."""
    drawn = TABLE.model_copy(update={"figure": "a figure"})
    overrides = ("training.max_updates=100", "position=ape")
    given = " ".join(overrides)
    made = drawn.with_overrides(overrides)
    assert made.figure == f"a figure (runs with {given})"
    assert f"- runs with {given}\n" in markdown(made)
    assert r"\par{\footnotesize runs with training.max\_updates=100 position=ape\par}" in latex(
        made
    )
    header, *rows = csv.reader(io.StringIO(comma_separated(made), newline=""))
    assert (header[-1], {row[-1] for row in rows}) == ("overrides", {given})
    assert drawn.with_overrides(()) == drawn
    papers = drawn.model_copy(update={"origin": "paper"})
    assert papers.with_overrides(overrides) == papers
