"""BLEU of languages that have no spaces; text whose tokens are joined before it is scored."""

import pytest
from sacrebleu.tokenizers import tokenizer_spm

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.tokenizers import by_text, make_bleu, misfit, moses, one_is_tokenised

HYPOTHESES = ["私は昨日、図書館で新しい本を読みました。", "猫が机の下で静かに眠っている。"]
REFERENCES = ["私は昨日、図書館で新しい本を借りました。", "犬が机の下で静かに眠っている。"]


def bleu(tokenizer, hypotheses=HYPOTHESES, references=REFERENCES):
    [score] = score_corpus(hypotheses, references, ["bleu"], tokenizer=tokenizer)
    return score


def corpus(target, source="fr"):
    files = {"train": ["a"], "valid": ["a"], "test": ["a"]}
    return {"data": {"corpus": {"corpus": "files", "source": source, "target": target, **files}}}


def test_a_sentence_without_spaces_is_one_word_to_13a():
    assert bleu("13a").value == 0.0
    # Two of 34 characters differ, and with them 8 of the 28 groups of four that there are.
    assert 70 < bleu("char").value < 95
    assert 70 < bleu("zh").value < 95


def test_japanese_is_split_into_words():
    pytest.importorskip("MeCab", reason="ja-mecab needs its extra")
    found = bleu("ja-mecab")
    assert 60 < found.value < 95
    assert "|tok:ja-mecab-0.996-IPA|" in found.signature  # as in NHK 2024, footnote 3


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        *(("ja", "ja-mecab"), ("jpn", "ja-mecab"), ("ko", "ko-mecab"), ("kor", "ko-mecab")),
        *(("zh", "zh"), ("zh-CN", "zh"), ("zho_Hant", "zh"), ("cmn", "zh")),
        *((name, "zh") for name in ("cn", "yue", "lzh", "wuu")),
        *(("jp", "ja-mecab"), ("kr", "ko-mecab")),
        *((name, "char") for name in ("th", "lo", "km", "my", "bo")),
        *((name, "13a") for name in ("de", "en", "jam", "kok")),
    ],
)
def test_the_target_language_chooses(language, tokenizer):
    assert parse_config(corpus(language)).bleu_tokenizer == tokenizer
    assert parse_config(corpus("es", source=language)).bleu_tokenizer == "13a"
    chosen = parse_config(corpus(language), ["evaluation.tokenize=intl"])
    assert chosen.bleu_tokenizer == "intl"


@pytest.mark.parametrize(
    ("language", "line", "tokenizer"),
    [
        ("zh", "x", "zh"),
        ("tgt", "这是一个测试。", "zh"),
        ("txt", "私はGPUの本を読みました。", "ja-mecab"),
        ("txt", "나는 책을 읽었다.", "ko-mecab"),
        ("txt", "ສະບາຍດີທຸກຄົນ", "char"),
        ("de", "Ein Satz mit 東京 darin.", "13a"),
        ("de", "12 %", "13a"),
    ],
)
def test_text_of_another_name_is_scored_by_its_script(language, line, tokenizer):
    assert by_text(language, [line] * 3) == tokenizer


def test_a_tokenizer_that_does_not_fit_the_text_is_said():
    chinese = ["这是一个测试。", "很好。"]
    assert "BLEU with the tokenizer 13a is near 0" in misfit("13a", chinese)
    assert misfit("13a", chinese).endswith("use zh")
    for tokenizer in ("zh", "char", "flores200"):
        assert misfit(tokenizer, chinese) is None
    assert misfit("13a", ["Ein Satz.", "나는 책을 읽었다."]) is None
    assert misfit("13a", ["这 是 一个 测试 。"]) is None


def test_text_that_is_tokenised_is_noticed():
    raw, split = ["我们喜欢书。"], ["我们 喜欢 书 。"]
    assert one_is_tokenised(raw, raw) is None
    assert one_is_tokenised(split, split) is None
    assert one_is_tokenised(split, raw).startswith("the translations have spaces")
    assert one_is_tokenised(raw, split).startswith("the references have spaces")
    assert one_is_tokenised(["a b"], ["ab"]) is None


def test_a_name_that_sacrebleu_does_not_have_is_refused_before_anything_begins():
    with pytest.raises(ShapeshiftError, match=r"evaluation\.tokenize: .*did you mean 'ja-mecab'"):
        parse_config({}, ["evaluation.tokenize=ja_mecab"])
    with pytest.raises(ShapeshiftError, match="unknown tokenizer '14a'"):
        make_bleu("14a")


@pytest.mark.parametrize("error", [OSError("no route to host"), SystemExit(1)])
def test_a_tokenizer_that_cannot_be_downloaded_is_one_line(error, tmp_path, monkeypatch):
    def download(*_):
        raise error

    monkeypatch.setattr(tokenizer_spm, "SACREBLEU_DIR", str(tmp_path))
    monkeypatch.setattr(tokenizer_spm, "download_file", download)
    with pytest.raises(ShapeshiftError, match=rf"flores200 .*\({error}\); connect to the internet"):
        make_bleu("flores200")


def test_moses_makes_text_of_each_part_by_itself():
    pytest.importorskip("sacremoses")
    text = "Er sagt , &quot; nein &quot; . <sep> , ja ."
    assert moses("de")(text) == 'Er sagt, "nein". <sep> , ja.'
    assert moses("fr")("l&apos; eau , c&apos; est tout .") == "l'eau, c'est tout."
