"""Files of weights: checked when read, and averaged."""

import pytest
import torch
from safetensors.torch import load_file, save

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, STATE, Progress
from shapeshift.training.weights import average, is_average_of, load_weights

from .models import linear


def file_of(**tensors):
    return save({name: torch.ones(*shape) for name, shape in tensors.items()})


WHOLE = file_of(bias=(3,), weight=(3, 3))
HOSTILE = {
    "nothing": b"",
    "huge length": (2**63).to_bytes(8, "little") + WHOLE[8:],
    "deeply nested": (10**5).to_bytes(8, "little") + b"[" * 10**5,
    "overlapping": WHOLE.replace(b"[12,48]", b"[8,44] ")[:-4],
    "another dtype": WHOLE.replace(b"F32", b"I32"),
    "a weight too few": file_of(bias=(3,)),
}


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
    mean, parameters = load_file(target), [dict(model.named_parameters()) for model in models]
    assert mean.keys() == {"weight", "bias"}
    for name, tensor in mean.items():
        expected = sum(each[name].detach().double() for each in parameters) / 3
        assert torch.equal(tensor, expected.float())
    model, _ = linear(0, width=3)
    load_weights(model, target)
    assert torch.equal(model.weight, mean["weight"])
    assert is_average_of(target, paths)
    for others in (paths[1:], paths[::-1], [*paths, paths[0]]):
        assert not is_average_of(target, others)


def test_what_cannot_be_averaged_is_refused(three, memory):
    _, paths = three
    target = memory / "average.safetensors"
    with pytest.raises(ShapeshiftError, match="no checkpoint to average"):
        average([], target)
    other = Checkpoints(memory / "other", keep=1)
    foreign = other.save(*linear(0, width=5), Progress(update=1)) / MODEL
    with pytest.raises(ShapeshiftError, match="holds another model"):
        average([paths[0], foreign], target)
    foreign.write_bytes(foreign.read_bytes()[:-5])
    with pytest.raises(ShapeshiftError, match="differs from what was saved"):
        average([foreign], target)
    (paths[0].parent / STATE).unlink()
    with pytest.raises(ShapeshiftError, match=r"state\.json: cannot be read"):
        average(paths, target)
    assert not target.exists()
