"""SHAPE in somebody else's model."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor

from shapeshift import SHAPE
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Sinusoidal


def sines(x: Tensor, first: int = 0) -> Tensor:
    pos = torch.arange(first, first + x.shape[1])[None]
    return x + Sinusoidal(dim=x.shape[2]).encode(pos, x)


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


@pytest.mark.parametrize("max_offset", [2.5, "9", None, True])
def test_a_largest_offset_that_is_no_whole_number_is_refused(max_offset: object) -> None:
    with pytest.raises(ShapeshiftError, match="max_offset must be a whole number, got"):
        SHAPE(dim=8, max_offset=max_offset)
