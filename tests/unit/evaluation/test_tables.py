from shapeshift.evaluation.scores import evaluate
from shapeshift.evaluation.tables import Table, length_table, score_table

LINES = [f"Sentence number {n} is here for all of us to read." for n in range(12)]


def test_buckets_are_rows_with_counts_and_a_mark_that_is_explained_where_it_is_used():
    scores = evaluate(LINES, LINES, lengths=[5] * 11 + [50], length_buckets=[10, 20])
    table = length_table("good", scores)
    assert table.header == ("source length", "segments", "good")
    assert table.rows == [
        ("0–9", "11", "100.00"), ("10–19", "0", "–"), ("≥ 20", "1", "100.00†"),
        ("all", "12", "100.00"),
    ]  # fmt: skip
    assert table.notes[0].startswith("BLEU: nrefs:1|")
    assert table.notes[1:] == ["† fewer than 10 segments"]
    steady = evaluate(LINES, LINES, lengths=[5] * 12, length_buckets=[10])
    assert len(length_table("good", steady).notes) == 1


def test_the_score_table_has_a_row_and_a_signature_for_each_metric():
    table = score_table("good", evaluate(LINES, LINES))
    assert table.rows == [("BLEU", "100.00"), ("chrF2", "100.00")]
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
