import math

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus, score_sentences

REFERENCES = ["The old gardener waters the roses.", "A small dog sleeps under the long table."]


def test_scores_follow_the_order_asked_for_and_carry_their_own_signature():
    scores = score_corpus(REFERENCES, REFERENCES, ("chrf", "bleu", "chrf++"))
    expected = {
        "chrF2": ("nc:6", "nw:0", "space:no", "version:"),
        "BLEU": ("nrefs:1", "case:mixed", "tok:13a", "smooth:exp", "version:"),
        "chrF2++": ("nw:2",),
    }
    assert [score.name for score in scores] == list(expected)
    for score in scores:
        assert all(part in score.signature for part in expected[score.name])


def test_bleu_details_agree_with_the_definition():
    # 13a makes 7 + 9 reference tokens; the hypotheses lose 2 + 3 of them at the end.
    hypotheses = ["The old gardener waters the", "A small dog sleeps under the"]
    [bleu] = score_corpus(hypotheses, REFERENCES, ["bleu"])
    assert (bleu.details["ref_len"], bleu.details["sys_len"]) == (16, 11)
    assert bleu.details["precisions"] == (100, 100, 100, 100)
    assert bleu.details["bp"] == pytest.approx(math.exp(1 - 16 / 11))
    assert bleu.value == pytest.approx(100 * math.exp(1 - 16 / 11))


@pytest.mark.parametrize(
    ("hypotheses", "references", "metrics", "message"),
    [
        (["a"], ["a", "b"], ["bleu"], "1 hypotheses but 2 references"),
        ([], [], ["bleu"], "nothing to score"),
        (["a"], ["a"], ["blue"], "unknown metric 'blue'.*did you mean 'bleu'"),
    ],
)
def test_what_cannot_be_scored_is_refused(hypotheses, references, metrics, message):
    with pytest.raises(ShapeshiftError, match=message):
        score_corpus(hypotheses, references, metrics)


@pytest.mark.parametrize(
    ("translation", "sentences", "num_misparted"),
    [
        ("A cat. <sep> The dog is here. <sep> It rains.", "A cat.|The dog is here.|It rains.", 0),
        ("A cat. <sep> The dog is here.", "A cat.|The dog is here.|", 1),
        ("", "||", 1),
        ("A cat. <sep> Two. <sep> Three. <sep> Four.", "A cat.|Two.|Three. Four.", 1),
        (" <sep> The dog is here. <sep> ", "|The dog is here.|", 0),
        ("A cat. <sep> <sep>", "A cat.||", 0),
    ],
)
def test_joined_texts_are_scored_by_sentence(translation, sentences, num_misparted):
    references = ["A cat sits. <sep> The dog is here. <sep> It rains.", "The end of it all."]
    hypotheses = [translation, "The end of it all."]
    [bleu] = score_sentences(hypotheses, references, ["bleu", "comet"])
    [expected] = score_corpus(
        [*sentences.split("|"), "The end of it all."],
        ["A cat sits.", "The dog is here.", "It rains.", "The end of it all."],
        ["bleu"],
    )
    assert (bleu.name, bleu.value) == ("BLEU by sentence", expected.value)
    assert bleu.signature == expected.signature
    assert bleu.details["num_sentences"] == 4
    assert bleu.details["num_misparted"] == num_misparted


def test_text_that_is_not_joined_has_no_sentences():
    hypotheses = ["The old gardener <sep> waters the roses.", *REFERENCES[1:]]
    assert score_sentences(hypotheses, REFERENCES) == []
