"""What stops a first run is found before its folder is made, and the advice works when followed."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import store
from shapeshift._system.locks import locked
from shapeshift.run.folder import Run
from shapeshift.run.measures import translate_and_score
from shapeshift.run.train import train
from shapeshift.training.observer import Observer
from shapeshift.training.trainer import Trainer

SHORT = ("training.max_updates=2", "training.checkpoint_every=2")


@pytest.fixture
def go(make_config, text, tmp_path):
    """Trains in one folder, with a copy of the text as its corpus."""
    shutil.copytree(text, tmp_path / "text")

    def train_again(*overrides, **options):
        config = make_config(*SHORT, f"data.corpus.root={tmp_path / 'text'}", *overrides)
        prepared = tmp_path / "prepared"
        return train(config, tmp_path / "run", Observer(), prepared_root=prepared, **options)

    return train_again


def refused(go, *overrides):
    """Return the message with which training is refused, before its folder is made."""
    with pytest.raises(ShapeshiftError) as caught:
        go(*overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def add(tmp_path, split, num_words):
    """Add a pair of this many words, all of one subword, as the third of a split."""
    for language, word in (("low", "abc "), ("up", "ABC ")):
        path = tmp_path / "text" / f"{split}.{language}"
        lines = path.read_text(encoding="utf-8").splitlines()
        lines.insert(2, word * num_words)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_a_vocabulary_that_is_too_large_and_a_file_name_with_a_typing_error(go, tmp_path):
    assert "trian.low" in refused(go, "data.corpus.train=[trian]")
    message = refused(go, "data.subwords.vocab_size=4000")
    assert not (tmp_path / "run").exists()
    size = re.search(r"(\d+) or less|at most (\d+)", message)
    number = next(filter(None, size.groups()))
    assert go(f"data.subwords.vocab_size={number}").checkpoints.updates() == [2]


def test_a_disk_without_room_for_all_checkpoints(go, tmp_path, monkeypatch):
    many = ["training.max_updates=10", "training.checkpoint_every=1"]
    many += ["training.keep_checkpoints=5", "training.average_checkpoints=5"]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        message = refused(go, *many)
        assert message.endswith("0 are free; make room")
        assert not (tmp_path / "run" / "log.jsonl").exists()
        needed = int(re.search(r"up to ([\d,]+) bytes", message)[1].replace(",", ""))
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=needed * 7 // 8))
        remedy = refused(go, *many).rpartition("keep fewer with ")[2].split()
        assert [each[:-1] for each in remedy] == [each[:-1] for each in many[2:]]
        assert go(*many, *remedy).checkpoints.updates()[-1] == 10


def test_a_failure_before_the_first_checkpoint_leaves_nothing_that_binds(go, monkeypatch, tmp_path):
    def fit(*arguments):
        raise ShapeshiftError("the loss of update 1 is not finite")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "fit", fit)
        refused(go)
    run = go("training.schedule.peak=0.001", "data.subwords.vocab_size=44", "position=ape")
    assert run.subwords().source_size == 44
    assert Run(tmp_path / "run").config.position.name == "ape"


def test_a_run_of_another_version(tmp_path):
    store(tmp_path, {"config.yaml": b"training: {name_of_old: true}\n"})
    with pytest.raises(ShapeshiftError, match=r"name_of_old: unknown key.*another version"):
        Run(tmp_path)


def test_a_finished_model_without_its_checkpoints_is_not_trained_over(go):
    run = go()
    average = run.weights().read_bytes()
    shutil.rmtree(run.directory / "checkpoints")
    assert "new folder" in refused(go)
    assert run.weights().read_bytes() == average


@pytest.mark.parametrize("split", ["valid", "train"])
def test_a_pair_that_fits_into_no_batch(go, tmp_path, split):
    add(tmp_path, split, 25)
    message = refused(go, "training.batch.max_tokens=20")
    assert re.search(rf"pair 2 \(counted from 0, \S+/{split}\.\w+:3\) has \d+ tokens with", message)
    assert ("data.filter.max_length=19" in message) == (split == "train")
    assert not (tmp_path / "run").exists()
    advice = re.findall(r"\b(?:data|training|position|decoding)\.[\w.]+=[\w-]+", message)
    assert go(*advice).checkpoints.updates() == [2]


def limited(name, n):
    """Return the setting of a scheme for some `n` positions, which takes the place of `shape`."""
    part, ids = {
        "absolute": ({"kind": "learned", "num_positions": n}, {}),
        "shifted": ({"kind": "learned", "num_positions": n + 30}, {"max_offset": 30}),
        "randomized": ({"kind": "sinusoidal"}, {"max_length": n, "max_position": n + 5}),
    }[name]
    position_ids = {"name": name, **ids}
    return "position=" + json.dumps({"name": "mine", "position_ids": position_ids, "parts": [part]})


@pytest.mark.parametrize(
    ("kind", "split"),
    [("absolute", "train"), ("absolute", "test"), ("shifted", "train"), ("randomized", "valid")],
)
def test_text_that_is_too_long_for_the_positions(go, tmp_path, kind, split):
    add(tmp_path, split, 40)
    message = refused(go, limited(kind, 25))
    name = {"train": "training", "valid": "validation", "test": "test"}[split]
    assert re.match(rf"{name} pair 2 \(counted from 0, \S+/{split}\.\w+:3\) has", message)
    assert ("data.filter.max_length=24" in message) == (split == "train")
    assert ("decoding.on_long=split" in message) == (split == "test")
    assert not (tmp_path / "run").exists()
    more = int(re.search(r"add (\d+) to", message)[1])
    assert "positions for" in refused(go, limited(kind, 25 + more - 1))
    assert go(limited(kind, 25 + more)).checkpoints.updates() == [2]
    if split == "test":
        shutil.rmtree(tmp_path / "run")
        run = go(limited(kind, 25), "decoding.on_long=split")
        translate_and_score(run, prepared_root=tmp_path / "prepared")


def test_text_that_will_not_be_translated_may_be_too_long(go, tmp_path):
    add(tmp_path, "test", 40)
    assert go(limited("absolute", 25), tested=False).checkpoints.updates() == [2]


@pytest.mark.parametrize(
    ("split", "said"), [("valid", "validation pair 2"), ("test", "test pair 2")]
)
def test_text_over_the_limit_of_decoding(go, tmp_path, split, said):
    add(tmp_path, split, 40)
    limit = ("decoding.max_source_length=25", "training.validate_metrics=[bleu]")
    message = refused(go, *limit)
    assert said in message
    assert "decoding.on_long=split" in message
    translate_and_score(go(*limit, "decoding.on_long=split"), prepared_root=tmp_path / "prepared")


def test_two_trainings_in_one_folder(go, tmp_path):
    go()
    with locked(tmp_path / "run" / "lock"):
        message = refused(go)
    assert message == f"{tmp_path / 'run'}: another process is at work here; wait for it"
    go()


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def fail(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", fail)
    message = r"cannot be locked .*a file system with locks"
    with pytest.raises(ShapeshiftError, match=message), locked(tmp_path / "lock"):
        pass
    with locked(tmp_path / "lock", optional=True):
        pass
