"""Tokenised output becomes text before it is scored."""

import sys

import pytest

from shapeshift.evaluation.detokenize import moses


def test_moses_makes_text():
    pytest.importorskip("sacremoses")
    assert moses("de")("Er sagt , &quot; nein &quot; .") == 'Er sagt, "nein".'
    assert moses("fr")("l&apos; eau , c&apos; est tout .") == "l'eau, c'est tout."


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
