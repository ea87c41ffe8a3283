"""SHAPE in somebody else's model."""

from __future__ import annotations

import pickle

import torch
from torch import Tensor, nn

import shapeshift
from shapeshift import SHAPE
from shapeshift.positions import Sinusoidal


def sines(x: Tensor, first: int = 0) -> Tensor:
    pos = torch.arange(first, first + x.shape[1])[None]
    return x + Sinusoidal(x.shape[2]).encode(pos, x)


def test_it_is_at_the_top_of_the_package() -> None:
    assert "SHAPE" in shapeshift.__all__
    model = nn.Sequential(nn.Embedding(10, 8), SHAPE(8), nn.Linear(8, 2))
    assert model(torch.randint(10, (3, 7))).shape == (3, 7, 2)


def test_evaluation_is_plain_sinusoidal() -> None:
    x = torch.randn(2, 5, 8)
    assert torch.equal(SHAPE(8).eval()(x), sines(x))


def test_offset_and_start_move_the_positions() -> None:
    module, x = SHAPE(8).eval(), torch.randn(2, 5, 8)
    assert torch.equal(module(x, offset=300), sines(x, 300))
    assert torch.equal(module(x[:, 3:], start=3), module(x)[:, 3:])
    each = module(x, offset=torch.tensor([0, 41]), start=2)
    assert torch.equal(each, torch.cat([sines(x[:1], 2), sines(x[1:], 43)]))
    assert torch.equal(SHAPE(8)(x, offset=12), sines(x, 12))  # given offsets win while training


def test_training_shifts_each_sequence_within_the_range() -> None:
    module = SHAPE(8, max_offset=3, seed=5)
    x = torch.zeros(200, 4, 8)
    choices = torch.stack([sines(x[0:1], k)[0] for k in range(4)])  # (4, T, D)
    got = module(x)
    matches = (got[:, None] == choices).flatten(2).all(-1)  # (200, 4)
    assert (matches.sum(1) == 1).all()
    assert matches.any(0).all()


def test_no_offset_is_absolute_while_training_too() -> None:
    x = torch.randn(2, 5, 8)
    assert torch.equal(SHAPE(8, max_offset=0)(x), sines(x))


def test_it_keeps_the_dtype_and_passes_the_gradient() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.bfloat16, requires_grad=True)
    out = SHAPE(8)(x)
    out.sum().backward()
    assert out.dtype == torch.bfloat16
    assert torch.equal(x.grad, torch.ones_like(x))


def test_there_is_nothing_to_train_or_save_and_it_pickles() -> None:
    module = SHAPE(8, channels="halves")
    assert not list(module.parameters())
    assert not module.state_dict()
    x = torch.randn(3, 4, 8)
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), module(x))
