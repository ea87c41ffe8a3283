"""What a user is told about prepared text when a run begins."""

from pathlib import Path

import pytest

from shapeshift.config import parse_config
from shapeshift.data.grammar import generate
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import prepared_directory
from shapeshift.run.requirements import text_notices
from shapeshift.run.train import train
from shapeshift.training.observer import Observer

SMALL = (
    "data.subwords.vocab_size=200",
    "model.size=tiny",
    "training.max_updates=2",
    "training.schedule.warmup_updates=1",
    "training.device=cpu",
)


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Writes text with these changes of a target, by number; returns a configuration."""
    monkeypatch.chdir(tmp_path)

    def config(*overrides, target="de", change=str, numbers=()):
        pairs = [*generate(60, seed=1, max_words=8)]
        sides = [source for source, _ in pairs], [text for _, text in pairs]
        sides[1][:] = [change(x) if n in numbers else x for n, x in enumerate(sides[1])]
        for ending, lines in zip(("en", target), sides, strict=True):
            (tmp_path / f"text.{ending}").write_text("".join(f"{x}\n" for x in lines), "utf-8")
        splits = {split: ["text"] for split in ("train", "valid", "test")}
        corpus = {"corpus": "files", "source": "en", "target": target, **splits}
        return parse_config({"data": {"corpus": corpus}}, [*SMALL, *overrides])

    return config


def notices(config):
    prepare(config.data, folder := prepared_directory(config.data, "prepared"))
    return text_notices(config, folder)


def test_clean_text_needs_no_word(make):
    assert notices(make()) == []


def test_references_that_no_model_can_write_are_said_with_a_remedy(make):
    changes = {"change": lambda line: f"{line} …", "numbers": (3, 7)}
    *lines, remedy = notices(make(**changes))
    assert [line.partition(" (first")[0] for line in lines] == [
        f"{split}: of 60 pairs kept: 2 whose target these subwords cannot write"
        for split in ("valid", "test")
    ]
    assert all("text.en:4" in line for line in lines)
    assert "data.subwords.normalization=identity" in remedy
    assert notices(make("data.subwords.normalization=identity", **changes)) == []


def test_characters_that_training_lacks_have_no_remedy(make):
    config = make("data.subwords.normalization=identity")
    for ending in ("en", "de"):
        text = Path(f"text.{ending}").read_text("utf-8")
        Path(f"test.{ending}").write_text(f"{text}永\n", "utf-8")
    corpus = config.data.corpus.model_copy(update={"test": ["test"]})
    data = config.data.model_copy(update={"corpus": corpus})
    *_, last = notices(config.model_copy(update={"data": data}))
    assert last.endswith("or with characters that are no subwords")


def test_an_empty_side_is_said_where_it_is_kept_and_where_it_is_left_out(make):
    changes = {"change": lambda _: "", "numbers": (5,)}
    assert notices(make(**changes)) == [
        "train: of 60 pairs left out: 1 empty target (first: text.en:6)",
        "valid: of 60 pairs kept: 1 with an empty side (first: text.en:6)",
        "test: of 60 pairs kept: 1 with an empty side (first: text.en:6)",
    ]
    assert notices(make("data.filter={}", **changes)) == [
        f"{split}: of 60 pairs left out: 1 empty target (first: text.en:6)"
        for split in ("train", "valid", "test")
    ]


def test_a_tokenizer_that_cannot_fit_is_said(make):
    changes = {"change": lambda _: "这是一个测试", "numbers": range(60)}
    [line] = notices(make(target="tgt", **changes))
    assert line.endswith("use zh (evaluation.tokenize)")
    assert notices(make("evaluation.tokenize=zh", target="tgt", **changes)) == []
    assert notices(make(target="yue", **changes)) == []


def test_references_that_are_tokenised_are_said(make):
    changes = {"change": lambda _: "这 是 一个 测试 。", "numbers": range(60)}
    [line] = notices(make("data.subwords.normalization=identity", target="zh", **changes))
    assert line.startswith("the target text has spaces between Chinese or Japanese words")


def test_training_says_it_once(make):
    config = make(change=lambda _: "", numbers=(5,))
    said, observer = [], Observer()
    observer.noticed = said.append
    for _ in range(2):
        train(config, "run", observer)
    assert [line.partition(":")[0] for line in said] == ["train", "valid", "test"]
