"""Test sets by sacreBLEU's names, from a folder made to look like sacreBLEU's; and fetching what a
corpus of files needs."""

import gzip
import io
import tarfile
import urllib.error

import pytest
from sacrebleu.dataset import DATASETS

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.data import corpora
from shapeshift.data.config import CORPORA, Archive, DataConfig, label
from shapeshift.data.corpora import corpus_fingerprint, fetch, labels, read_split
from shapeshift.data.sources.testsets import fetch_test_set, find_test_set

from ..text import files_corpus, write_pairs


@pytest.fixture
def home(tmp_path, monkeypatch):
    """sacreBLEU's folder, with wmt14/full and wmt22, and no way to the network."""
    home = tmp_path / "sacrebleu"
    for name, reference in (("wmt14/full", "ref"), ("wmt22", "ref-A")):
        folder = home / name
        folder.mkdir(parents=True)
        monkeypatch.setattr(DATASETS[name], "_outdir", str(folder))
        stem = f"{name.replace('/', '_')}.en-de"
        (folder / f"{stem}.src").write_text(f"source of {name}\n")
        (folder / f"{stem}.{reference}").write_text(f"Satz von {name}\n")

    def offline(*args, **kwargs):
        raise urllib.error.URLError("no way out")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setattr(DATASETS["wmt15"], "_outdir", str(home / "wmt15"))
    monkeypatch.setattr(DATASETS["wmt15"], "_rawdir", str(home / "wmt15" / "raw"))
    return home


def test_files_test_sets_and_references_stand_side_by_side(home, tmp_path):
    texts = {name: [(name, f"{name} auf Deutsch")] for name in ("train", "valid", "more")}
    write_pairs(tmp_path, **texts)
    entries, references = ["more", "sacrebleu:wmt14/full"], ["sacrebleu:wmt22", "more"]
    mixed = files_corpus(tmp_path, test=entries, test_references=references)
    assert fetch(mixed) == mixed
    assert list(read_split(mixed, "test")) == [
        ("more", "more auf Deutsch", "Satz von wmt22"),
        ("source of wmt14/full", "Satz von wmt14/full", "more auf Deutsch"),
    ]
    assert list(read_split(mixed, "valid")) == [("valid", "valid auf Deutsch")]
    assert labels(mixed, "test") == ["wmt22", "newstest2014"]
    before = corpus_fingerprint(mixed)
    (home / "wmt22" / "wmt22.en-de.ref-A").write_text("anders\n")
    assert corpus_fingerprint(mixed) != before


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("wmt14/ful", ("en", "de"), r"no test set 'wmt14/ful'; did you mean 'wmt14/full'\?"),
        ("wmt14/full", ("de", "ja"), r"wmt14/full has no de-ja; it has .*de-en"),
    ],
)
def test_what_sacrebleu_does_not_have_is_named(name, pair, message):
    for look in (find_test_set, fetch_test_set):
        with pytest.raises(ShapeshiftError, match=message):
            look(name, *pair)


def test_without_a_network_the_remedy_is_named(home, tmp_path):
    corpus = files_corpus(tmp_path, test=["sacrebleu:wmt15"])
    with pytest.raises(ShapeshiftError, match=r"no way out.*sacrebleu -t wmt15 -l en-de"):
        fetch(corpus)
    with pytest.raises(ShapeshiftError, match=r"no such file: looked for .*wmt15\.en-de\.src"):
        list(read_split(corpus, "test"))


def test_results_call_test_sets_as_wmt_does():
    names = ("wmt14/full", "wmt08", "wmt14", "wmt21")
    expected = ["newstest2014", "newstest2008", "newstest2014", "wmt21"]
    assert [label(f"sacrebleu:{name}") for name in names] == expected
    assert label("wmt14/full") == "wmt14/full"  # a prefix of files


def test_a_corpus_may_be_named_and_changed():
    base = {"data": {"corpus": "wmt14-en-de", "recipe": {"name": "extrapolate"}}}
    french = parse_config(base, ["data.corpus=wmt14-en-fr", "data.corpus.root=/x"]).data
    assert (french.corpus.target, str(french.corpus.root)) == ("fr", "/x")
    assert french.recipe.name == "extrapolate"
    assert parse_config(base).data.corpus.subset == "de-en"
    with pytest.raises(ShapeshiftError, match=r"unknown corpus 'wmt14-en-d'; did you mean"):
        parse_config(base, ["data.corpus=wmt14-en-d"])
    assert parse_config(parse_config(base).model_dump(mode="json")) == parse_config(base)


def test_every_named_corpus_has_test_sets_that_sacrebleu_has():
    for name in CORPORA:
        config = DataConfig(corpus=name).corpus.model_dump()
        lists = ("valid", "test", "valid_references", "test_references")
        entries = [entry for key in lists for entry in config.get(key, ())]
        named = [x.removeprefix("sacrebleu:") for x in entries if x.startswith("sacrebleu:")]
        assert named, name
        for test_set in named:
            pair = f"{config['source']}-{config['target']}"
            assert pair in DATASETS[test_set].langpairs, (name, test_set)


def test_missing_files_are_unpacked_from_the_archive(tmp_path, monkeypatch, home):
    (tmp_path / "valid.de.gz").write_bytes(gzip.compress(b"mine\n"))
    asked = []

    def download(archive, folder, on_progress):
        asked.append(archive)
        with tarfile.open(folder / archive.file, "w:gz") as tar:
            for name in ("train.en", "./train.de.gz", "valid.en", "valid.de", ".git/config"):
                member = tarfile.TarInfo(name)
                member.size = 2
                tar.addfile(member, io.BytesIO(b"x\n"))
        return folder / archive.file

    monkeypatch.setattr(corpora, "download", download)
    archive = Archive(url="https://example.org/get?id=1", file="a", hash=f"md5:{'0' * 32}")
    corpus = {"archive": archive, "test": ["sacrebleu:wmt14/full"]}
    for _ in range(2):
        fetch(files_corpus(tmp_path, **corpus))
    assert asked == [archive]
    assert {x.name for x in tmp_path.iterdir() if not x.name.startswith(".")} == {
        *("a", "sacrebleu", "train.en", "train.de.gz", "valid.en", "valid.de.gz")
    }
    with pytest.raises(ShapeshiftError, match=r"more\.en: no such file"):
        fetch(files_corpus(tmp_path, **corpus, train=["more"]))


def test_references_are_as_many_as_what_they_belong_to(tmp_path):
    with pytest.raises(ValueError, match="has 2 entries, but test has 1"):
        files_corpus(tmp_path, test_references=["a", "b"])


@pytest.mark.parametrize(
    "entries",
    [
        {"test": ["sacrebleu:wmt14", "sacrebleu:wmt14/full"]},
        {"valid": ["a", "a"]},
        {"test": ["a", "b"], "test_references": ["sacrebleu:wmt22", "sacrebleu:wmt22"]},
    ],
)
def test_entries_with_one_name_in_results_are_refused(tmp_path, entries):
    with pytest.raises(ValueError, match="two entries have the name"):
        files_corpus(tmp_path, **entries)
    files_corpus(tmp_path, test=["a", "b"], test_references=["c", "c"])
