"""SHAPE in somebody else's model."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor, nn

import shapeshift
from shapeshift import SHAPE
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Sinusoidal


def sines(x: Tensor, first: int = 0) -> Tensor:
    pos = torch.arange(first, first + x.shape[1])[None]
    return x + Sinusoidal(dim=x.shape[2]).encode(pos, x)


def test_it_is_at_the_top_of_the_package() -> None:
    assert "SHAPE" in shapeshift.__all__
    model = nn.Sequential(nn.Embedding(10, 8), SHAPE(dim=8), nn.Linear(8, 2))
    assert model(torch.randint(10, (3, 7))).shape == (3, 7, 2)


def test_evaluation_is_plain_sinusoidal() -> None:
    x = torch.randn(2, 5, 8)
    assert torch.equal(SHAPE(dim=8).eval()(x), sines(x))


def test_offset_and_start_move_the_positions() -> None:
    module, x = SHAPE(dim=8).eval(), torch.randn(2, 5, 8)
    assert torch.equal(module(x, offset=300), sines(x, 300))
    assert torch.equal(module(x[:, 3:], start=3), module(x)[:, 3:])
    each = module(x, offset=torch.tensor([0, 41]), start=2)
    assert torch.equal(each, torch.cat([sines(x[:1], 2), sines(x[1:], 43)]))
    assert torch.equal(SHAPE(dim=8)(x, offset=12), sines(x, 12))  # given offsets win while training


def test_training_shifts_each_sequence_within_the_range() -> None:
    module = SHAPE(dim=8, max_offset=3)
    x = torch.zeros(200, 4, 8)
    choices = torch.stack([sines(x[0:1], k)[0] for k in range(4)])  # (4, T, D)
    got = module(x)
    matches = (got[:, None] == choices).flatten(2).all(-1)  # (200, 4)
    assert (matches.sum(1) == 1).all()
    assert matches.any(0).all()


def test_no_offset_is_absolute_while_training_too() -> None:
    x = torch.randn(2, 5, 8)
    assert torch.equal(SHAPE(dim=8, max_offset=0)(x), sines(x))


def test_it_keeps_the_dtype_and_passes_the_gradient() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.bfloat16, requires_grad=True)
    out = SHAPE(dim=8)(x)
    out.sum().backward()
    assert out.dtype == torch.bfloat16
    assert torch.equal(x.grad, torch.ones_like(x))


def test_there_is_nothing_to_train_or_save_and_it_pickles() -> None:
    module = SHAPE(dim=8, channels="halves")
    assert not list(module.parameters())
    assert not module.state_dict()
    x = torch.randn(3, 4, 8)
    twin = pickle.loads(pickle.dumps(module))
    torch.manual_seed(1)
    expected = module(x)
    torch.manual_seed(1)
    assert torch.equal(twin(x), expected)


@pytest.mark.parametrize(
    ("x", "got"),
    [
        (torch.ones(2, 5).long(), r"int64 \(2, 5\)"),
        (torch.ones(2, 5, 8).long(), r"int64 \(2, 5, 8\)"),
        (torch.ones(5, 8), r"float32 \(5, 8\)"),
        (torch.ones(2, 5, 1), r"float32 \(2, 5, 1\)"),
        (torch.ones(2, 5, 8) > 0, "bool"),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_what_is_no_embedding_is_refused(x: Tensor, got: str, training: bool) -> None:
    with pytest.raises(ShapeshiftError, match=rf"floating point of shape \(B, T, 8\), got {got}"):
        SHAPE(dim=8).train(training)(x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"offset": torch.arange(5)}, r"got int64 \(5,\)"),
        ({"offset": -3}, "offset must be at least 0"),
        ({"offset": 2.5}, "offset must be a whole number"),
        ({"start": -1}, "start must be at least 0"),
    ],
)
def test_an_offset_or_a_start_that_does_not_fit_is_refused(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        SHAPE(dim=8)(torch.zeros(1, 5, 8), **given)


@pytest.mark.parametrize("max_offset", [2.5, "9", None, True])
def test_a_largest_offset_that_is_no_whole_number_is_refused(max_offset: object) -> None:
    with pytest.raises(ShapeshiftError, match="max_offset must be a whole number, got"):
        SHAPE(dim=8, max_offset=max_offset)
