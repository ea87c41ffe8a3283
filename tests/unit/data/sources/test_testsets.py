"""Test sets by sacreBLEU's names, from a folder made to look like sacreBLEU's; and fetching what a
corpus of files needs."""

import gzip
import hashlib
import io
import tarfile
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor

import pytest
from sacrebleu.dataset import DATASETS

from shapeshift.config import parse_config
from shapeshift.data import corpora
from shapeshift.data.config import Archive, FilesCorpus, label
from shapeshift.data.corpora import (
    corpus_fingerprint,
    fetch,
    missing_files,
    read_references,
    read_split,
)
from shapeshift.data.sources.presets import CORPORA
from shapeshift.data.sources.testsets import fetch_test_set, local_test_set
from shapeshift.errors import ShapeshiftError


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


def corpus(root, **settings):
    names = {"train": ["train"], "valid": ["valid"], "test": ["sacrebleu:wmt14/full"]}
    return FilesCorpus(root=root, source="en", target="de", **(names | settings))


def fill(root, *names):
    for name in names:
        (root / f"{name}.en").write_text(f"{name}\n")
        (root / f"{name}.de").write_text(f"{name} auf Deutsch\n")


def test_a_test_set_is_read_from_sacrebleus_folder(home, tmp_path):
    found = corpus(tmp_path, test=["sacrebleu:wmt14/full", "sacrebleu:wmt22"])
    assert fetch(found.model_copy(update={"valid": ["sacrebleu:wmt22"]})) is not None
    assert list(read_split(found, "test")) == [
        ("source of wmt14/full", "Satz von wmt14/full"),
        ("source of wmt22", "Satz von wmt22"),
    ]


def test_files_and_test_sets_stand_side_by_side_and_count_in_the_fingerprint(home, tmp_path):
    fill(tmp_path, "train", "valid", "more")
    mixed = corpus(tmp_path, test=["more", "sacrebleu:wmt22"], test_references=["more"] * 2)
    assert [source for source, _ in read_split(mixed, "test")] == ["more", "source of wmt22"]
    assert list(read_references(mixed, "test")) == ["more auf Deutsch"] * 2
    assert read_references(mixed, "valid") is None
    before = corpus_fingerprint(mixed)
    (home / "wmt22" / "wmt22.en-de.ref-A").write_text("anders\n")
    assert corpus_fingerprint(mixed) != before


def test_raw_references_may_be_a_test_set(home, tmp_path):
    fill(tmp_path, "train", "valid", "test.bpe")
    names = {"test": ["test.bpe"], "test_references": ["sacrebleu:wmt14/full"]}
    split = corpus(tmp_path, **names)
    assert list(read_references(split, "test")) == ["Satz von wmt14/full"]
    assert split.label("test", 0) == "newstest2014"
    assert split.label("valid", 0) == "valid"


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("wmt14/ful", ("en", "de"), r"no test set 'wmt14/ful'; did you mean 'wmt14/full'\?"),
        ("wmt14/full", ("de", "ja"), r"wmt14/full has no de-ja; it has .*de-en"),
    ],
)
def test_what_sacrebleu_does_not_have_is_named(name, pair, message):
    for look in (local_test_set, fetch_test_set):
        with pytest.raises(ShapeshiftError, match=message):
            look(name, *pair)


def test_without_a_network_the_remedy_is_named(home, tmp_path):
    with pytest.raises(ShapeshiftError, match=r"no way out.*sacrebleu -t wmt15 -l en-de"):
        fetch(corpus(tmp_path, test=["sacrebleu:wmt15"]))
    with pytest.raises(ShapeshiftError, match="wmt15 en-de has not been downloaded"):
        list(read_split(corpus(tmp_path, test=["sacrebleu:wmt15"]), "test"))


def test_one_at_a_time_fetches_a_test_set_and_the_others_wait(home, monkeypatch):
    source, reference = (home / "wmt15" / f"wmt15.en-de.{side}" for side in ("src", "ref"))
    asked = []

    def get_files(pair):  # in place and slowly, as sacreBLEU writes text
        asked.append(pair)
        source.write_text("x\n")
        with reference.open("w") as file:
            time.sleep(0.2)
            file.write("y\n")

    monkeypatch.setattr(DATASETS["wmt15"], "get_files", get_files)

    def fetched(_):
        return [path.read_text() for path in fetch_test_set("wmt15", "en", "de")]

    source.parent.mkdir()
    with ThreadPoolExecutor(3) as threads:  # a lock is of an open file: threads have one each
        assert [*threads.map(fetched, range(3))] == [["x\n", "y\n"]] * 3
    assert asked == ["en-de"]


def test_a_folder_that_nobody_may_write_into_is_read_without_a_lock(home, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert fetch_test_set("wmt22", "en", "de")[1].read_text() == "Satz von wmt22\n"
    assert [*home.rglob("*.lock")] == []


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("sacrebleu:wmt14/full", "newstest2014"),
        ("sacrebleu:wmt08", "newstest2008"),
        ("sacrebleu:wmt14", "newstest2014"),
        ("sacrebleu:wmt21", "wmt21"),
        ("wmt14/full", "wmt14/full"),
    ],
)
def test_results_call_test_sets_as_wmt_does(entry, expected):
    assert label(entry) == expected


def test_a_corpus_may_be_named_and_changed():
    base = {"data": {"corpus": "wmt14-en-de", "dataset": {"name": "extrapolate"}}}
    french = parse_config(base, ["data.corpus=wmt14-en-fr", "data.corpus.root=/x"]).data
    assert (french.corpus.target, str(french.corpus.root)) == ("fr", "/x")
    assert french.dataset.name == "extrapolate"
    assert parse_config(base).data.corpus.subset == "de-en"
    with pytest.raises(ShapeshiftError, match=r"unknown corpus 'wmt14-en-d'; did you mean"):
        parse_config(base, ["data.corpus=wmt14-en-d"])
    assert parse_config(parse_config(base).model_dump(mode="json")) == parse_config(base)


def test_every_preset_names_test_sets_that_sacrebleu_has():
    for name, section in CORPORA.items():
        entries = [x for key, value in section.items() if "references" in key for x in value]
        entries += [*section["valid"], *section["test"]]
        named = [x.removeprefix("sacrebleu:") for x in entries if x.startswith("sacrebleu:")]
        assert named, name
        for test_set in named:
            pairs = DATASETS[test_set].langpairs
            assert f"{section['source']}-{section['target']}" in pairs, (name, test_set)


def test_archives_are_fetched_where_a_file_is_missing(tmp_path, monkeypatch, home):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name in ("train.en", "./train.de.gz", "valid.en", ".git/config"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"x\n"))
    files = {"a.tar.gz": content.getvalue(), "valid.de.gz": gzip.compress(b"x\n")}
    asked = []

    def download(url, path, sha256, md5, on_progress):
        asked.append((url, sha256))
        path.write_bytes(files[path.name])
        return path

    monkeypatch.setattr(corpora, "download", download)
    sha256 = hashlib.sha256(files["a.tar.gz"]).hexdigest()
    archives = [
        Archive(url="https://example.org/get?id=1", file="a.tar.gz", sha256=sha256),
        Archive(url="https://example.org/valid.de.gz"),
    ]
    found = corpus(tmp_path, archives=archives)
    assert len(missing_files(found)) == 4
    fetch(found)
    assert missing_files(found) == []
    fetch(found)
    assert asked == [(archives[0].url, sha256), (archives[1].url, None)]
    assert list(read_split(found, "valid")) == [("x", "x")]
    assert not (tmp_path / ".git").exists()


def test_archives_that_lack_a_file_are_named(tmp_path, monkeypatch, home):
    monkeypatch.setattr(corpora, "download", lambda url, path, *_: path.write_bytes(b"x"))
    archive = Archive(url="https://example.org/valid.de.gz")
    with pytest.raises(ShapeshiftError, match=r"train\.en: no such file, nor in valid\.de\.gz"):
        fetch(corpus(tmp_path, archives=[archive]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://example.org/x"}, "expected an http or https URL"),
        ({"url": "https://example.org/get?id=1"}, "give `file`, a plain file name"),
        ({"url": "https://example.org/x", "file": "../x"}, "give `file`, a plain file name"),
        ({"url": "https://example.org/x", "sha256": "abc"}, "should match pattern"),
    ],
)
def test_an_archive_is_a_plain_file_from_the_web(settings, message):
    with pytest.raises(ValueError, match=message):
        Archive(**settings)


def test_references_are_as_many_as_what_they_belong_to(tmp_path):
    with pytest.raises(ValueError, match="has 2 entries, but test has 1"):
        corpus(tmp_path, test_references=["a", "b"])
