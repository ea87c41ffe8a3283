"""A look at parallel text: what is counted, and how text is held out."""

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.corpora import read_split
from shapeshift.data.survey import hold_out, survey

from .text import files_corpus, write_pairs

PAIRS = [
    ("a b c", "x y"),
    ("a b c", "x z"),
    ("", "x"),
    ("same\r", "same"),  # a file of Windows
    ("one", " ".join("x" * 10)),
    ("naïve", "naÃ¯ve"),
    ("It’s", "Itâ€™s"),
    ("Ångström in Århus, São Paulo", "£5 – Î"),
]


def test_what_may_be_wrong_with_pairs_is_counted():
    found = survey(iter(PAIRS))
    assert found.num_pairs == 8
    assert found.problems == {
        "with an empty side": 1,
        "with identical sides": 1,
        "with a repeated source": 1,
        "with 9 times as many words on one side": 1,
        "with signs of a wrong encoding": 2,
    }
    assert [*found.source_words] == [3, 3, 0, 1, 1, 1, 1, 5]


def test_a_character_is_a_word_where_there_are_no_spaces():
    pairs = [("这是一个测试。", "This is a test ."), ("我们 GPU 好", "our GPU is good")]
    found = survey(iter(pairs))
    assert [*found.source_words] == [7, 4]
    assert not found.problems


def test_targets_that_normalisation_changes_are_counted():
    targets = ["plain", "„ja“", "über alles", "a\u00a0b  c", "so …", "½", "你好，", "می‌خواهم"]
    found = survey(("x y", target) for target in targets)
    assert found.num_changed == 4
    assert found.changed == ("so …", "so ...")


def test_dirty_pairs_are_not_held_out(tmp_path):
    long = ("long " * 400, "x " * 400)
    dirty = [("", "x"), ("a b", " "), long, ("s", "t " * 10), ("v" * 4000, "w")]
    clean = [(f"source {n}", f"target {n}") for n in range(40)]
    write_pairs(tmp_path, a=[*clean, *dirty, (dirty[3][0], "t")])
    made = hold_out(files_corpus(tmp_path, train=["a"]), tmp_path / "parts")
    held_out = [pair for split in ("valid", "test") for pair in read_split(made, split)]
    assert len(held_out) == 4
    assert set(held_out) <= set(clean)


@pytest.mark.parametrize("count", [0, 2])
def test_too_little_text_to_hold_some_out_is_refused(tmp_path, count):
    write_pairs(tmp_path, a=[(n, n) for n in range(count)])
    with pytest.raises(ShapeshiftError, match=rf"a\.en: has {count} different sentences"):
        hold_out(files_corpus(tmp_path, train=["a"]), tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_text_that_is_there_is_never_overwritten(tmp_path):
    write_pairs(tmp_path, train=[(n, n) for n in range(100)])
    before = (tmp_path / "train.en").read_text()
    with pytest.raises(ShapeshiftError, match=r"train\.en: exists already.*--output"):
        hold_out(files_corpus(tmp_path), tmp_path)
    assert (tmp_path / "train.en").read_text() == before


def test_sources_that_training_has_are_counted():
    training = survey(iter(PAIRS)).sources
    assert survey([("a b c ", "q"), ("new", "q")], training).problems == {
        "whose source is in the training text": 1
    }


def test_no_source_stands_in_two_parts_and_no_pair_is_lost(tmp_path):
    pairs = [(f"source {n % 150}", f"target {n}") for n in range(300)]
    write_pairs(tmp_path, a=pairs[:150], b=pairs[150:])
    made = hold_out(files_corpus(tmp_path, train=["a", "b"]), tmp_path / "parts")
    assert made.train == [str(tmp_path / "parts" / "train")]
    parts = [[*read_split(made, split)] for split in ("train", "valid", "test")]
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    sources = [{source for source, _ in part} for part in parts]
    assert len(set.union(*sources)) == sum(map(len, sources))
    assert [len(each) for each in sources] == [136, 7, 7]  # one in twenty
