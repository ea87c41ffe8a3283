"""Checkpoints: complete or absent, checked when read, and the right ones kept."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import (
    MODEL,
    OPTIMIZER,
    STATE,
    Checkpoints,
    Progress,
    average,
    load_weights,
)

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


@pytest.mark.parametrize("file", FILES)
def test_a_save_that_fails_leaves_what_was_there(saved, file, monkeypatch):
    from shapeshift.training import checkpoints as module

    def fail(path):
        if path.name == file:
            raise OSError("the disk went away")

    monkeypatch.setattr(module, "_sync", fail)
    with pytest.raises(OSError, match="went away"):
        saved.save(*make(1), Progress(update=8))
    assert saved.updates() == [7]
    saved.restore(7, *make(2))


def test_a_deletion_that_is_cut_short_leaves_no_half_of_a_checkpoint(saved, monkeypatch):
    from shapeshift.training import checkpoints as module

    saved.save(*make(), Progress(update=8))
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "rmtree", lambda path: (path / MODEL).unlink())
        saved.save(*make(), Progress(update=9))
    assert saved.updates() == [8, 9]
    saved.save(*make(), Progress(update=10))
    assert len(list(saved.directory.iterdir())) == 2


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
    with pytest.raises(ShapeshiftError, match="update-00000007") as caught:
        saved.restore(7, model, optimizer)
    assert "\n" not in str(caught.value)
    assert same(snapshot(model, optimizer), before)


@pytest.mark.parametrize("text", ["[]", "{}", "null", "7", '{"progress": {"update": 8}}'])
def test_a_state_that_is_none_is_one_line(saved, text):
    (saved.path(7) / STATE).write_text(text, encoding="utf-8")
    for read in (saved.progress, lambda update: saved.restore(update, *make())):
        with pytest.raises(ShapeshiftError, match="not a readable checkpoint; remove it and run"):
            read(7)


def test_a_number_changed_in_the_state_is_noticed(saved):
    path = saved.path(7) / STATE
    state = json.loads(path.read_text(encoding="utf-8"))
    state["progress"]["batch"] += 1
    path.write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="differs from what was saved"):
        saved.restore(7, *make())


def test_another_models_checkpoint_is_refused(saved):
    wide = make(1, width=5)
    before = snapshot(*wide)
    with pytest.raises(ShapeshiftError, match=r"0\.weight has shape \(3, 3\), expected \(5, 5\)"):
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


def test_the_average_is_the_mean(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    models = [make(seed) for seed in range(3)]
    paths = [
        checkpoints.save(*pair, Progress(update=update)) / MODEL
        for update, pair in enumerate(models, start=1)
    ]
    average(paths, tmp_path / "average.safetensors")
    found = load_file(tmp_path / "average.safetensors")
    assert found.keys() == {"0.weight", "0.bias"}
    for name, tensor in found.items():
        values = [dict(model.named_parameters())[name].detach().numpy() for model, _ in models]
        expected = sum(value.astype("float64") for value in values) / 3
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, torch.from_numpy(expected.astype("float32")))
    model, _ = make(9)
    load_weights(model, tmp_path / "average.safetensors")
    assert torch.equal(model[2].weight, found["0.weight"])
    assert {x.name for x in tmp_path.iterdir()} == {"checkpoints", "average.safetensors"}


def test_what_cannot_be_averaged_is_refused(saved, tmp_path):
    target = tmp_path / "average.safetensors"
    with pytest.raises(ShapeshiftError, match="no checkpoint to average"):
        average([], target)
    here = saved.path(7) / MODEL
    with pytest.raises(ShapeshiftError, match=r"absent\.safetensors: no such file"):
        average([here, tmp_path / "absent.safetensors"], target)
    other = Checkpoints(tmp_path / "other", keep=1)
    foreign = other.save(*make(width=5), Progress(update=1)) / MODEL
    with pytest.raises(ShapeshiftError, match="holds another model"):
        average([here, foreign], target)
    truncate(foreign)
    with pytest.raises(ShapeshiftError, match="not a readable safetensors file"):
        average([foreign], target)
    assert not target.exists()
