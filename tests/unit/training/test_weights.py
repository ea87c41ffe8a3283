"""Files of weights: the library's own format to the byte, and read without trust."""

import json

import pytest
import torch
from safetensors.torch import load, load_file, save
from torch import nn

from shapeshift.disk import Disk
from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, Progress
from shapeshift.training.weights import average, decode, encode, load_weights


def encoded(tensors, metadata=None):
    return b"".join(encode(tensors, metadata).chunks())


@pytest.mark.parametrize("metadata", [None, {"b": "2", "a": "ü"}])
@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"step": torch.tensor(3.0)},
        {"z": torch.arange(6.0).reshape(2, 3), "a.b": torch.zeros(0, 4), "ü": torch.ones(1)},
        {
            "half": torch.randn(3).half(),
            "bf16": torch.randn(3, 2).bfloat16(),
            "flags": torch.tensor([True, False]),
            "wide": torch.randn(2, 2, dtype=torch.float64),
            "count": torch.tensor([[1, -2]]),
        },
    ],
)
def test_files_are_the_librarys_to_the_byte(tensors, metadata):
    if metadata is None or len(tensors) == 1:  # the library writes metadata in no order
        metadata = {"a": "ü"} if metadata else None
        assert encoded(tensors, metadata) == save(tensors, metadata)
    content = encoded(tensors, metadata)
    assert len(content) == encode(tensors, metadata).num_bytes
    for found in (load(content), decode(content, "x")):
        assert found.keys() == tensors.keys()
        for name, tensor in found.items():
            assert tensor.dtype == tensors[name].dtype
            assert torch.equal(tensor, tensors[name])


def linear(width=3):
    return nn.Linear(width, width)


def header(entries, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(3,), offsets=(0, 12)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HOSTILE = {
    "nothing": b"",
    "half a length": b"\x10\x00",
    "length without header": header(b"", length=99),
    "huge length": header({"bias": entry()}, bytes(12), length=2**63),
    "all ones": b"\xff" * 64,
    "large length": header({"bias": entry()}, bytes(12), length=200_000_000),
    "not JSON": header(b"{bias: 1}"),
    "not UTF-8": header(b'{"\xff\xfe": 1}'),
    "a list": header([1, 2]),
    "a number": header(7),
    "null": header(None),
    "deeply nested": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deeply nested objects": header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "entry of another type": header({"bias": "F32"}),
    "overlapping": header(
        {"bias": entry(), "weight": entry(shape=(3, 3), offsets=(8, 44))}, bytes(44)
    ),
    "a gap": header({"bias": entry(offsets=(4, 16))}, bytes(16)),
    "backwards": header({"bias": entry(offsets=(12, 0))}, bytes(12)),
    "beyond the end": header({"bias": entry(shape=(300,), offsets=(0, 1200))}, bytes(12)),
    "bytes left over": header({"bias": entry()}, bytes(64)),
    "negative shape": header({"bias": entry(shape=(-3,))}, bytes(12)),
    "two negative": header({"bias": entry(shape=(-1, -3))}, bytes(12)),
    "shape that overflows": header({"bias": entry(shape=(2**62, 2**62, 4))}, bytes(12)),
    "no bytes, endless shape": header({"bias": entry(shape=(0, 2**63), offsets=(0, 0))}),
    "shape too small": header({"bias": entry(shape=(2,))}, bytes(12)),
    "fraction": header({"bias": entry(shape=(3.5,))}, bytes(12)),
    "unknown dtype": header({"bias": entry(dtype="F33")}, bytes(12)),
    "exotic dtype": header({"bias": entry(dtype="F4", shape=(24,))}, bytes(12)),
    "wrong dtype": header({"bias": entry(dtype="I32"), "weight": entry("F32", (3, 3), (12, 48))},
                          bytes(48)),
    "narrow dtype": header({"bias": entry(dtype="F64", offsets=(0, 24)),
                            "weight": entry("F32", (3, 3), (24, 60))}, bytes(60)),
    "metadata of another type": header({"__metadata__": {"sha256": [1]}, "bias": entry()},
                                       bytes(12)),
    "twice the same": header(b'{"bias":' + json.dumps(entry()).encode() + b',"bias":'
                             + json.dumps(entry(offsets=(12, 24))).encode() + b"}", bytes(24)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_end_in_one_line(tmp_path, name):
    path = tmp_path / "w.safetensors"
    path.write_bytes(HOSTILE[name])
    model = linear()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(ShapeshiftError, match=r"w\.safetensors: ") as caught:
        load_weights(model, path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
    assert all(map(torch.equal, model.parameters(), before))


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ShapeshiftError, match="cannot be read"):
        load_weights(linear(), tmp_path)


@pytest.fixture
def three(memory):
    """Models and their checkpoints."""
    checkpoints = Checkpoints(memory / "checkpoints", keep=3)
    models = []
    for update in (1, 2, 3):
        torch.manual_seed(update)
        models.append(linear())
        optimizer = torch.optim.Adam(models[-1].parameters())
        checkpoints.save(models[-1], optimizer, Progress(update=update))
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
    model = linear()
    load_weights(model, target)
    assert torch.equal(model.weight, found["weight"])
    assert {x.name for x in memory.iterdir()} == {"checkpoints", "average.safetensors"}


def test_what_cannot_be_averaged_is_refused(three, memory):
    _, paths = three
    target = memory / "average.safetensors"
    with pytest.raises(ShapeshiftError, match="no checkpoint to average"):
        average([], target)
    with pytest.raises(ShapeshiftError, match=r"absent\.safetensors: no such file"):
        average([paths[0], memory / "absent.safetensors"], target)
    wide = linear(5)
    other = Checkpoints(memory / "other", keep=1)
    foreign = other.save(wide, torch.optim.Adam(wide.parameters()), Progress(update=1)) / MODEL
    with pytest.raises(ShapeshiftError, match="holds another model"):
        average([paths[0], foreign], target)
    foreign.write_bytes(foreign.read_bytes()[:-5])
    with pytest.raises(ShapeshiftError, match=r"bytes, .* were saved"):
        average([foreign], target)
    assert not target.exists()


def test_no_bit_of_weights_may_change(three, memory):
    """Neither in the average, which carries its own hash, nor in a checkpoint, which has a
    manifest."""
    _, paths = three
    target = memory / "average.safetensors"
    average(paths, target)
    model = linear()
    load_weights(model, target)
    weight = model.weight.clone()
    for path in (target, paths[0]):
        content = path.read_bytes()
        begin = content.index(b'"weight"') if path == target else 0
        for place in range(begin, len(content)):
            damaged = bytearray(content)
            damaged[place] ^= 1 << place % 8
            path.write_bytes(damaged)
            with pytest.raises(ShapeshiftError):
                load_weights(model, path)
        path.write_bytes(content)
    assert torch.equal(model.weight, weight)


def test_an_average_that_does_not_fit_leaves_the_old_one(three, memory):
    _, paths = three
    target = memory / "average.safetensors"
    average(paths[:2], target)
    before = target.read_bytes()

    class Full(Disk):
        def write(self, file, data):
            file.write(data[:10])
            raise OSError(28, "No space left on device")

    with pytest.raises(ShapeshiftError, match=r"No space left.*needs [\d,]+ bytes and") as caught:
        average(paths, target, Full())
    assert "\n" not in str(caught.value)
    assert target.read_bytes() == before
    assert {x.name for x in memory.iterdir()} == {"checkpoints", "average.safetensors"}
