"""Checkpoints: complete or absent, checked when read, and the right ones kept."""

import hashlib
import json

import pytest
import torch
from torch import nn

from shapeshift.disk import Disk, write_file
from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import (
    MODEL,
    OPTIMIZER,
    STATE,
    DamagedError,
    File,
    Progress,
    read_manifest,
)
from shapeshift.training.weights import decode, encode, load_weights

FILES = (MODEL, OPTIMIZER, STATE)


def make(seed=0, kind=torch.optim.Adam, width=3):
    """A model with a shared weight, and its optimiser after two steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width, bias=False))
    model[2].weight = model[0].weight
    optimizer = kind(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, width)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def snapshot(model, optimizer):
    tensors = dict(model.state_dict())
    for index, values in optimizer.state_dict()["state"].items():
        tensors.update((f"{index}.{key}", value) for key, value in values.items())
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def saved(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    model, optimizer = make()
    checkpoints.save(model, optimizer, Progress(update=7, epoch=1, batch=3, elapsed_s=0.1))
    return checkpoints


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam])
def test_what_was_saved_comes_back(tmp_path, kind):
    checkpoints = Checkpoints(tmp_path, keep=1)
    model, optimizer = make(0, kind)
    progress = Progress(12, 2, 5, best_update=8, best_loss=1 / 3, elapsed_s=0.1 + 0.2)
    path = checkpoints.save(model, optimizer, progress)
    assert path == tmp_path / "update-00000012"
    assert sorted(x.name for x in path.iterdir()) == sorted(FILES)

    other = make(1, kind)
    assert not same(snapshot(*other), snapshot(model, optimizer))
    assert checkpoints.restore(12, *other) == progress
    assert same(snapshot(*other), snapshot(model, optimizer))
    assert checkpoints.progress(12) == progress


def test_the_newest_and_the_best_stay(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.updates() == []
    model, optimizer = make()
    kept = []
    for update, best in ((1, None), (2, 2), (3, 2), (4, 2), (5, 2), (6, 6), (10, 6), (100, 6)):
        checkpoints.save(model, optimizer, Progress(update, best_update=best))
        kept.append(checkpoints.updates())
    assert kept == [[1], [1, 2], [2, 3], [2, 3, 4], [2, 4, 5], [5, 6], [6, 10], [6, 10, 100]]
    assert {x.name for x in tmp_path.iterdir()} == {
        "update-00000006", "update-00000010", "update-00000100"
    }  # fmt: skip


def test_a_second_save_of_an_update_replaces_the_first(saved):
    model, optimizer = make(3)
    saved.save(model, optimizer, Progress(update=7))
    assert saved.updates() == [7]
    other = make(4)
    assert saved.restore(7, *other).batch == 0
    assert same(snapshot(*other), snapshot(model, optimizer))


def test_half_a_checkpoint_is_none_and_is_cleaned_up(saved):
    stray = saved.directory / ".partial-update-00000009"
    stray.mkdir()
    (stray / MODEL).write_bytes(b"half")
    (saved.directory / "notes").mkdir()  # not ours
    assert saved.updates() == [7]
    saved.save(*make(), Progress(update=9))
    assert sorted(x.name for x in saved.directory.iterdir()) == [
        "notes", "update-00000007", "update-00000009"
    ]  # fmt: skip


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    path.write_bytes(data)


def flip_header(path):
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def empty(path):
    path.write_bytes(b"")


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [flip, flip_header, truncate, empty, remove])
@pytest.mark.parametrize("file", FILES)
def test_damage_is_one_line_and_touches_nothing(saved, file, damage):
    damage(saved.path(7) / file)
    model, optimizer = make(1)
    before = snapshot(model, optimizer)
    with pytest.raises(DamagedError, match=f"update-00000007/{file}: .*use another") as caught:
        saved.restore(7, model, optimizer)
    assert "\n" not in str(caught.value)
    assert same(snapshot(model, optimizer), before)


@pytest.mark.parametrize("file", FILES)
def test_resuming_falls_back_says_so_and_keeps_what_is_damaged(saved, file):
    model, optimizer = make(5)
    saved.save(model, optimizer, Progress(update=8))
    saved.save(*make(6), Progress(update=9))
    flip(saved.path(9) / file)
    damaged = {x.name: x.read_bytes() for x in saved.path(9).iterdir()}

    other = make(1)
    resumed = saved.resume(*other)
    assert resumed.progress == Progress(update=8)
    assert same(snapshot(*other), snapshot(model, optimizer))
    assert str(resumed) == f"going on after update 8, from {saved.path(8)}"
    (skipped,) = resumed.skipped
    aside = saved.directory / "damaged-update-00000009"
    assert str(skipped).startswith(f"checkpoint of update 9 is damaged ({file}: ")
    assert str(skipped).endswith(f"); kept as {aside}")
    assert {x.name: x.read_bytes() for x in aside.iterdir()} == damaged
    assert saved.updates() == [8]

    saved.save(*make(6), Progress(update=9))  # the run comes there again, and is hit again
    flip(saved.path(9) / file)
    (skipped,) = saved.resume(*make(1)).skipped
    assert skipped.path == saved.directory / "damaged-update-00000009-2"
    for update in (10, 11, 12):
        saved.save(*make(6), Progress(update=update))
    assert {x.name: x.read_bytes() for x in aside.iterdir()} == damaged


def test_several_may_be_damaged_but_not_all(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    assert checkpoints.resume(*make()) is None
    for update in (1, 2, 3):
        checkpoints.save(*make(update), Progress(update=update))
    truncate(checkpoints.path(3) / MODEL)
    remove(checkpoints.path(2) / STATE)
    other = make(9)
    resumed = checkpoints.resume(*other)
    assert [x.update for x in resumed.skipped] == [3, 2]
    assert same(snapshot(*other), snapshot(*make(1)))

    flip(checkpoints.path(1) / OPTIMIZER)
    before = snapshot(*other)
    with pytest.raises(ShapeshiftError, match=r"all 1 checkpoints are damaged.*move this folder"):
        checkpoints.resume(*other)
    assert same(snapshot(*other), before)
    assert checkpoints.updates() == [1]


def test_an_intact_checkpoint_of_another_model_is_not_set_aside(saved):
    with pytest.raises(ShapeshiftError, match="holds another model"):
        saved.resume(*make(1, width=5))
    assert saved.updates() == [7]


def test_a_checkpoint_under_another_name_is_damaged(saved):
    saved.path(7).rename(saved.path(8))
    with pytest.raises(DamagedError, match="is of update 7"):
        saved.progress(8)


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"\n", bytes.upper])
def test_a_manifest_that_means_the_same_is_still_another(saved, change):
    path = saved.path(7) / STATE
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DamagedError):
        saved.progress(7)


def test_a_number_changed_in_the_state_is_noticed(saved):
    path = saved.path(7) / STATE
    state = json.loads(path.read_text(encoding="utf-8"))
    state["progress"]["batch"] += 1
    path.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    with pytest.raises(DamagedError, match="differs from what was saved"):
        saved.restore(7, *make())


@pytest.mark.parametrize("elapsed", [5, 5.0, 1e300, 0.1 + 0.2])
def test_numbers_come_back_as_they_were(saved, elapsed):
    saved.save(*make(), Progress(update=8, best_loss=1e-7, elapsed_s=elapsed))
    assert saved.progress(8) == Progress(update=8, best_loss=1e-7, elapsed_s=elapsed)


def test_another_models_checkpoint_is_refused(saved):
    wide = make(1, width=5)
    before = snapshot(*wide)
    with pytest.raises(ShapeshiftError, match=r"0\.weight has shape \(3, 3\) .* expected \(5, 5\)"):
        saved.restore(7, *wide)
    assert same(snapshot(*wide), before)

    deep = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with pytest.raises(ShapeshiftError, match=r"2 parameters are missing .*'1\.bias'"):
        load_weights(deep, saved.path(7) / MODEL)
    with pytest.raises(ShapeshiftError, match=r"1 are unknown, '0\.bias'"):
        load_weights(nn.Sequential(nn.Linear(3, 3, bias=False)), saved.path(7) / MODEL)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_not_saved(saved, value):
    model, optimizer = make()
    with torch.no_grad():
        model[0].bias[1] = value
    with pytest.raises(ShapeshiftError, match=r"0\.bias is not finite after update 8"):
        saved.save(model, optimizer, Progress(update=8))
    assert saved.updates() == [7]


def test_another_optimisers_state_is_refused(saved):
    model, _ = make()
    fewer = torch.optim.Adam([model[0].weight])
    with pytest.raises(ShapeshiftError, match=r"another optimiser's state: '1\.\w+' fits no"):
        saved.restore(7, model, fewer)
    swapped = torch.optim.Adam([model[0].bias, model[0].weight])
    with pytest.raises(
        ShapeshiftError, match=r"another optimiser's state: '\d\.exp_avg\w*' fits no"
    ):
        saved.restore(7, model, swapped)


def without(checkpoints, update, *lost):
    """Write the checkpoint again without some of its optimiser's tensors, hashes and all."""
    path = checkpoints.path(update)
    manifest = read_manifest(path)
    moments = decode((path / OPTIMIZER).read_bytes(), path / OPTIMIZER)
    left = {name: tensor for name, tensor in moments.items() if name not in lost}
    written = write_file(Disk(), path / OPTIMIZER, encode(left).chunks())
    files = manifest.files | {OPTIMIZER: File(bytes=written.num_bytes, sha256=written.sha256)}
    (path / STATE).write_bytes(manifest.model_copy(update={"files": files}).encode())


@pytest.mark.parametrize("lost", [("1.exp_avg", "1.exp_avg_sq", "1.step"), ("0.exp_avg_sq",)])
def test_a_checkpoint_without_some_moments_is_damaged(saved, lost):
    saved.save(*make(5), Progress(update=8))
    without(saved, 8, *lost)
    model, optimizer = make(1)
    before = snapshot(model, optimizer)
    with pytest.raises(DamagedError, match=f"lacks {len(lost)} of .* '{lost[0]}' for one"):
        saved.restore(8, model, optimizer)
    assert same(snapshot(model, optimizer), before)
    resumed = saved.resume(model, optimizer)
    assert resumed.progress.update == 7
    assert "lacks" in str(resumed.skipped[0])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam])
def test_a_parameter_without_a_gradient_so_far_goes_on_like_one_that_was_never_saved(
    tmp_path, kind
):
    def step(model, optimizer, modules):
        optimizer.zero_grad()
        for module in modules:
            module(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    def begin():
        torch.manual_seed(0)
        model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
        return model, kind(model.parameters(), lr=0.1)

    checkpoints = Checkpoints(tmp_path, keep=1)
    model, optimizer = begin()
    step(model, optimizer, model[:1])
    checkpoints.save(model, optimizer, Progress(update=1))
    again = begin()
    checkpoints.restore(1, *again)
    step(model, optimizer, model)
    step(*again, again[0])
    for own, other in zip(model.parameters(), again[0].parameters(), strict=True):
        assert torch.equal(own, other)


def test_cleaning_up_never_reaches_through_a_link(tmp_path):
    archive = tmp_path / "archive"
    (archive / "deep").mkdir(parents=True)
    (archive / "deep" / "file").write_text("precious")
    model, optimizer = make()
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    checkpoints.directory.mkdir()
    for name in (
        *("update-00000001", ".partial-x", ".partial-update-00000003", "update-00000003"),
        *(".replaced-update-00000002", ".replaced-update-00000004"),
    ):
        (checkpoints.directory / name).symlink_to(archive)
    (checkpoints.directory / "update-00000002").symlink_to("gone")
    for update in (2, 3, 4):
        checkpoints.save(model, optimizer, Progress(update=update))
    assert [x.name for x in checkpoints.directory.iterdir()] == ["update-00000004"]
    assert not checkpoints.path(4).is_symlink()
    assert (archive / "deep" / "file").read_text() == "precious"


class Usage:
    def __init__(self, free):
        self.free = free


def test_space_is_asked_for_before_the_first_save(tmp_path, monkeypatch):
    from shapeshift import disk

    model, optimizer = make()
    there = Checkpoints(tmp_path / "one", keep=2)
    path = there.save(model, optimizer, Progress(update=1))
    one = sum(x.stat().st_size for x in path.iterdir() if x.name != STATE)
    weights = (path / MODEL).stat().st_size

    def free(amount):
        monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: Usage(amount))

    fresh = Checkpoints(tmp_path / "no" / "such" / "folder", keep=2)
    headers = 4 * 1000  # of tiny tensors they are most of a file
    for checkpoints, num_saves, expected in ((fresh, 1, 1), (fresh, 50, 5), (there, 50, 4)):
        free(expected * one + weights + headers)
        checkpoints.require_space(model, num_saves)
        free(expected * one - headers if expected > 2 else one // 2)
        with pytest.raises(ShapeshiftError) as caught:
            checkpoints.require_space(model, num_saves)
        message = str(caught.value)
        assert "\n" not in message
        assert f"{expected} more checkpoints" in message
        assert "training.keep_checkpoints (now 2)" in message


def test_the_manifest_of_a_version_that_knew_no_best_score_is_intact(tmp_path):
    progress = {
        "update": 8, "epoch": 0, "batch": 8, "best_update": 4, "best_loss": 1.5, "elapsed_s": 2.5,
    }  # fmt: skip
    file = {"bytes": 1, "sha256": "0" * 64}
    document = {"progress": progress, "optimizer": {}, "files": {MODEL: file, OPTIMIZER: file}}
    content = json.dumps(document, sort_keys=True).encode()
    document["sha256"] = hashlib.sha256(content).hexdigest()
    (tmp_path / STATE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    assert read_manifest(tmp_path).progress == Progress(**progress)
