"""Checkpoints: complete or absent, checked when read, and the right ones kept. No damaged byte is
used, and no hostile manifest gets further than a line."""

import hashlib
import json

import pytest
import torch
from safetensors.torch import save
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training import manifest
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, OPTIMIZER, STATE, DamagedError, Progress
from shapeshift.training.weights import load_weights

from ..conftest import flip, snapshot
from .models import linear, same, state

FILES = (MODEL, OPTIMIZER, STATE)


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of update 7."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    checkpoints.save(*linear(0), Progress(update=7, epoch=1, batch=3, elapsed_s=0.1))
    return checkpoints


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam])
def test_what_was_saved_comes_back(tmp_path, kind):
    checkpoints = Checkpoints(tmp_path, keep=1)
    model, optimizer = linear(0, kind)
    model.register_module("tied", nn.Linear(2, 2))
    model.tied.weight = model.weight
    progress = Progress(12, 2, 5, 8, best_loss=1 / 3, best_score=7.0, elapsed_s=0.1 + 0.2)
    path = checkpoints.save(model, optimizer, progress)
    assert path == tmp_path / "update-00000012"
    assert {x.name for x in path.iterdir()} == set(FILES)

    other, its_optimizer = linear(1, kind)
    other.register_module("tied", nn.Linear(2, 2))
    other.tied.weight = other.weight
    assert not same(state(other, its_optimizer), state(model, optimizer))
    assert checkpoints.restore(12, other, its_optimizer) == progress
    assert same(state(other, its_optimizer), state(model, optimizer))
    assert checkpoints.progress(12) == progress


def test_the_newest_and_the_best_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.updates() == []
    kept = []
    for update, best in ((1, None), (2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (10, 6), (100, 6)):
        checkpoints.save(*linear(0), Progress(update, best_update=best))
        kept.append(checkpoints.updates())
    assert kept == [[1], [1, 2], [2, 3], [2, 3, 4], [2, 4, 5], [5, 6], [6, 10], [6, 10, 100]]


@pytest.mark.parametrize("file", FILES)
def test_resuming_falls_back_says_so_and_keeps_what_is_damaged(tmp_path, file):
    checkpoints = Checkpoints(tmp_path, keep=3)
    assert checkpoints.resume(*linear(0)) is None
    for update in (7, 8, 9):
        checkpoints.save(*linear(update), Progress(update=update))
    flip(checkpoints.path(9) / file)
    (checkpoints.path(8) / STATE).unlink()
    damaged = {x.name: x.read_bytes() for x in checkpoints.path(9).iterdir()}

    other = linear(1)
    before = state(*other)
    with pytest.raises(DamagedError, match=f"update-00000009/{file}: .*use another"):
        checkpoints.restore(9, *other)
    assert same(state(*other), before)
    resumed = checkpoints.resume(*other)
    assert resumed.progress == Progress(update=7)
    assert same(state(*other), state(*linear(7)))
    assert str(resumed) == f"going on after update 7, from {checkpoints.path(7)}"
    newest, older = resumed.skipped
    aside = tmp_path / "damaged-update-00000009"
    assert newest.startswith(f"checkpoint of update 9 is damaged ({file}: ")
    assert newest.endswith(f"); kept as {aside}")
    assert "update 8 is damaged (state.json: " in older
    assert checkpoints.updates() == [7]

    checkpoints.save(*linear(6), Progress(update=9))  # the run comes there again, and is hit again
    flip(checkpoints.path(9) / file)
    (skipped,) = checkpoints.resume(*linear(1)).skipped
    assert skipped.endswith("damaged-update-00000009-2")
    flip(checkpoints.path(7) / OPTIMIZER)
    before = state(*other)
    with pytest.raises(ShapeshiftError, match=r"all 1 checkpoints are damaged.*move this folder"):
        checkpoints.resume(*other)
    assert same(state(*other), before)
    assert checkpoints.updates() == [7]
    assert {x.name: x.read_bytes() for x in aside.iterdir()} == damaged


def test_another_models_checkpoint_is_refused_and_not_called_damaged(saved):
    wide = linear(1, width=5)
    before = state(*wide)
    with pytest.raises(ShapeshiftError, match=r"'bias', .* \(2,\), expected .* \(5,\)"):
        saved.resume(*wide)
    assert same(state(*wide), before)
    assert saved.updates() == [7]
    path = saved.path(7) / MODEL
    with pytest.raises(ShapeshiftError, match=r"4 parameters differ, such as '0\.bias'"):
        load_weights(nn.Sequential(nn.Linear(2, 2)), path)
    with pytest.raises(ShapeshiftError, match=r"'bias', .* expected none"):
        load_weights(nn.Linear(2, 2, bias=False), path)


def test_weights_that_are_not_finite_are_not_saved(saved):
    model, optimizer = linear(0)
    with torch.no_grad():
        model.bias[1] = float("inf")
    with pytest.raises(ShapeshiftError, match="bias is not finite after update 8"):
        saved.save(model, optimizer, Progress(update=8))
    assert saved.updates() == [7]


def test_cleaning_up_never_reaches_through_a_link(tmp_path):
    archive = tmp_path / "archive"
    (archive / "deep").mkdir(parents=True)
    (archive / "deep" / "file").write_text("precious")
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    checkpoints.directory.mkdir()
    for name in ("update-00000001", ".partial-x", ".partial-update-00000004"):
        (checkpoints.directory / name).symlink_to(archive)
    (checkpoints.directory / "update-00000002").symlink_to("gone")
    for update in (3, 4):
        checkpoints.save(*linear(0), Progress(update=update))
    assert [x.name for x in checkpoints.directory.iterdir()] == ["update-00000004"]
    assert not checkpoints.path(4).is_symlink()
    assert (archive / "deep" / "file").read_text() == "precious"


def test_nothing_is_written_or_deleted_through_a_linked_folder(tmp_path):
    theirs = tmp_path / "elsewhere"
    for name in (".partial-update-00000001", "update-00000001"):
        (theirs / name).mkdir(parents=True)
        (theirs / name / "precious").write_text("precious")
    before = snapshot(theirs)
    (tmp_path / "checkpoints").symlink_to(theirs)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    for act, given in ((checkpoints.save, (Progress(9),)), (checkpoints.resume, ())):
        with pytest.raises(ShapeshiftError, match=r"is a link to .*/elsewhere, and nothing is"):
            act(*linear(0), *given)
    assert snapshot(theirs) == before


def test_nothing_is_written_or_deleted_through_a_linked_checkpoint(saved, tmp_path):
    theirs = saved.path(7).rename(tmp_path / "elsewhere")
    (theirs / ".partial-mine").write_text("precious")
    saved.path(7).symlink_to(theirs)
    before = snapshot(theirs)
    assert saved.resume(*linear(0)).progress.update == 7  # reading follows it
    with pytest.raises(ShapeshiftError, match="update-00000007: is a link to"):
        saved.record(Progress(7, 1, 3, elapsed_s=0.2))
    saved.save(*linear(0), Progress(9))
    assert snapshot(theirs) == before


@pytest.fixture
def two(memory):
    """Two checkpoints, of updates 1 and 2."""
    checkpoints = Checkpoints(memory / "checkpoints", keep=2)
    for update in (1, 2):
        checkpoints.save(*linear(update), Progress(update, 3, 14, 1, 0.1 + 0.2, 7.25))
    return checkpoints


def read(folder):
    known = manifest.read_manifest(folder)
    return [manifest.read_verified(folder, name, known) for name in (MODEL, OPTIMIZER)]


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_in_any_byte_and_every_truncation_are_noticed(two, file):
    folder = two.path(2)
    path = folder / file
    content = path.read_bytes()
    read(folder)
    for place in range(len(content)):
        flipped = bytes([content[place] ^ 1 << place % 8])
        for damaged in (content[:place] + flipped + content[place + 1 :], content[:place]):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError):
                read(folder)


def forged(document):
    """Return a manifest with the right hash, as an attacker would write it."""
    document = {key: value for key, value in document.items() if key != "sha256"}
    content = json.dumps(document, sort_keys=True).encode()
    document["sha256"] = hashlib.sha256(content).hexdigest()
    return json.dumps(document, indent=2).encode() + b"\n"


HASH = "0" * 64
HOSTILE = {
    "name of a parent": {"files": {MODEL: HASH, f"../update-00000001/{OPTIMIZER}": HASH}},
    "hash of another type": {"files": {MODEL: 7, OPTIMIZER: HASH}},
    "unknown progress": {"progress": {"update": 2, "rank": 1}},
    "another update": {"progress": {"update": 1}},
    "unknown key": {"extra": 1},
    "deep lists": b"[" * 1_000_000,
}
"""Changes of a manifest, whose hash is made to fit, or all of its bytes."""


def restore_forged(two, content):
    """Return how a checkpoint with this manifest is refused."""
    path = two.path(2) / STATE
    path.write_bytes(content)
    with pytest.raises(ShapeshiftError) as caught:
        two.restore(2, *linear(9))
    message = str(caught.value).replace(str(path.parent), "")
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_ends_in_one_line(two, name):
    content = (two.path(2) / STATE).read_bytes()
    document = json.loads(content)
    assert forged(document) == content
    hostile = HOSTILE[name]
    content = hostile if isinstance(hostile, bytes) else forged(document | hostile)
    assert restore_forged(two, content).startswith("/state.json: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (MODEL, b"\xff" * 100, "not a readable safetensors file"),
        (OPTIMIZER, save({"step": torch.ones(1)}), "'step' does not belong to an optimiser"),
    ],
)
def test_a_file_that_fits_the_manifest_but_is_none_of_ours(two, name, content, message):
    folder = two.path(2)
    (folder / name).write_bytes(content)
    document = json.loads((folder / STATE).read_bytes())
    document["files"][name] = hashlib.sha256(content).hexdigest()
    assert message in restore_forged(two, forged(document))


def test_what_may_not_be_read_is_not_called_damaged(two, monkeypatch):
    def refuse(path, most=None):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest, "read", refuse)
    with pytest.raises(ShapeshiftError, match="may not be read; fix its permissions"):
        two.resume(*linear(9))
    assert two.updates() == [1, 2]
