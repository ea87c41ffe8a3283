import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import bleu_by_length

LINE = "the quick brown fox jumps over the lazy dog"


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


def test_missing_lengths_are_refused():
    with pytest.raises(ShapeshiftError, match="1 hypotheses but 0 source lengths"):
        bleu_by_length([LINE], [LINE], [], [10])
