"""`data.filter`: which pairs are left out, and where they are."""

import random

import pytest

from shapeshift.data.builders import Pair, build
from shapeshift.data.config import DataConfig, Interpolate, SubwordsConfig
from shapeshift.data.filter import Dropped, FilterConfig, filter_pairs
from shapeshift.data.prepare import prepare
from shapeshift.data.subwords import Subwords

from .text import files_corpus, write_pairs


def pair(source: int, target: int, number: int, text: str = "") -> Pair:
    return Pair(text or f"s{number}", f"t{text}", [9] * source, [9] * target, number)


LENGTHS = ((0, 1), (1, 0), (5, 4), (6, 1), (1, 5), (1, 4))
PAIRS = [
    *(pair(*lengths, number) for number, lengths in enumerate(LENGTHS)),
    *(pair(2, 2, number, "twice") for number in (6, 7)),
]


def left(split, **given):
    dropped = Dropped()
    kept = filter_pairs(iter(PAIRS), FilterConfig(**given), split, dropped)
    return [each.number for each in kept], dropped


def test_training_pairs_are_left_out_by_the_first_reason_that_fits():
    kept, dropped = left("train", max_length=5, max_ratio=4, drop_duplicates=True)
    assert kept == [2, 5, 6]
    assert dropped == {
        "empty source": 1,
        "empty target": 1,
        "source over 5 subwords": 1,
        "over 4 times as many subwords on one side": 1,
        "repeated": 1,
    }
    assert [*dropped.first.values()] == [0, 1, 3, 4, 7]


def test_a_pair_at_the_largest_ratio_stays():
    pairs = [pair(115, 100, 0), pair(50, 57, 1), pair(116, 100, 2)]
    dropped = Dropped()
    kept = filter_pairs(iter(pairs), FilterConfig(max_ratio=1.15), "train", dropped)
    assert [each.number for each in kept] == [0, 1]


STRICT = {"max_length": 1, "max_ratio": 1, "drop_duplicates": True}


@pytest.mark.parametrize(("split", "rules"), [("train", {}), ("valid", STRICT), ("test", STRICT)])
def test_only_an_empty_side_leaves_all_splits(split, rules):
    kept, dropped = left(split, **rules)
    assert kept == [2, 3, 4, 5, 6, 7]
    assert dropped == {"empty source": 1, "empty target": 1}


@pytest.fixture
def text(tmp_path):
    """Parallel text in two files for training and one for the others, with dirty lines."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 4))) for _ in range(50)]
    texts = {
        name: [[" ".join(rng.choices(words, k=8)) for _ in range(2)] for _ in range(size)]
        for name, size in {"one": 60, "two": 60, "valid": 12, "test": 12}.items()
    }
    two, test = texts["two"], texts["test"]
    two[3] = ["abc " * 25_000, "a b"]  # too long to be encoded
    two[4] = ["a b c d", " ".join(words)]
    two[5] = two[6]
    two[7][1] = " "
    test[2][0] = ""
    test[5][1] += " …"
    write_pairs(tmp_path, **texts)
    return tmp_path


def config(folder, **settings):
    corpus, subwords = files_corpus(folder, train=["one", "two"]), SubwordsConfig(vocab_size=60)
    return DataConfig(corpus=corpus, subwords=subwords, filter=settings or None)


def test_the_report_counts_what_is_left_out_and_names_its_lines(text, tmp_path, monkeypatch):
    encoded, encode = [], Subwords.encode_source
    monkeypatch.setattr(
        Subwords, "encode_source", lambda *args: encoded.extend(args[1]) or encode(*args)
    )
    rules = {"max_length": 200, "max_ratio": 9, "drop_duplicates": True}
    data = prepare(config(text, **rules), tmp_path / "out")
    train = data.report.splits["train"]
    assert train.dropped == {
        "source over 200 subwords": 1,
        "over 9 times as many subwords on one side": 1,
        "repeated": 1,
        "empty target": 1,
    }
    assert [*train.first.values()] == [f"{text / 'two.en'}:{line}" for line in (4, 5, 7, 8)]
    assert (train.read, train.kept, len(data.train)) == (120, 116, 116)
    assert max(map(len, encoded)) < 100_000
    test = data.report.splits["test"]
    assert (test.dropped, len(data.test)) == ({"empty source": 1}, 11)
    [first, second, third] = data.report.notices()
    assert first.startswith("train: of 120 pairs left out: 1 source over 200 subwords (first: ")
    assert second == f"test: of 12 pairs left out: 1 empty source (first: {text / 'test.en'}:3)"
    assert third.startswith("test: of 12 pairs kept: 1 whose target these subwords cannot write")
    assert f"{text / 'test.en'}:6" in third


def test_long_texts_of_valid_and_test_are_encoded_as_they_are(text, tmp_path):
    for split in ("valid", "test"):
        write_pairs(text, **{split: [("a b c d", "a b"), ("a b c d " * 400, "a b " * 400)]})
    data = prepare(config(text, max_length=20), tmp_path / "out")
    for store in (data.valid, data.test):
        once, often = store[0], store[1]
        assert [ids.tolist() for ids in often] == [ids.tolist() * 400 for ids in once]


def test_without_a_filter_all_is_as_before_and_said(text, tmp_path):
    assert '"filter"' not in config(text).model_dump_json()
    data = prepare(config(text), tmp_path / "out")
    assert data.report.splits["train"].dropped == {"empty target": 1}
    assert len(data.test) == 12
    assert data.report.splits["test"].noticed == {
        "with an empty side": 1,
        "whose target these subwords cannot write": 1,
    }
    assert data.report.splits["train"].longest == (f"{text / 'two.en'}:4", f"{text / 'two.de'}:5")


def test_a_joined_pair_has_the_number_of_its_first_one():
    joined = build(iter(PAIRS), Interpolate(num_joined=3), "train", dropped := Dropped())
    assert [each.number for each in joined] == [2, 5]
    assert dropped.first == {"empty source": 0, "empty target": 1}
