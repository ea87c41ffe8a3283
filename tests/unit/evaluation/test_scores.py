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


def test_the_hash_is_of_the_utf8_file_whose_last_line_is_ended():
    data = "Größe\n\nmit\u2028Trenner\n".encode()
    assert sha256_lines(["Größe", "", "mit\u2028Trenner"]) == hashlib.sha256(data).hexdigest()


def test_no_lines_and_one_empty_line_differ():
    assert sha256_lines([]) == hashlib.sha256(b"").hexdigest()
    assert sha256_lines([""]) == hashlib.sha256(b"\n").hexdigest()


def test_the_document_says_what_was_scored(tmp_path):
    path = tmp_path / "made" / "scores.json"
    evaluate(HYPOTHESES, REFERENCES).save(path)
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["version"] == __version__
    assert document["num_segments"] == 2
    assert document["hypotheses_sha256"] == sha256_lines(HYPOTHESES)
    assert document["references_sha256"] == sha256_lines(REFERENCES)
    assert [score["name"] for score in document["scores"]] == ["BLEU", "chrF2"]
    assert all(score["signature"] for score in document["scores"])
    assert document["by_length"] is None


def test_saving_and_loading_keep_everything(tmp_path):
    scores = evaluate(HYPOTHESES, REFERENCES, lengths=[6, 4], length_buckets=[5, 7])
    scores.save(tmp_path / "scores.json")
    assert Scores.load(tmp_path / "scores.json") == scores
    assert [bucket.num_segments for bucket in scores.by_length] == [1, 1, 0]


def test_saving_replaces_the_old_document_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text("old")
    evaluate(HYPOTHESES, REFERENCES).save(path)
    assert Scores.load(path).num_segments == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_save_leaves_no_draft(tmp_path):
    (tmp_path / "scores.json").mkdir()
    with pytest.raises(ShapeshiftError, match=r"scores\.json: cannot be written"):
        evaluate(HYPOTHESES, REFERENCES).save(tmp_path / "scores.json")
    assert [path.name for path in tmp_path.iterdir()] == ["scores.json"]


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "1"}', '{"scores": [], "extra": 1}'])
def test_what_is_no_scores_document_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "scores.json"
    path.write_text(text)
    with pytest.raises(ShapeshiftError, match="not a scores document") as raised:
        Scores.load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_a_missing_document_is_named(tmp_path):
    with pytest.raises(ShapeshiftError, match=r"none\.json: cannot read"):
        Scores.load(tmp_path / "none.json")


def test_find_returns_the_named_score_or_none():
    scores = evaluate(HYPOTHESES, HYPOTHESES, metrics=["bleu"])
    assert scores.find("BLEU").value == pytest.approx(100)
    assert scores.find("chrF2") is None


def with_signature(scores, signature):
    [score] = scores.scores
    return scores.model_copy(
        update={"scores": (score.model_copy(update={"signature": signature}),)}
    )


def test_only_like_is_compared_with_like():
    ours = evaluate(HYPOTHESES, REFERENCES, metrics=["bleu"], lengths=[6, 4], length_buckets=[5])
    check_comparable({"a": ours, "b": ours})
    others = {
        "different references": evaluate(
            REFERENCES, HYPOTHESES, lengths=[6, 4], length_buckets=[5]
        ),
        "different BLEU signatures": with_signature(ours, "tok:intl"),
        "different length buckets": evaluate(
            HYPOTHESES, REFERENCES, lengths=[6, 4], length_buckets=[6]
        ),
    }
    for message, theirs in others.items():
        with pytest.raises(ShapeshiftError, match=f"'a' and 'b'.*{message}"):
            check_comparable({"a": ours, "b": theirs})


def test_length_columns_need_lengths():
    with pytest.raises(ShapeshiftError, match="'a' has no BLEU by length"):
        length_columns({"a": evaluate(HYPOTHESES, REFERENCES)})
    with pytest.raises(ShapeshiftError, match="at least one system"):
        length_columns({})
