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
    with pytest.raises(ShapeshiftError, match=r"scores\.json: cannot read"):
        Scores.load(path)
    path.write_text(text)
    with pytest.raises(ShapeshiftError, match=r"scores\.json: not a scores document") as raised:
        Scores.load(path)
    assert "\n" not in str(raised.value)


def test_only_scores_of_one_test_set_with_one_signature_are_compared():
    given = {"lengths": [6, 4], "length_buckets": [5]}
    ours = evaluate(HYPOTHESES, REFERENCES, **given)
    theirs = evaluate(HYPOTHESES, REFERENCES, tokenizer="zh", **given)
    check_comparable({"a": ours, "b": ours})
    others = {
        "different references": {"references_sha256": sha256_lines(HYPOTHESES)},
        r"different BLEU signatures .*tok:13a.*tok:zh": {"scores": theirs.scores},
        "different BLEU signatures": {"by_length": theirs.by_length},
        "different length buckets": {"by_length": ours.by_length[:1]},
    }
    for message, change in others.items():
        other = ours.model_copy(update=change)
        if "by_length" in change:  # where BLEU is wanted by length alone
            ours, other = (x.model_copy(update={"scores": x.scores[1:]}) for x in (ours, other))
        with pytest.raises(ShapeshiftError, match=f"'a' and 'b'.*{message}"):
            check_comparable({"a": ours, "b": other})


def test_length_columns_need_lengths():
    with pytest.raises(ShapeshiftError, match="'a' has no BLEU by length"):
        length_columns({"a": evaluate(HYPOTHESES, REFERENCES)})
    with pytest.raises(ShapeshiftError, match="at least one system"):
        length_columns({})
