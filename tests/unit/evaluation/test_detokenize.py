"""Tokenised output becomes text before it is scored."""

import sys

import pytest

from shapeshift.data.config import SubwordsConfig
from shapeshift.data.subwords import SEP, Subwords
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.detokenize import Detokenizing, moses

PAIRS = [("hello , world !", "hal@@ lo , Welt !")]


@pytest.fixture
def subwords(tmp_path):
    config = SubwordsConfig(algorithm="presplit", vocab_size=20)
    return Subwords.train(lambda: PAIRS, config, tmp_path)


def test_decoded_text_is_finished_and_ids_are_not_touched(subwords):
    finished = Detokenizing(subwords, str.upper)
    assert finished.encode_source(["hello"]) == subwords.encode_source(["hello"])
    assert finished.encode_target_parts([["Welt", "!"]])[0].count(SEP) == 1
    assert finished.decode_target(subwords.encode_target([PAIRS[0][1]])[0]) == "HALLO , WELT !"


@pytest.mark.parametrize(
    ("language", "tokenised", "expected"),
    [
        ("de", "Er sagt , &quot; nein &quot; ( heute ) .", 'Er sagt, "nein" (heute).'),
        ("fr", "l&apos; eau , c&apos; est tout .", "l'eau, c'est tout."),
        ("de", "A@-@ B &amp; C ! <sep> Ja .", None),
    ],
)
def test_moses_makes_text(language, tokenised, expected):
    pytest.importorskip("sacremoses")
    detokenize = moses(language)
    if expected is None:  # parts stay parts
        assert detokenize(tokenised).split(" <sep> ")[1] == "Ja."
    else:
        assert detokenize(tokenised) == expected


def test_each_part_is_detokenised_by_itself(monkeypatch):
    class MosesDetokenizer:
        def __init__(self, lang):
            self.lang = lang

        def detokenize(self, tokens):
            return f"{self.lang}:{''.join(tokens)}"

    module = type(sys)("sacremoses")
    module.MosesDetokenizer = MosesDetokenizer
    monkeypatch.setitem(sys.modules, "sacremoses", module)
    assert moses("de")("a b <sep> c") == "de:ab <sep> de:c"


def test_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(ShapeshiftError, match=r"pip install 'shapeshift\[moses\]'"):
        moses("de")
