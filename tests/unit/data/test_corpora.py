"""Corpora: files in their order, the grammar's splits apart, fingerprints of the text."""

import hashlib
import os

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data import grammar
from shapeshift.data.config import SPLITS, GrammarCorpus
from shapeshift.data.corpora import corpus_fingerprint, read_split, write_grammar

from .text import files_corpus, write_pairs

X = {split: [("x", "X")] for split in SPLITS}


def test_prefixes_are_read_one_after_the_other(tmp_path):
    one, two, three = ((x, x.upper()) for x in ("one", "two", "three"))
    write_pairs(tmp_path, a=[one], b=[two, three])
    assert [*read_split(files_corpus(tmp_path, train=["b", "a"]), "train")] == [two, three, one]


def test_grammar_splits_have_their_sizes_and_share_no_sentence(tmp_path):
    config = GrammarCorpus(num_train=200, num_valid=30, num_test=40, max_words=5)
    corpus = write_grammar(config, tmp_path)
    splits = {split: list(read_split(corpus, split)) for split in SPLITS}
    assert [len(pairs) for pairs in splits.values()] == [200, 30, 40]
    train, valid, test = ({source for source, _ in pairs} for pairs in splits.values())
    assert train.isdisjoint(valid | test)
    assert valid.isdisjoint(test)


@pytest.mark.parametrize(("root", "train"), [("~/text", "train"), ("away", "~/text/train")])
def test_text_in_the_home_folder(tmp_path, monkeypatch, root, train):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_pairs(tmp_path / "text", **X)
    assert list(read_split(files_corpus(root, train=[train]), "train")) == X["train"]


def test_too_few_different_sentences_end_in_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(grammar, "generate", lambda number, **_: iter([("A.", "B.")] * number))
    with pytest.raises(ShapeshiftError, match="too few different sentences of 3 to 4 words"):
        write_grammar(GrammarCorpus(num_train=10, min_words=3, max_words=4), tmp_path)


def test_a_files_fingerprint_is_of_the_text_not_of_the_place(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        write_pairs(folder, **X)
    original = corpus_fingerprint(files_corpus(a))
    assert corpus_fingerprint(files_corpus(b)) == original
    (b / "valid.de").write_text("y\n")
    assert corpus_fingerprint(files_corpus(b)) != original
    write_pairs(a, more=[("other", "OTHER")])
    orders = (["train", "more"], ["more", "train"])
    twice = [corpus_fingerprint(files_corpus(a, train=train)) for train in orders]
    assert len({original, *twice}) == 3


def test_the_version_of_the_grammar_belongs_to_its_text(tmp_path):
    digest = hashlib.sha256()
    for seed, min_words, max_words in ((0, 3, 60), (1, 3, 20), (2**40, 10, 100), (3, 3, 9)):
        settings = {"seed": seed, "min_words": min_words, "max_words": max_words}
        write_grammar(GrammarCorpus(num_train=200, num_valid=25, num_test=25, **settings), tmp_path)
        for path in sorted(tmp_path.iterdir()):
            digest.update(path.read_bytes())
    assert (grammar.GRAMMAR_VERSION, digest.hexdigest()) == (
        1,
        "28465d74e4d69f93c568ed2b30eb0aa3a2831cb7ee4d15b1d9b9339f9ace24c9",
    ), "the text changed: check it by hand, raise GRAMMAR_VERSION, and put the new hash here"


def test_a_grammar_fingerprint_is_of_its_settings_and_its_version(monkeypatch):
    corpus = GrammarCorpus(seed=1, num_train=200, num_valid=25, num_test=25, max_words=60)
    known = corpus_fingerprint(corpus)
    # Not of anything else, such as its source code: runs refuse text with another fingerprint.
    assert known == "25fd1e8cc18acea66c9eb24d43a15f86ddac312cfbce5fb48bad66de68781ff3"
    assert corpus_fingerprint(corpus.model_copy(update={"seed": 2})) != known
    monkeypatch.setattr(grammar, "GRAMMAR_VERSION", 2)
    assert corpus_fingerprint(corpus) != known


def test_a_pipe_as_corpus_is_refused_before_anybody_waits_for_it(tmp_path):
    write_pairs(tmp_path, **X)
    (tmp_path / "valid.de").unlink()
    os.mkfifo(tmp_path / "valid.de")
    with pytest.raises(ShapeshiftError, match=r"valid\.de: cannot be read: not a regular file"):
        corpus_fingerprint(files_corpus(tmp_path))
