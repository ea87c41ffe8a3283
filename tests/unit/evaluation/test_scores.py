import hashlib
import json

import pytest

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.scores import (
    Scores,
    check_comparable,
    evaluate,
    length_columns,
    sha256_lines,
)

HYPOTHESES = ["Der alte Gärtner gießt die Rosen.", "Ein kleiner Hund schläft."]
REFERENCES = ["Der alte Gärtner gießt die roten Rosen.", "Ein kleiner Hund schläft."]


@pytest.mark.parametrize(
    ("lines", "data"),
    [
        (["Größe", "", "mit\u2028Trenner"], "Größe\n\nmit\u2028Trenner\n"),
        ([], ""),
        ([""], "\n"),
    ],
)
def test_the_hash_is_of_the_utf8_file_whose_last_line_is_ended(lines, data):
    assert sha256_lines(lines) == hashlib.sha256(data.encode()).hexdigest()


def test_the_document_says_what_was_scored():
    document = json.loads(evaluate(HYPOTHESES, REFERENCES).document())
    assert document["version"] == __version__
    assert document["num_segments"] == 2
    assert document["hypotheses_sha256"] == sha256_lines(HYPOTHESES)
    assert document["references_sha256"] == sha256_lines(REFERENCES)
    assert [score["name"] for score in document["scores"]] == ["BLEU", "chrF2"]
    assert all(score["signature"] for score in document["scores"])
    assert document["by_length"] is None


def test_a_document_is_read_back_whole(tmp_path):
    scores = evaluate(HYPOTHESES, REFERENCES, lengths=[6, 4], length_buckets=[5, 7])
    (tmp_path / "scores.json").write_text(scores.document())
    assert Scores.load(tmp_path / "scores.json") == scores
    assert [bucket.num_segments for bucket in scores.by_length] == [1, 1, 0]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "1"}', '{"scores": [], "extra": 1}'])
def test_another_document_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(ShapeshiftError, match="not a scores document") as raised:
        Scores.load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_a_missing_document_is_named(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"none\.json: cannot read"):
        Scores.load(tmp_path / "none.json")


def test_only_scores_of_one_test_set_with_one_signature_are_compared():
    ours = evaluate(HYPOTHESES, REFERENCES, metrics=["bleu"], lengths=[6, 4], length_buckets=[5])
    check_comparable({"a": ours, "b": ours})
    [bleu] = ours.scores
    others = {
        "different references": {"references_sha256": sha256_lines(HYPOTHESES)},
        "different BLEU signatures": {
            "scores": (bleu.model_copy(update={"signature": "tok:intl"}),)
        },
        "different length buckets": {"by_length": ours.by_length[:1]},
    }
    for message, change in others.items():
        with pytest.raises(ShapeshiftError, match=f"'a' and 'b'.*{message}"):
            check_comparable({"a": ours, "b": ours.model_copy(update=change)})


def test_length_columns_need_lengths():
    with pytest.raises(ShapeshiftError, match="'a' has no BLEU by length"):
        length_columns({"a": evaluate(HYPOTHESES, REFERENCES)})
    with pytest.raises(ShapeshiftError, match="at least one system"):
        length_columns({})
