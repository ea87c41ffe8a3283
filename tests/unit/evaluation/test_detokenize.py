"""Tokenised output becomes text before it is scored."""

import sys

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.detokenize import moses


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
