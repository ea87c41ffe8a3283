"""The configuration that `shapeshift init` writes; tests/integration/test_init.py trains it."""

import random
import re

import pytest

from shapeshift.config import parse_config
from shapeshift.config.yaml_file import parse_yaml
from shapeshift.data.config import FilesCorpus, SubwordsConfig
from shapeshift.data.subwords import Subwords
from shapeshift.data.survey import survey
from shapeshift.evaluation.scores import evaluate
from shapeshift.run.suggest import suggest, suggest_subwords

CORPUS = FilesCorpus(source="en", target="de", train=["a"], valid=["b"], test=["c"])


@pytest.mark.parametrize("num_pairs", [200, 1_500, 12_000])
def test_the_comment_says_how_often_training_reads_the_text_and_a_filter_is_on(num_pairs):
    found = survey((f"{n} a b c d e f g", f"{n} h i j k l m n") for n in range(num_pairs))
    text = suggest(CORPUS, {"train": found}, SubwordsConfig())
    config = parse_config(parse_yaml(text))
    training, filtered = config.training, config.data.filter
    assert (filtered.max_length, filtered.max_ratio) == (1_000, 9)
    assert filtered.drop_duplicates
    tokens = 1.4 * 8 * num_pairs
    [epochs] = re.findall(r"the training text about (\d+) times", text)
    read = training.max_updates * training.batch.max_tokens
    assert int(epochs) == pytest.approx(read / tokens, abs=0.5)


def suggested(targets, sources=None):
    sources = sources or [f"number {n} is {n * 7}" for n in range(len(targets))]
    pairs = [*zip(sources, targets, strict=True)]
    surveys = {"train": survey(iter(pairs))}
    return suggest_subwords(surveys, lambda: iter(pairs)), surveys, pairs


def perfect(config, pairs, folder):
    """Return what a model writes that is right to the letter."""
    subwords = Subwords.train(lambda: iter(pairs), config, folder)
    return [subwords.decode_target(ids) for ids in subwords.encode_target([y for _, y in pairs])]


@pytest.mark.parametrize(
    ("target", "normalization"),
    [
        ("你好，%s！这是（全角）：好吗？", "identity"),
        ("من می‌خواهم کتاب‌های %s را بخوانم.", "identity"),
        ("Er sagt … „%s“ und nimmt ½ Liter.", "identity"),
        ("Er sagt „%s“ über Öl.", "nmt_nfkc"),
    ],
)
def test_a_perfect_model_can_write_the_references(target, normalization, tmp_path):
    targets = [target % f"{n} {n * n}" for n in range(300)]
    config, _, pairs = suggested(targets)
    assert config.normalization == normalization
    written = perfect(config, pairs, tmp_path)
    assert written == targets
    assert evaluate(written, targets, tokenizer="char").scores[0].value == pytest.approx(100)


def test_a_vocabulary_of_many_characters_has_room_for_merges(tmp_path):
    drawn = random.Random(0)
    words = ["".join(drawn.choices("abcdefghijklmnop", k=6)) for _ in range(40)]
    sources = [" ".join(drawn.choices(words, k=5)) for _ in range(2_000)]
    characters = [chr(0x4E00 + n) for n in range(1_100)]
    targets = ["".join(drawn.choices(characters, k=12)) for _ in range(2_000)]
    config, _, pairs = suggested(targets, sources)
    assert config.character_coverage == 1.0
    assert perfect(config, pairs, tmp_path) == targets
    lengths = [len(ids) for ids in Subwords.load(tmp_path).encode_source(sources)]
    assert sum(lengths) / len(lengths) < 8  # 5 words, and not 34 letters


def test_a_vocabulary_is_no_larger_than_a_small_text_fills(tmp_path):
    config, _, pairs = suggested([*"xyzw"], [*"abcd"])
    assert perfect(config, pairs, tmp_path) == [*"xyzw"]  # 100 pieces cannot be trained


def test_the_rarest_of_very_many_characters_are_left_out():
    targets = ["".join(chr(0x4E00 + n % 4_000 + k) for k in range(10)) for n in range(4_000)]
    config, _, _ = suggested([*targets, *["永" * 9_000] * 10])
    assert config.character_coverage == 0.9995


def test_a_target_without_spaces_under_another_name_gets_its_tokenizer():
    config, surveys, _ = suggested(["这是一个测试"] * 300)
    corpus = CORPUS.model_copy(update={"target": "tgt"})
    assert parse_config(parse_yaml(suggest(corpus, surveys, config))).bleu_tokenizer == "zh"
    written = suggest(CORPUS.model_copy(update={"target": "yue"}), surveys, config)
    assert "tokenize" not in written
    assert parse_config(parse_yaml(written)).bleu_tokenizer == "zh"
