"""`shapeshift init`: from one's own text to a configuration that trains."""

import gzip
import random
from zipfile import ZipFile

import pytest

from shapeshift.config import load_config
from shapeshift.data.corpora import read_split
from shapeshift.data.grammar import generate
from shapeshift.training import estimate

from ..unit.cli.running import shapeshift

LANGUAGES = ("--source", "en", "--target", "de")


@pytest.fixture(scope="module")
def pairs():
    """Parallel text."""
    return [*generate(1_200, seed=1, min_words=3, max_words=12)]


def write_pair(path, pairs, languages=("en", "de")):
    for language, lines in zip(languages, zip(*pairs, strict=True), strict=True):
        path.with_suffix(f".{language}").write_text("".join(f"{x}\n" for x in lines), "utf-8")


@pytest.fixture
def text(pairs, tmp_path, monkeypatch):
    """A folder with parallel text, in which commands run; they measure no step of training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "measure", lambda *run: estimate.UpdateTime(1.0, 1.0))
    write_pair(tmp_path / "mine", pairs)
    return tmp_path


@pytest.fixture
def init(text):
    """Returns a function: runs the command, returns standard output and standard error."""

    def run(*arguments, expected=0, **options):
        status, out, err = shapeshift(text, "init", *arguments, **options)
        assert status == expected, err
        return out, err

    return run


def train(folder, config, *overrides):
    small = ("max_updates=2", "schedule.warmup_updates=1", "batch.max_tokens=500")
    settings = [*(f"training.{each}" for each in small), *overrides]
    status, _, said = shapeshift(folder, "train", config, *settings, "--no-test")
    assert status == 0, said


def test_a_configuration_that_trains_without_a_change(text, init):
    dotted = ("--source", ".en", "--target", "de", "--train", "mine.en")
    printed, said = init(*dotted, "--output", "my 😀.yaml")
    assert "1,0" in printed  # pairs of training text: what is left of 1,200
    assert "shapeshift train 'my 😀.yaml'\n  shapeshift compare 'my 😀.yaml' --pos" in printed
    pair = printed.partition("the first pair of my 😀/train:")[2].splitlines()[1:3]
    for shown, language in zip(pair, ("en", "de"), strict=True):
        first, *_ = (text / f"my 😀/train.{language}").read_text("utf-8").split("\n")
        assert shown == f"  {language}: {first}"
    assert "updates of about" in said
    config = load_config("my 😀.yaml")
    assert config.data.corpus.train == ["my 😀/train"]
    assert config.training.schedule.warmup_updates < config.training.max_updates
    train(text, "my 😀.yaml")


@pytest.mark.parametrize("num_pairs", [300, 3_000])
def test_text_of_many_characters_trains(text, init, num_pairs):
    drawn = random.Random(0)
    sides = [
        ["".join(chr(0x4E00 + drawn.randrange(2_500)) for _ in range(18)) for _ in range(num_pairs)]
        for _ in range(2)
    ]
    write_pair(text / "many", zip(*sides, strict=True), ("zh", "en"))
    init("--source", "zh", "--target", "en", "--train", "many")
    train(text, "mine.yaml", "model.size=tiny")


def test_what_is_missing_is_asked_for_on_a_terminal(init):
    answers = [b"en", b"de", b"mine"]
    init(stdin=b"\n".join([*answers, b"", b""]), terminal=True)
    assert load_config("mine.yaml").data.corpus.train == ["mine/train"]
    typed = b"\n".join([*answers, b"mine", b"mine", b""])
    init("--output", "all.yaml", stdin=typed, terminal=True)
    assert load_config("all.yaml").data.corpus.test == ["mine"]
    _, said = init("--output", "b.yaml", "--source", "en", expected=2)
    assert "--target: is missing" in said


def pack(path, name, pairs):
    """Write an archive with text in files called NAME.en and NAME.de."""
    path.parent.mkdir(exist_ok=True)
    with ZipFile(path, "w") as archive:
        archive.writestr("README", "from OPUS")
        for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            archive.writestr(f"{name}.{language}", "".join(f"{x}\n" for x in lines))


def test_archives_of_one_name_are_unpacked_next_to_each_other(text, init, pairs):
    for number, corpus in enumerate(("Books", "News", "Talks")):
        part = pairs[400 * number : 400 * (number + 1)]
        pack(text / corpus / "de-en.txt.zip", "Grammar.de-en", part)
    given = ("--train", "Books/de-en.txt.zip", "--train", "News/de-en.txt.zip")
    held_out = ("--valid", "Talks/de-en.txt.zip", "--test", "Talks/de-en.txt.zip")
    init(*LANGUAGES, *given, *held_out)
    corpus = load_config("mine.yaml").data.corpus
    assert corpus.train == ["mine/de-en/Grammar.de-en", "mine/de-en-2/Grammar.de-en"]
    assert corpus.valid == corpus.test == ["mine/de-en-3/Grammar.de-en"]
    here = "".join((text / f"{x}.en").read_text("utf-8") for x in (*corpus.train, *corpus.valid))
    assert here == (text / "mine.en").read_text("utf-8")


def test_an_archive_never_replaces_a_file_of_the_user(text, init, pairs):
    (text / "mine" / "opus").mkdir(parents=True)
    own = text / "mine" / "opus" / "text.en"
    own.write_text("my own\n")
    pack(text / "opus.zip", "text", pairs)
    given = ("--train", "opus.zip", *LANGUAGES)
    assert "text.en: exists already and differs" in init(*given, expected=1)[1]
    assert own.read_text() == "my own\n"
    assert not own.with_suffix(".de").exists()
    own.rename(text / "away")
    assert "no two files" in init(*given[:-1], "fr", expected=1)[1]
    init(*given)
    assert load_config("mine.yaml").data.corpus.train == ["mine/train"]


def test_files_of_both_languages_are_taken_apart(text, init, pairs):
    with gzip.open(text / "talks.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{a}\t{b}\n" for a, b in pairs[:900]) + "no partner\n")
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{a}</seg></tuv><tuv xml:lang="de"><seg>{b}</seg></tuv></tu>'
        for a, b in pairs[900:]
    )
    (text / "talks.tmx").write_text(f"<tmx><body>{units}</body></tmx>", "utf-8")
    files = ("--train", "talks.tsv.gz", "--valid", "talks.tmx", "--test", "talks.tmx")
    printed, _ = init(*LANGUAGES, *files)
    assert "talks.tsv.gz: 900 pairs were written to mine/talks.{en,de}; 1 without" in printed
    corpus = load_config("mine.yaml").data.corpus
    names = [["mine/talks"], ["mine/talks-2"], ["mine/talks-2"]]
    assert [corpus.train, corpus.valid, corpus.test] == names
    assert [*read_split(corpus, "train")] == pairs[:900]
    assert [*read_split(corpus, "test")] == pairs[900:]
    own = (text / "mine" / "talks.en").read_text("utf-8")
    (text / "talks.tsv").write_text("a\tb\n", "utf-8")
    _, again = init(*LANGUAGES, "--train", "talks.tsv", "--output", "mine.yml", expected=1)
    assert "talks.en: exists already" in again
    assert (text / "mine" / "talks.en").read_text("utf-8") == own


@pytest.mark.parametrize("space", [" ", ""])
def test_tokenised_japanese_is_noticed(space, text, init):
    japanese = "私 は {} 番 の 本 を 読み まし た 。".replace(" ", space)
    lines = [(f"I read the book number {n} .", japanese.format(n)) for n in range(300)]
    write_pair(text / "tok", lines, ("en", "ja"))
    printed, _ = init("--source", "en", "--target", "ja", "--train", "tok")
    warned = "the ja text has spaces between Chinese or Japanese words" in printed
    assert warned == bool(space)
