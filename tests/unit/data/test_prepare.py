"""Preparing data end to end on small generated text."""

import os
import random
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import Disk
from shapeshift._system.hashes import SUMS
from shapeshift.data.config import (
    DataConfig,
    Extrapolate,
    GrammarCorpus,
    Interpolate,
    LengthSlice,
    SubwordsConfig,
    Vanilla,
)
from shapeshift.data.prepare import prepare
from shapeshift.data.prepared import Prepared
from shapeshift.data.subwords import SEP, split_parts

from ..conftest import flip, snapshot
from .text import files_corpus, write_pairs

SIZES = {"train": 205, "valid": 23, "test": 31}


@pytest.fixture
def text(tmp_path):
    """A folder of parallel text, with oddities in valid."""
    folder, rng = tmp_path / "text", random.Random(3)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 4))) for _ in range(50)]
    for split, size in SIZES.items():
        lines = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(size)]
        if split == "valid":
            lines[:3] = ["", "a\u2028b c\r", "<sep> </s>"]
        write_pairs(folder, **{split: [(line, line.upper()) for line in lines]})
    return folder


def config(folder, recipe=None, **subwords):
    return DataConfig(
        corpus=files_corpus(folder),
        subwords=SubwordsConfig(**({"vocab_size": 40} | subwords)),
        recipe=recipe or Vanilla(),
    )


@pytest.mark.parametrize("joint", [True, False])
def test_stores_text_and_subwords_belong_together(text, tmp_path, joint):
    prepared = prepare(config(text, joint=joint, vocab_size=30), tmp_path / "out")
    for split in ("valid", "test"):
        sources, references = prepared.text(split)
        store = prepared.store(split)
        assert len(sources) == len(references) == len(store) == SIZES[split]
        assert prepared.subwords.encode_source(sources) == [s.tolist() for s, _ in store]
        assert prepared.subwords.encode_target(references) == [t.tolist() for _, t in store]
    assert len(prepared.train) == SIZES["train"]
    assert prepared.text("valid")[0] == (text / "valid.en").read_bytes().decode().split("\n")[:-1]


def test_a_link_to_an_empty_folder_is_filled(text, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk", target_is_directory=True)
    prepared = prepare(config(text), tmp_path / "out")
    assert (tmp_path / "out").is_symlink()
    assert Prepared(tmp_path / "disk").report == prepared.report


def test_text_that_changes_meanwhile_is_noticed(text, tmp_path):
    train = text / "train.en"
    before = train.read_bytes()

    def change(stage, done, total):
        if stage == "encode train":
            train.write_bytes(before.replace(b"a", b"b"))

    with pytest.raises(ShapeshiftError, match="changed while it was prepared; run the command"):
        prepare(config(text), tmp_path / "out", change)
    assert not (tmp_path / "out").exists()
    assert len(prepare(config(text), tmp_path / "out").train) == SIZES["train"]


def test_interpolated_text_and_ids_have_the_same_parts(text, tmp_path):
    prepared = prepare(config(text, Interpolate()), tmp_path / "out")
    counts = {split: x.built for split, x in prepared.report.splits.items()}
    assert counts == {"train": 21, "valid": 3, "test": 4}
    sources, _ = prepared.text("test")
    parts = [split_parts(text) for text in sources]
    assert [len(x) for x in parts] == [10, 10, 10, 1]
    ids = prepared.subwords.encode_source(sources, joined=True)
    assert ids == [s.tolist() for s, _ in prepared.test]
    assert [s.tolist().count(SEP) for s, _ in prepared.valid] == [9, 9, 2]


def test_the_report_counts_and_measures(text, tmp_path):
    prepared = prepare(config(text, Extrapolate(max_length=20)), tmp_path / "out")
    train = prepared.report.splits["train"]
    assert train.read == SIZES["train"] == train.kept + sum(train.dropped.values())
    assert "source over 20 subwords" in train.dropped
    assert train.source_length.max <= 20 < prepared.report.splits["test"].source_length.max
    assert train.target_length.mean == pytest.approx(prepared.train.target_lengths.mean(), abs=0.01)
    assert prepared.report.splits["valid"].kept == SIZES["valid"]


def test_preparing_again_changes_nothing(text, tmp_path):
    progress = {}
    prepare(config(text), tmp_path / "out", lambda *x: progress.__setitem__(x[0], x[1:]))
    assert [*progress][:3] == ["check the text", "train subwords", "encode test"]
    assert progress["encode train"] == (205, 205)
    before = snapshot(tmp_path)
    progress.clear()
    prepare(config(text), tmp_path / "out", lambda *x: progress.__setitem__(x[0], x[1:]))
    assert snapshot(tmp_path) == before
    assert [*progress] == ["check the text"]
    prepare(config(text), tmp_path / "elsewhere")
    folders = [[*snapshot(tmp_path / name).values()] for name in ("out", "elsewhere")]
    assert folders[0] == folders[1]


def test_other_settings_or_text_are_refused_by_name(text, tmp_path):
    prepare(config(text), tmp_path / "out")
    before = snapshot(tmp_path / "out")
    with pytest.raises(ShapeshiftError, match=r"\(data\.subwords changed.*another dir"):
        prepare(config(text, vocab_size=41), tmp_path / "out")
    (text / "test.en").write_bytes((text / "test.en").read_bytes().replace(b"a", b"b"))
    with pytest.raises(ShapeshiftError, match="the corpus text changed"):
        prepare(config(text), tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


def test_somebody_elses_directory_is_left_alone(text, tmp_path):
    (tmp_path / "out").mkdir()
    prepare(config(text), tmp_path / "out")  # an empty one may be used
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x")
    for opening in (Prepared, lambda path: prepare(config(text), path)):
        with pytest.raises(ShapeshiftError, match=r"holds no prepared\.json"):
            opening(tmp_path / "thesis")


def test_a_failure_leaves_nothing_behind(text, tmp_path):
    (text / "valid.de").write_bytes((text / "valid.de").read_bytes() + b"one more\n")
    before, stages = snapshot(text), []
    with pytest.raises(ShapeshiftError, match=r"has 23 lines but .* has 24"):
        prepare(config(text), tmp_path / "out", lambda stage, *_: stages.append(stage))
    assert {*stages} == {"check the text"}
    assert snapshot(text) == before
    assert {x.name for x in tmp_path.iterdir()} == {"text", ".out.lock"}


def test_one_process_prepares_and_the_others_wait(text, tmp_path):
    stages = []

    def run(_):
        data = prepare(config(text), tmp_path / "out", lambda stage, *_: stages.append(stage))
        return data.report.fingerprint

    with ThreadPoolExecutor(3) as threads:  # a lock belongs to an open file: one for each thread
        assert len({*threads.map(run, range(3))}) == 1
    assert stages.count("encode valid") == 2  # its beginning and its end


def test_a_dataset_without_pairs_is_an_error(text, tmp_path):
    with pytest.raises(ShapeshiftError, match=r"none of 205 train pairs is left .*205 source un"):
        prepare(config(text, LengthSlice(min_length=500)), tmp_path / "out")
    write_pairs(text, test=[])
    with pytest.raises(ShapeshiftError, match=r"test\.en: has no lines; expected test text"):
        prepare(config(text), tmp_path / "out")


@pytest.mark.parametrize("name", ["train/source.tokens", "prepared.json", SUMS])
def test_damaged_data_are_prepared_again(text, tmp_path, name):
    out = tmp_path / "out"
    prepare(config(text), out)
    before = snapshot(out)
    flip(out / name)
    for opening in (Prepared, lambda path: prepare(config(text), path)):
        with pytest.raises(ShapeshiftError, match="differs from what was written") as caught:
            opening(out)
        assert caught.value.path == out / name
    assert f"; remove the folder {out} and run the command again" in str(caught.value)
    shutil.rmtree(out)
    prepare(config(text), out)
    assert snapshot(out) == before


def test_everything_is_on_the_disk_before_the_folder_has_its_name(text, tmp_path, monkeypatch):
    """Each file and each folder is flushed, then the folder is renamed, then its parent flushed."""
    flushed, rename = [], Disk.rename

    def renamed(disk, path, target):
        if target.name == "out":
            assert {x.stat().st_ino for x in [path, *path.rglob("*")]} <= set(flushed)
            flushed.clear()
        rename(path, target)

    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(Disk, "rename", renamed)
    prepare(config(text), tmp_path / "out")
    assert flushed == [tmp_path.stat().st_ino]


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="needs sha256sum")
def test_the_hashes_are_of_all_files_and_sha256sum_can_check_them(tmp_path):
    grammar = GrammarCorpus(num_train=300, num_valid=20, num_test=20, max_words=20)
    subwords = SubwordsConfig(vocab_size=200, joint=False)
    prepare(DataConfig(corpus=grammar, subwords=subwords), tmp_path / "out")
    check = ["sha256sum", "--check", "--strict", SUMS]
    done = subprocess.run(check, cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    files = snapshot(tmp_path / "out").keys()
    assert {line.removesuffix(": OK") for line in done.stdout.splitlines()} == files - {SUMS}
