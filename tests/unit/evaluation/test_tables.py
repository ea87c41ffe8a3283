from shapeshift.evaluation.scores import evaluate
from shapeshift.evaluation.tables import Table, score_tables

LINES = [f"Sentence number {n} is here for all of us to read." for n in range(12)]


def test_buckets_are_rows_with_counts_and_a_mark_that_is_explained_where_it_is_used():
    scores = evaluate(LINES, LINES, lengths=[5] * 11 + [50], length_buckets=[10, 20])
    overall, by_length = score_tables("good", scores)
    assert overall.rows == [("BLEU", "100.00"), ("chrF2", "100.00")]
    assert overall.notes == ()
    assert by_length.header == ("source length", "segments", "good")
    assert by_length.rows == [
        ("0–9", "11", "100.00"), ("10–19", "0", "–"), ("≥ 20", "1", "100.00†"),
        ("all", "12", "100.00"),
    ]  # fmt: skip
    assert [note.split(":")[0] for note in by_length.notes[:2]] == ["BLEU", "chrF2"]
    assert by_length.notes[2:] == ["† fewer than 10 segments"]
    [table] = score_tables("good", evaluate(LINES, LINES))
    assert len(table.notes) == 2


def test_markdown_keeps_a_bar_in_a_name_inside_its_cell():
    text = Table(("system", "a|b"), [("BLEU", "1.00")], ["note"]).markdown()
    assert text == (
        "| system | a\\|b |\n"
        "| ------ | ---: |\n"
        "| BLEU   | 1.00 |\n"
        "\n"
        "- note\n"
    )  # fmt: skip
