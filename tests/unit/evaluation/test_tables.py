import pytest

from shapeshift.evaluation.scores import evaluate
from shapeshift.evaluation.tables import Table, length_table, score_table

REFERENCES = [f"Sentence number {n} is here for all of us to read." for n in range(12)]
WORSE = [line.replace("here", "there") for line in REFERENCES]
LENGTHS = [5] * 11 + [50]


@pytest.fixture(scope="module")
def systems():
    return {
        name: evaluate(lines, REFERENCES, lengths=LENGTHS, length_buckets=[10, 20])
        for name, lines in {"good": REFERENCES, "worse": WORSE}.items()
    }


def test_systems_are_columns_and_buckets_are_rows_with_counts(systems):
    table = length_table(systems)
    assert table.header == ("source length", "segments", "good", "worse")
    short, middle, long, whole = table.rows
    assert short[:3] == ("0–9", "11", "100.00")
    assert middle == ("10–19", "0", "–", "–")
    assert long[:3] == ("≥ 20", "1", "100.00†")
    assert whole[:3] == ("all", "12", "100.00")
    assert float(short[3]) < 100


def test_the_mark_is_explained_only_where_it_is_used(systems):
    assert "† fewer than 10 segments" in length_table(systems).notes
    steady = evaluate(REFERENCES, REFERENCES, lengths=[5] * 12, length_buckets=[10])
    [signature] = length_table({"good": steady}).notes
    assert signature.startswith("BLEU: nrefs:1|")


def test_the_score_table_has_a_row_and_a_signature_for_each_metric(systems):
    partial = evaluate(
        WORSE, REFERENCES, metrics=["chrf"], lengths=LENGTHS, length_buckets=[10, 20]
    )
    table = score_table({"good": systems["good"], "part": partial})
    bleu, chrf = table.rows
    assert bleu == ("BLEU", "100.00", "–")  # which the other one lacks
    assert chrf[0] == "chrF2"
    assert chrf[2] != "–"
    assert [note.split(":")[0] for note in table.notes] == ["BLEU", "chrF2"]


def test_markdown_keeps_a_bar_in_a_name_inside_its_cell():
    text = Table(("system", "a|b"), [("BLEU", "1.00")], ["note"]).markdown()
    assert text == (
        "| system | a\\|b |\n"
        "| ------ | ---: |\n"
        "| BLEU   | 1.00 |\n"
        "\n"
        "- note\n"
    )  # fmt: skip
