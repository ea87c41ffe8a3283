"""`shapeshift init`: from one's own text to a configuration that trains."""

import gzip
import random
from pathlib import Path
from zipfile import ZipFile

import pytest

from shapeshift.config import load_config
from shapeshift.data.corpora import read_split
from shapeshift.data.grammar import generate

from ..unit.cli.running import shapeshift

LANGUAGES = ("--source", "en", "--target", "de")


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A folder with parallel text, in which commands run."""
    monkeypatch.chdir(tmp_path)
    pairs = [*generate(1_200, seed=1, min_words=3, max_words=12)]
    for side, ending in enumerate(("en", "de")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"mine.{ending}").write_text(lines, encoding="utf-8")
    return tmp_path


def test_a_configuration_that_trains_without_a_change(text):
    dotted = ("--source", ".en", "--target", "de", "--train", "mine.en")
    status, printed, said = shapeshift(text, "init", *dotted, "--output", "my text.yaml")
    assert status == 0
    assert "1,0" in printed  # pairs of training text: what is left of 1,200
    assert "shapeshift train 'my text.yaml'\n  shapeshift compare 'my text.yaml' --pos" in printed
    pair = printed.partition("the first pair of my text/train:")[2].splitlines()[1:3]
    firsts = [
        (text / f"my text/train.{each}").read_text("utf-8").split("\n")[0] for each in ("en", "de")
    ]
    assert pair == [f"  en: {firsts[0]}", f"  de: {firsts[1]}"]
    assert "updates of about" in said
    config = load_config("my text.yaml")
    assert config.data.corpus.train == ["my text/train"]
    assert config.training.schedule.warmup_updates < config.training.max_updates
    small = ["training.max_updates=2", "training.schedule.warmup_updates=1", "--no-test"]
    assert shapeshift(text, "train", "my text.yaml", *small)[0] == 0


@pytest.mark.parametrize("num_pairs", [300, 3_000])
def test_text_of_many_characters_trains(text, num_pairs):
    drawn = random.Random(0)
    for language in ("zh", "en"):
        lines = (
            "".join(chr(0x4E00 + drawn.randrange(2_500)) for _ in range(18))
            for _ in range(num_pairs)
        )
        (text / f"many.{language}").write_text("".join(f"{x}\n" for x in lines), encoding="utf-8")
    given = ("--source", "zh", "--target", "en", "--train", "many")
    assert shapeshift(text, "init", *given)[0] == 0
    small = ["training.max_updates=2", "training.schedule.warmup_updates=1", "model.size=tiny"]
    status, _, said = shapeshift(text, "train", "mine.yaml", *small, "--no-test")
    assert status == 0, said


def test_what_is_missing_is_asked_for_on_a_terminal(text):
    answers = [b"en", b"de", b"mine"]
    status, _, said = shapeshift(
        text, "init", stdin=b"\n".join([*answers, b"", b""]), terminal=True
    )
    assert status == 0, said
    assert load_config("mine.yaml").data.corpus.train == ["mine/train"]
    typed = b"\n".join([*answers, b"mine", b"mine", b""])
    status, _, said = shapeshift(text, "init", "--output", "all.yaml", stdin=typed, terminal=True)
    assert status == 0, said
    assert load_config("all.yaml").data.corpus.test == ["mine"]
    status, _, said = shapeshift(text, "init", "--output", "b.yaml", "--source", "en")
    assert (status, "--target: is missing" in said) == (2, True)


def pack(path, name, lines=slice(None)):
    """Write an archive with some lines of both files, called NAME.en and NAME.de."""
    path.parent.mkdir(exist_ok=True)
    with ZipFile(path, "w") as archive:
        archive.writestr("README", "from OPUS")
        for ending in ("en", "de"):
            text = Path(f"mine.{ending}").read_text("utf-8").splitlines(keepends=True)
            archive.writestr(f"{name}.{ending}", "".join(text[lines]))


def test_archives_of_one_name_are_unpacked_next_to_each_other(text):
    for number, corpus in enumerate(("Books", "News", "Talks")):
        part = slice(400 * number, 400 * (number + 1))
        pack(text / corpus / "de-en.txt.zip", "Grammar.de-en", part)
    given = ("init", *LANGUAGES, "--train", "Books/de-en.txt.zip", "--train", "News/de-en.txt.zip")
    more = ("--valid", "Talks/de-en.txt.zip", "--test", "Talks/de-en.txt.zip")
    status, _, said = shapeshift(text, *given, *more)
    assert status == 0, said
    corpus = load_config("mine.yaml").data.corpus
    assert corpus.train == ["mine/de-en/Grammar.de-en", "mine/de-en-2/Grammar.de-en"]
    assert corpus.valid == corpus.test == ["mine/de-en-3/Grammar.de-en"]
    here = "".join((text / f"{x}.en").read_text("utf-8") for x in (*corpus.train, *corpus.valid))
    assert here == (text / "mine.en").read_text("utf-8")


def test_an_archive_never_replaces_a_file_of_the_user(text):
    (text / "mine" / "opus").mkdir(parents=True)
    own = text / "mine" / "opus" / "text.en"
    own.write_text("my own\n")
    pack(text / "opus.zip", "text")
    given = ("init", "--train", "opus.zip", "--source", "en", "--target")
    status, _, said = shapeshift(text, *given, "de")
    assert (status, "text.en: exists already and differs" in said) == (1, True), said
    assert own.read_text() == "my own\n"
    assert not own.with_suffix(".de").exists()
    own.rename(text / "away")
    assert "no two files" in shapeshift(text, *given, "fr")[2]
    assert shapeshift(text, *given, "de")[0] == 0
    assert load_config("mine.yaml").data.corpus.train == ["mine/train"]


def test_files_of_both_languages_are_taken_apart(text):
    pairs = [(text / f"mine.{x}").read_text("utf-8").splitlines() for x in ("en", "de")]
    pairs = [*zip(*pairs, strict=True)]
    with gzip.open(text / "talks.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{a}\t{b}\n" for a, b in pairs[:900]) + "no partner\n")
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{a}</seg></tuv><tuv xml:lang="de"><seg>{b}</seg></tuv></tu>'
        for a, b in pairs[900:]
    )
    (text / "talks.tmx").write_text(f"<tmx><body>{units}</body></tmx>", "utf-8")
    given = ("init", *LANGUAGES, "--train", "talks.tsv.gz", "--valid", "talks.tmx")
    status, printed, said = shapeshift(text, *given, "--test", "talks.tmx")
    assert status == 0, said
    assert "talks.tsv.gz: 900 pairs were written to mine/talks.{en,de}; 1 without" in printed
    corpus = load_config("mine.yaml").data.corpus
    assert (corpus.train, corpus.valid, corpus.test) == (
        ["mine/talks"],
        ["mine/talks-2"],
        ["mine/talks-2"],
    )
    assert [*read_split(corpus, "train")] == pairs[:900]
    assert [*read_split(corpus, "test")] == pairs[900:]
    own = (text / "mine" / "talks.en").read_text("utf-8")
    (text / "talks.tsv").write_text("a\tb\n", "utf-8")
    again = shapeshift(text, "init", *LANGUAGES, "--train", "talks.tsv", "--output", "mine.yml")
    assert (again[0], "talks.en: exists already" in again[2]) == (1, True)
    assert (text / "mine" / "talks.en").read_text("utf-8") == own


def test_tokenised_japanese_is_noticed(text):
    for language in ("ja", "en"):
        lines = "".join(f"私 は {n} 番 の 本 を 読み まし た 。\n" for n in range(300))
        if language == "en":
            lines = "".join(f"I read the book number {n} .\n" for n in range(300))
        (text / f"tok.{language}").write_text(lines, encoding="utf-8")
    given = ("init", "--source", "en", "--target", "ja", "--train", "tok", "--output")
    assert (
        "the ja text has spaces between Chinese or Japanese words"
        in shapeshift(text, *given, "a.yaml")[1]
    )
    raw = (text / "tok.ja").read_text("utf-8").replace(" ", "")
    (text / "tok.ja").write_text(raw, "utf-8")
    assert "has spaces" not in shapeshift(text, *given, "b.yaml")[1]
