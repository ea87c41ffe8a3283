"""Corpora of the hub: what is asked of the `datasets` library, its errors, and, where it is
installed, a dataset in a local folder."""

import errno
import hashlib
import json
import random
import shutil
import sys
from types import ModuleType, SimpleNamespace

import pytest

from shapeshift.data.config import DataConfig, HubCorpus, SubwordsConfig
from shapeshift.data.corpora import corpus_fingerprint, fetch, read_split
from shapeshift.data.prepare import prepare
from shapeshift.data.sources import hub
from shapeshift.disk import Disk
from shapeshift.errors import ShapeshiftError

COMMIT = "a" * 40
SPLITS = {"train": 200, "validation": 5, "test": 6}


def row(split, number):
    return {"translation": {"en": f"{split} {number}", "de": f"{split} Nr. {number}"}}


class Stream:
    """A split of four files; the connection breaks when `library.left` more rows have come."""

    num_shards = 4

    def __init__(self, library, split):
        self.library, self.split = library, split

    def shard(self, num_shards, index):
        assert num_shards == 4
        self.library.opened.append((self.split, index))
        size = -(-SPLITS[self.split] // 4)
        for number in range(SPLITS[self.split])[index * size : (index + 1) * size]:
            if not self.library.left:
                raise ConnectionError("cut")
            self.library.left -= 1
            yield self.library.rows(self.split, number)


@pytest.fixture
def library(monkeypatch):
    """A stand-in for `datasets`, which records what it is asked for."""
    module = ModuleType("datasets")
    module.__version__ = "5"
    module.asked, module.opened, module.rows, module.left = [], [], row, 10_000

    def load_dataset(repo, subset, *, split, revision, streaming):
        module.asked.append((repo, subset, split, revision, streaming))
        if split not in SPLITS:
            raise ValueError(f"Bad split: {split}. Available splits: {[*SPLITS]}")
        return Stream(module, split)

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


def test_a_dataset_becomes_text_and_is_asked_for_once(library, corpus):
    files = fetch(corpus)
    assert library.asked == [("a/b", "de-en", split, COMMIT, True) for split in SPLITS]
    assert next(read_split(files, "test")) == ("test 0", "test Nr. 0")
    assert len(list(read_split(files, "train"))) == 200
    assert fetch(corpus) == files
    assert len(library.asked) == 3
    record = json.loads((files.root / hub.RECORD).read_text())
    assert record["commit"] == COMMIT
    assert record["settings"]["repo"] == "a/b"
    text = (files.root / "valid-validation.de").read_bytes()
    assert len(record["files"]) == 6
    assert record["files"]["valid-validation.de"] == {
        "lines": 5,
        "bytes": len(text),
        "sha256": hashlib.sha256(text).hexdigest(),
    }
    assert {path.name for path in files.root.iterdir()} == {hub.RECORD, *record["files"]}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def break_off(library, corpus, left):
    """Fetch until `left` rows have come; return the folder of what is kept."""
    library.left, library.opened = left, []
    with pytest.raises(ShapeshiftError, match=r"ConnectionError: cut.*continues from there"):
        fetch(corpus)
    library.left = 10_000
    return next(path for path in corpus.root.iterdir() if path.is_dir())


@pytest.mark.parametrize("drawn", [{}, {"share": 0.3}, {"share": 0.9, "max_pairs": 170}])
def test_what_has_come_is_kept_and_taken_up_again(drawn, library, corpus, tmp_path):
    corpus = changed(corpus, **drawn)
    whole = fetch(changed(corpus, root=tmp_path / "whole"))
    break_off(library, corpus, 70)
    assert library.opened == [("train", 0), ("train", 1)]
    break_off(library, corpus, 20 + 40)
    assert library.opened == [("train", 1), ("train", 2)]
    library.opened = []
    assert content(fetch(corpus).root) == content(whole.root)
    assert library.opened[:2] == [("train", 2), ("train", 3)]
    assert [path for path in corpus.root.iterdir() if path.is_dir()] == [hub.folder_of(corpus)]


def test_a_split_that_has_come_is_not_read_again(library, corpus, tmp_path):
    whole = fetch(changed(corpus, root=tmp_path / "whole"))
    break_off(library, corpus, 200 + 3)
    library.opened = []
    assert content(fetch(corpus).root) == content(whole.root)
    assert {split for split, _ in library.opened} == {"validation", "test"}


def test_damage_to_what_is_kept_is_found(library, corpus, tmp_path):
    whole = fetch(changed(corpus, root=tmp_path / "whole"))
    kept = break_off(library, corpus, 120)
    shutil.copytree(kept, tmp_path / "kept")
    draw = random.Random(1)
    library.left = 10**6
    for number in range(30):
        part = kept / "parts" / f"train-train.{draw.randrange(2)}"
        data = bytearray(part.read_bytes())
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        torn = data[: draw.randrange(len(data))], data * 2, data + b"x", b""
        part.write_bytes(data if number % 3 else draw.choice(torn))
        folder = fetch(corpus).root
        assert content(folder) == content(whole.root), number
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "kept", kept)


@pytest.mark.parametrize("name", ["", "parts", "parts/train-train.0", "parts/train-train.1"])
def test_links_are_not_written_through(name, library, corpus, tmp_path):
    kept, moved = break_off(library, corpus, 70), tmp_path / "moved"
    (kept / name).rename(moved) if (kept / name).exists() else moved.write_text("precious")
    (kept / name).symlink_to(moved)

    def everything():
        return {path: path.is_file() and path.read_bytes() for path in [moved, *moved.rglob("*")]}

    before = everything()
    fetch(corpus)
    assert everything() == before


def test_a_full_disk_is_one_sentence(library, corpus, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "write", write)
    with pytest.raises(ShapeshiftError, match="cannot be written: No space left on device"):
        fetch(corpus)
    monkeypatch.undo()
    corpus.root.rename(corpus.root.with_name("moved"))
    corpus.root.write_text("a file")
    with pytest.raises(ShapeshiftError, match="cannot be written"):
        fetch(corpus)


@pytest.mark.parametrize(
    "record", [b"", b"{", b"[]", b"\xff", b'{"files": 3}', b'{"files": {"x": {}}}', b"[" * 10**6]
)
def test_a_damaged_record_is_one_sentence(record, library, corpus):
    folder = fetch(corpus).root
    (folder / hub.RECORD).write_bytes(record)
    with pytest.raises(ShapeshiftError, match=r"corpus\.json: cannot be read, or is damaged"):
        fetch(corpus)
    shutil.rmtree(folder)
    fetch(corpus)


def resolve(monkeypatch, commit):
    """Have the hub name a commit for the branch `main`."""

    class HfApi:
        def dataset_info(self, repo, *, revision):
            assert (repo, revision) == ("a/b", "main")
            return SimpleNamespace(sha=commit)

    module = ModuleType("huggingface_hub")
    module.HfApi = HfApi
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)


@pytest.mark.parametrize("what", ["commit", "library"])
def test_text_of_another_commit_is_not_gone_on_with(what, library, corpus, monkeypatch):
    corpus = changed(corpus, revision="main")
    resolve(monkeypatch, COMMIT)
    break_off(library, corpus, 70)
    break_off(library, corpus, 40)
    assert library.opened == [("train", 1)]
    if what == "commit":
        resolve(monkeypatch, "b" * 40)
    else:
        library.__version__ = "6"
    library.opened = []
    library.rows = lambda split, number: row(split, number + 1)
    files = fetch(corpus)
    assert library.opened[0] == ("train", 0)
    assert next(read_split(files, "train"))[0] == "train 1"


def test_a_folder_of_this_machine_is_read_from_the_beginning(library, corpus, tmp_path):
    local = changed(corpus, repo=str(tmp_path))
    library.left = 70
    with pytest.raises(ShapeshiftError, match="cut"):
        fetch(local)
    assert [path for path in corpus.root.iterdir() if path.is_dir()] == []


def test_fetched_text_that_has_changed_is_refused(library, corpus):
    path = fetch(corpus).root / "train-train.en"
    text = path.read_bytes()
    path.write_bytes(text.replace(b"train 7\n", b"train 8\n"))
    with pytest.raises(ShapeshiftError, match=r"train-train\.en: the SHA-256 is .* fetch it again"):
        corpus_fingerprint(corpus)
    path.write_bytes(text[:-1])
    for read in (fetch, corpus_fingerprint):
        with pytest.raises(ShapeshiftError, match="has 1,889 bytes, and had 1,890 when"):
            read(corpus)
    record = json.loads((path.parent / hub.RECORD).read_text())
    del record["files"]  # as records once were
    (path.parent / hub.RECORD).write_text(json.dumps(record))
    assert corpus_fingerprint(corpus) == corpus_fingerprint(fetch(corpus))


def test_the_fingerprint_is_of_the_text(library, corpus, tmp_path):
    with pytest.raises(ShapeshiftError, match="has not been fetched; run `shapeshift prepare`"):
        corpus_fingerprint(corpus)
    first = corpus_fingerprint(fetch(corpus))
    assert corpus_fingerprint(corpus) == first
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
    assert draw(share=0.1, max_pairs=3) == tenth[:3]
    assert len(list(read_split(fetch(changed(corpus, share=0.1)), "test"))) == 6


def test_two_columns_and_what_is_missing_in_them(library, corpus):
    library.rows = lambda split, number: {"a": f"x\n{number}", "b": None, "c": 1}
    files = fetch(changed(corpus, columns=["a", "b"], test=["test", "validation"]))
    assert list(read_split(files, "test"))[4:7] == [("x 4", ""), ("x 5", ""), ("x 0", "")]


def test_prepared_from_the_hub(library, corpus, tmp_path):
    config = DataConfig(corpus=corpus, subwords=SubwordsConfig(vocab_size=40))
    data = prepare(config, tmp_path / "out")
    assert [len(data.train), len(data.valid), len(data.test)] == [200, 5, 6]
    assert data.text("valid")[1][0] == "validation Nr. 0"
    assert prepare(config, tmp_path / "out").report == data.report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train": ["trian"]}, r"the dataset a/b: Bad split: trian\. Available splits"),
        ({"column": "text"}, r"no column 'text' of both languages \(there are translation\)"),
        ({"target": "fr"}, r"a/b, train: no 'fr' \(there are en, de\)"),
        ({"columns": ["translation", "y"]}, r"a/b, train: no 'y' \(there are translation\)"),
    ],
)
def test_what_is_not_there_is_named_and_nothing_is_left(settings, message, library, corpus):
    with pytest.raises(ShapeshiftError, match=message):
        fetch(changed(corpus, **settings))
    assert [path for path in corpus.root.iterdir() if path.is_dir()] == []


class DatasetNotFoundError(FileNotFoundError):
    """As in `datasets.exceptions`."""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DatasetNotFoundError("Dataset 'a/b' doesn't exist"), "is not on the hub, or is not publi"),
        (ConnectionError("Couldn't reach 'a/b'\non the Hub"), "reach 'a/b' on the Hub.*network"),
        (ValueError("BuilderConfig 'x' not found."), "BuilderConfig 'x' not found.*corpus.subset"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_errors_of_the_library_are_one_line(error, message, late, library, corpus):
    def fail(*args, **kwargs):
        raise error

    if late:
        library.rows = fail
    else:
        library.load_dataset = fail
    with pytest.raises(ShapeshiftError, match=message) as caught:
        fetch(corpus)
    assert "\n" not in str(caught.value)


def test_the_extra_is_named(monkeypatch, corpus):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ShapeshiftError, match=r"pip install 'shapeshift\[hub\]'"):
        fetch(corpus)


def test_a_branch_is_read_at_one_commit(library, corpus, monkeypatch):
    resolve(monkeypatch, COMMIT)
    fetch(changed(corpus, revision="main"))
    assert {asked[3] for asked in library.asked} == {COMMIT}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_local_folder_through_the_library_itself(suffix, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "mine"
    folder.mkdir()
    for split, size in SPLITS.items():
        for part in range(2):  # of two files
            rows = [row(split, number) for number in range(size)[part * 4 :][: size if part else 4]]
            data = datasets.Dataset.from_list(rows)
            path = str(folder / f"{split}-0000{part}-of-00002.{suffix}")
            data.to_json(path) if suffix == "jsonl" else data.to_parquet(path)
    corpus = HubCorpus(root=tmp_path / "c", repo=str(folder), source="de", target="en")
    assert list(read_split(fetch(corpus), "test"))[5] == ("test Nr. 5", "test 5")
    assert [source for source, _ in read_split(fetch(corpus), "train")] == [
        f"train Nr. {number}" for number in range(200)
    ]
    with pytest.raises(ShapeshiftError, match=r"Bad split: dev\. Available splits"):
        fetch(changed(corpus, valid=["dev"]))
    with pytest.raises(ShapeshiftError, match=r"'x' not found.*look at data\.corpus\.subset"):
        fetch(changed(corpus, subset="x"))

    monkeypatch.setattr(hub, "_commit", lambda corpus: COMMIT)  # as if it were on the hub
    again, texts, left = changed(corpus, root=tmp_path / "again"), hub._texts, [None] * 100

    def interrupted(*args):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return texts(*args)

    monkeypatch.setattr(hub, "_texts", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch(again)
    left += [None] * (196 + 5 + 6)  # the second file of train again, then the others
    assert (
        content(fetch(again).root)["train-train.en"]
        == content(fetch(corpus).root)["train-train.en"]
    )
    assert left == []
