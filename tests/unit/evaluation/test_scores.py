import hashlib

import pytest

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import Scores, bleu_by_length, evaluate
from shapeshift.evaluation.tables import Table, score_tables

HYPOTHESES = ["Der alte Gärtner gießt die Rosen.", "Ein kleiner Hund schläft."]
REFERENCES = ["Der alte Gärtner gießt die roten Rosen.", "Ein kleiner Hund schläft."]
LINE = "the quick brown fox jumps over the lazy dog"
LINES = [f"Sentence number {n} is here for all of us to read." for n in range(12)]


def test_a_document_says_what_was_scored_and_is_read_back_whole(tmp_path):
    scores = evaluate(HYPOTHESES, REFERENCES, lengths=[6, 4], length_buckets=[5, 7])
    assert (scores.version, scores.num_segments) == (__version__, 2)
    file = "".join(f"{line}\n" for line in REFERENCES).encode()
    assert scores.references_sha256 == hashlib.sha256(file).hexdigest()
    assert [score.name for score in scores.scores] == ["BLEU", "chrF2"]
    assert [bucket.num_segments for bucket in scores.by_length] == [1, 1, 0]
    (tmp_path / "scores.json").write_text(scores.document())
    assert Scores.load(tmp_path / "scores.json") == scores


@pytest.mark.parametrize("text", [None, "{", '{"version": "1"}'])
def test_another_document_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "scores.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ShapeshiftError, match=r"scores\.json: no scores can be read") as raised:
        Scores.load(path)
    assert "\n" not in str(raised.value)


def test_each_bucket_holds_the_corpus_bleu_of_its_own_segments():
    hypotheses = ["good " + LINE, "x y z", LINE, LINE + " cat"]
    references = [LINE, LINE, LINE, LINE]
    short, long = bleu_by_length(hypotheses, references, [3, 30, 3, 30], [10])
    [even] = score_corpus(hypotheses[0::2], references[0::2], ["bleu"])
    [odd] = score_corpus(hypotheses[1::2], references[1::2], ["bleu"])
    assert short.score == even
    assert long.score == odd
    assert short.bleu > long.bleu


def test_an_empty_bucket_has_no_score():
    buckets = bleu_by_length([LINE, LINE], [LINE, LINE], [1, 9], [4, 5, 8])
    assert [bucket.label for bucket in buckets] == ["0–3", "4", "5–7", "≥ 8"]
    first, middle, _, last = buckets
    assert middle.score is None
    assert middle.bleu is None
    assert not middle.is_small
    assert first.is_small
    assert first.bleu == last.bleu == pytest.approx(100)


def test_bleu_of_references_without_four_words_is_no_score():
    """sacreBLEU gives a perfect translation 0."""
    lines, lengths = [*["za zb", "za", "zc zd ze"] * 4, LINE], [*[2, 1, 3] * 4, 9]
    short, long = bleu_by_length(lines, lines, lengths, [4])
    assert (short.num_segments, short.score, long.bleu) == (12, None, pytest.approx(100))
    assert bleu_by_length(lines, lines, lengths, [4], metric="chrf")[0].bleu == pytest.approx(100)
    four = ["za, zb.", *lines[:12]]  # of three words and two signs
    assert bleu_by_length(four, four, [2] * 13, [4])[0].bleu == pytest.approx(100)
    _, table = score_tables("good", evaluate(lines, lines, lengths=lengths, length_buckets=[4]))
    assert table.rows[0] == ("0–3", "12", "–")
    assert "– no BLEU: no reference has four words" in table.notes


def test_missing_lengths_are_refused():
    with pytest.raises(ShapeshiftError, match="1 hypotheses but 0 source lengths"):
        bleu_by_length([LINE], [LINE], [], [10])


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
    short = evaluate(LINES, LINES, lengths=[5] * 12, length_buckets=[10, 20])
    assert [row[0] for row in score_tables("good", short)[1].rows] == ["0–9", "all"]
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
