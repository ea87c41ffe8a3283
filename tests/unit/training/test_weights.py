"""Files of weights: checked when read, and averaged."""

import json

import pytest
import torch
from safetensors.torch import load_file

from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, Progress
from shapeshift.training.weights import average, is_average_of, load_weights

from .models import linear


def header(entries, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(3,), offsets=(0, 12)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "nothing": b"",
    "huge length": header({"bias": entry()}, bytes(12), length=2**63),
    "not JSON": header(b"{bias: 1}"),
    "deeply nested": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "overlapping": header(
        {"bias": entry(), "weight": entry(shape=(3, 3), offsets=(8, 44))}, bytes(44)
    ),
    "shape that overflows": header({"bias": entry(shape=(2**62, 2**62, 4))}, bytes(12)),
    "wrong dtype": header({"bias": entry(dtype="I32"), "weight": entry("F32", (3, 3), (12, 48))},
                          bytes(48)),
    "narrow dtype": header({"bias": entry(dtype="F64", offsets=(0, 24)),
                            "weight": entry("F32", (3, 3), (24, 60))}, bytes(60)),
    "metadata of another type": header({"__metadata__": {"sha256": [1]}, "bias": entry()},
                                       bytes(12)),
    **{f"note {note}": header({"__metadata__": {"shapeshift": note}, "bias": entry()}, bytes(12))
       for note in ("[]", "null", "7", '{"average_of": []}', '{"sha256": 5}', "no JSON")},
    "no metadata, no weight": header({"__metadata__": None, "bias": entry()}, bytes(12)),
    "twice the same": header(b'{"bias":' + json.dumps(entry()).encode() + b',"bias":'
                             + json.dumps(entry(offsets=(12, 24))).encode() + b"}", bytes(24)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_one_line(tmp_path, name):
    path = tmp_path / "w.safetensors"
    path.write_bytes(HOSTILE[name])
    model, _ = linear(0, width=3)
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ShapeshiftError, match=r"w\.safetensors: ") as caught:
        load_weights(model, path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
    assert not is_average_of(path, [])
    assert all(map(torch.equal, model.parameters(), before))


@pytest.fixture
def three(memory):
    """Models and their checkpoints."""
    checkpoints = Checkpoints(memory / "checkpoints", keep=3)
    models = []
    for update in (1, 2, 3):
        model, optimizer = linear(update, width=3)
        models.append(model)
        checkpoints.save(model, optimizer, Progress(update=update))
    return models, [checkpoints.path(update) / MODEL for update in (1, 2, 3)]


def test_the_average_is_the_mean(three, memory):
    models, paths = three
    target = memory / "average.safetensors"
    average(paths, target)
    found = load_file(target)
    assert found.keys() == {"weight", "bias"}
    for name, tensor in found.items():
        values = [dict(model.named_parameters())[name].detach().numpy() for model in models]
        expected = sum(value.astype("float64") for value in values) / 3
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, torch.from_numpy(expected.astype("float32")))
    model, _ = linear(0, width=3)
    load_weights(model, target)
    assert torch.equal(model.weight, found["weight"])
    assert {x.name for x in memory.iterdir()} == {"checkpoints", "average.safetensors"}
    assert is_average_of(target, paths)
    for others in (paths[1:], paths[::-1], [*paths, paths[0]]):
        assert not is_average_of(target, others)


def test_what_cannot_be_averaged_is_refused(three, memory):
    _, paths = three
    target = memory / "average.safetensors"
    with pytest.raises(ShapeshiftError, match="no checkpoint to average"):
        average([], target)
    with pytest.raises(ShapeshiftError, match=r"absent\.safetensors: no such file"):
        average([paths[0], memory / "absent.safetensors"], target)
    other = Checkpoints(memory / "other", keep=1)
    foreign = other.save(*linear(0, width=5), Progress(update=1)) / MODEL
    with pytest.raises(ShapeshiftError, match="holds another model"):
        average([paths[0], foreign], target)
    foreign.write_bytes(foreign.read_bytes()[:-5])
    with pytest.raises(ShapeshiftError, match="differs from what was saved"):
        average([foreign], target)
    assert not target.exists()


def test_no_bit_of_weights_may_change(three, memory):
    """The average carries its own hash; of a checkpoint, test_checkpoint_damage.py sees to it."""
    _, paths = three
    target = memory / "average.safetensors"
    average(paths, target)
    model, _ = linear(0, width=3)
    load_weights(model, target)
    weight = model.weight.clone()
    content = target.read_bytes()
    for place in range(content.index(b'"weight"'), len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        target.write_bytes(damaged)
        with pytest.raises(ShapeshiftError):
            load_weights(model, target)
    assert torch.equal(model.weight, weight)
