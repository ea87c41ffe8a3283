import hashlib

import pytest

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.scores import Scores, evaluate, sha256_lines

HYPOTHESES = ["Der alte Gärtner gießt die Rosen.", "Ein kleiner Hund schläft."]
REFERENCES = ["Der alte Gärtner gießt die roten Rosen.", "Ein kleiner Hund schläft."]


@pytest.mark.parametrize("lines", [["Größe", "", "mit\u2028Trenner"], [], [""]])
def test_the_hash_is_of_the_utf8_file_whose_last_line_is_ended(lines):
    data = "".join(f"{line}\n" for line in lines)
    assert sha256_lines(lines) == hashlib.sha256(data.encode()).hexdigest()


def test_a_document_says_what_was_scored_and_is_read_back_whole(tmp_path):
    scores = evaluate(HYPOTHESES, REFERENCES, lengths=[6, 4], length_buckets=[5, 7])
    assert (scores.version, scores.num_segments) == (__version__, 2)
    assert scores.hypotheses_sha256 == sha256_lines(HYPOTHESES)
    assert scores.references_sha256 == sha256_lines(REFERENCES)
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
