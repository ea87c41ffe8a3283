"""Text that is already split: vocabularies, round trips, raw references, and raw text refused."""

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import DataConfig, SubwordsConfig
from shapeshift.data.prepare import prepare
from shapeshift.data.subwords import EOS, PAD, SPECIAL_PIECES, UNK, Subwords

from .text import files_corpus, write_pairs

PAIRS = [
    ("the extra@@ pol@@ ation , yes", "die Extra@@ pol@@ ation , ja"),
    ("the the , </s> <sep>", "die , &apos; ja"),
]
CONFIG = SubwordsConfig(algorithm="presplit", vocab_size=50)


@pytest.fixture
def subwords(tmp_path):
    return Subwords.train(lambda: PAIRS, CONFIG, tmp_path / "subwords")


def test_text_comes_back_joined(subwords):
    ids = subwords.encode_target(["die Extra@@ pol@@ ation ja"])[0]
    assert len(ids) == 5
    assert UNK not in ids
    assert subwords.decode_target(ids) == "die Extrapolation ja"
    assert subwords.decode_target([*ids[:2], EOS, PAD]) == "die Extra"


def test_special_pieces_in_the_text_are_unknown(subwords):
    assert subwords.encode_source(["</s> <sep> nowhere the"]) == [[UNK, UNK, UNK, 6]]
    assert subwords.decode_target([UNK, 6]) == "⁇ the"


def test_the_most_frequent_pieces_have_the_first_ids_and_are_loaded_again(subwords, tmp_path):
    for each in (subwords, Subwords.load(tmp_path / "subwords")):
        assert each.encode_source([", the"]) == [[5, 6]]  # 4 and 3 times
        assert (each.joint, each.presplit) == (True, True)
        assert each.source_size == len(SPECIAL_PIECES) + 10
        assert each.fingerprint == subwords.fingerprint


def test_a_vocabulary_for_each_language_without_its_rare_pieces(tmp_path):
    config = SubwordsConfig(algorithm="presplit", vocab_size=8, joint=False)
    subwords = Subwords.train(lambda: PAIRS, config, tmp_path)
    assert subwords.encode_source(["die"]) == subwords.encode_target(["the"]) == [[UNK]]
    assert subwords.source_pieces(range(5, 8)) == ["the", ",", "ation"]
    with pytest.raises(ShapeshiftError, match="training text is empty"):
        Subwords.train(lambda: [(" ", "<sep>")], config, tmp_path)


def test_raw_text_is_refused_and_split_text_is_not(subwords):
    subwords.check_source("the extra@@ pol@@ ation , ☃ yes")
    subwords.check_source("the <sep> yes")
    subwords.check_source("")
    with pytest.raises(ShapeshiftError, match="'extrapolation,' is no piece of the vocabulary"):
        subwords.check_source("the extrapolation, yes")


def test_prepared_data_have_split_sources_and_raw_references(tmp_path):
    root, raw = tmp_path / "text", ["Die Extrapolation, ja", "Die,' ja"]
    write_pairs(root, train=PAIRS, valid=PAIRS, test=PAIRS, raw=[("", line) for line in raw])
    corpus = files_corpus(root, test_references=["raw"])
    data = prepare(DataConfig(corpus=corpus, subwords=CONFIG), tmp_path / "out")
    sources, references = data.text("test")
    assert sources == [source for source, _ in PAIRS]
    assert references == raw
    assert data.text("valid")[1] == ["die Extrapolation , ja", "die , &apos; ja"]
    ids = [target.tolist() for _, target in data.test]
    assert ids == data.subwords.encode_target([target for _, target in PAIRS])
