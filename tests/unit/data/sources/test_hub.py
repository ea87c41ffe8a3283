"""Corpora of the hub: what is asked of the `datasets` library, its errors, and, where it is
installed, a dataset in a local folder."""

import errno
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import HubCorpus
from shapeshift.data.corpora import corpus_fingerprint, fetch, read_split
from shapeshift.data.sources import hub

COMMIT = "a" * 40
SPLITS = {"train": 200, "validation": 5, "test": 6}


def row(split, number):
    return {"translation": {"en": f"{split} {number}", "de": f"{split} Nr. {number}"}}


@pytest.fixture
def library(monkeypatch):
    """A stand-in for `datasets`, which records what it is asked for."""
    module = ModuleType("datasets")
    module.asked, module.rows = [], row

    def load_dataset(repo, subset, *, split, revision):
        module.asked.append((repo, subset, split, revision))
        if split not in SPLITS:
            raise ValueError(f"Bad split: {split}. Available splits: {[*SPLITS]}")
        return (module.rows(split, number) for number in range(SPLITS[split]))

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module


@pytest.fixture
def corpus(tmp_path):
    return HubCorpus(
        root=tmp_path / "c", repo="a/b", subset="de-en", revision=COMMIT, source="en", target="de"
    )


def changed(corpus, **settings):
    return HubCorpus.model_validate(corpus.model_dump() | settings)


def folders(corpus):
    return [path for path in corpus.root.iterdir() if path.is_dir()]


def test_a_dataset_becomes_text_and_is_asked_for_once(library, corpus):
    files = fetch(corpus)
    assert library.asked == [("a/b", "de-en", split, COMMIT) for split in SPLITS]
    assert next(read_split(files, "test")) == ("test 0", "test Nr. 0")
    assert len(list(read_split(files, "train"))) == 200
    assert fetch(corpus) == files
    assert len(library.asked) == 3
    record = json.loads((files.root / hub.RECORD).read_text())
    assert record["commit"] == COMMIT
    assert record["settings"]["repo"] == "a/b"
    assert len([*files.root.iterdir()]) == 8  # the text, the record and the hashes


def test_what_breaks_off_leaves_nothing_and_the_next_call_fetches_all(library, corpus):
    def broken(split, number):
        if split == "test":
            raise OSError(errno.ENOSPC, "No space left on device")
        return row(split, number)

    library.rows = broken
    with pytest.raises(ShapeshiftError, match="cannot be written: No space left on device"):
        fetch(corpus)
    assert folders(corpus) == []
    library.rows = row
    fetch(corpus)
    assert folders(corpus) == [hub.folder_of(corpus)]


def test_fetched_text_that_has_changed_is_refused(library, corpus):
    path = fetch(corpus).root / "train-train.en"
    path.write_bytes(path.read_bytes().replace(b"a", b"b"))
    with pytest.raises(ShapeshiftError, match=r"differs from what was written.*remove the folder"):
        corpus_fingerprint(corpus)


def test_the_fingerprint_is_of_the_text(library, corpus, tmp_path):
    with pytest.raises(ShapeshiftError, match="has not been fetched; run `shapeshift prepare`"):
        corpus_fingerprint(corpus)
    first = corpus_fingerprint(fetch(corpus))
    moved = changed(corpus, root=tmp_path / "d")
    fetch(moved)
    assert corpus_fingerprint(moved) == first
    library.rows = lambda split, number: row(split, number + 1)
    other = changed(corpus, revision="b" * 40)
    fetch(other)
    assert corpus_fingerprint(other) != first


def test_a_share_is_drawn_by_the_seed(library, corpus):
    def draw(**settings):
        return list(read_split(fetch(changed(corpus, **settings)), "train"))

    tenth = draw(share=0.1)
    assert 8 <= len(tenth) <= 35
    assert tenth == sorted(tenth, key=lambda pair: int(pair[0].split()[1]))
    assert draw(share=0.1, column="translation") == tenth
    assert draw(share=0.1, seed=2) != tenth
    assert len(list(read_split(fetch(changed(corpus, share=0.1)), "test"))) == 6


def test_two_columns_and_what_is_missing_in_them(library, corpus):
    library.rows = lambda split, number: {"a": f"x\n{number}", "b": None, "c": 1}
    files = fetch(changed(corpus, columns=["a", "b"], test=["test", "validation"]))
    assert list(read_split(files, "test"))[4:7] == [("x 4", ""), ("x 5", ""), ("x 0", "")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": ["trian"]}, r"the dataset a/b cannot be read .*Bad split: trian\. Available"),
        ({"column": "text"}, r"a/b, train: no 'en' \(there are translation\)"),
        ({"target": "fr"}, r"a/b, train: no 'fr' \(there are en, de\)"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_left(settings, message, library, corpus):
    with pytest.raises(ShapeshiftError, match=message):
        fetch(changed(corpus, **settings))
    assert folders(corpus) == []


def test_a_branch_is_read_at_one_commit(library, corpus, monkeypatch):
    class HfApi:
        def dataset_info(self, repo, *, revision):
            assert (repo, revision) == ("a/b", "main")
            return SimpleNamespace(sha=COMMIT)

    module = ModuleType("huggingface_hub")
    module.HfApi = HfApi
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    fetch(changed(corpus, revision="main"))
    assert {asked[3] for asked in library.asked} == {COMMIT}


def test_a_local_folder_through_the_library_itself(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "mine"
    folder.mkdir()
    for split, size in SPLITS.items():
        rows = [row(split, number) for number in range(size)]
        datasets.Dataset.from_list(rows).to_parquet(str(folder / f"{split}.parquet"))
    corpus = HubCorpus(root=tmp_path / "c", repo=str(folder), source="de", target="en")
    assert list(read_split(fetch(corpus), "test"))[5] == ("test Nr. 5", "test 5")
    part = changed(corpus, train=["train[:2]"])
    sources = [source for source, _ in read_split(fetch(part), "train")]
    assert sources == ["train Nr. 0", "train Nr. 1"]
    with pytest.raises(ShapeshiftError, match=r"look at data\.corpus\."):
        fetch(changed(corpus, valid=["dev"]))


@pytest.mark.parametrize(
    "entries",
    [["test[:500]", "test[500:]"], ["train+validation", "train-validation"], ["test[9:]", "a"]],
)
def test_every_split_has_files_of_its_own(entries, library, corpus, monkeypatch):
    monkeypatch.setattr(library, "load_dataset", lambda *_, split, **__: [row(split, 0)])
    files = fetch(changed(corpus, test=entries))
    assert [source for source, _ in read_split(files, "test")] == [f"{x} 0" for x in entries]
    assert "test-a" in files.test or "a" not in entries
