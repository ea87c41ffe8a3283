"""Gradients of tables in modules of bfloat16: sums of many numbers, which need float32."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import attend
from shapeshift.positions import T5, TUPE, Graph, Learned, Representation, Shaw, Skew, use_edges

B, H, T, E = 4, 2, 200, 16
SIZES = {"num_heads": H, "head_dim": E}
GAPS = torch.arange(T)[None] * 3 + torch.tensor([[0], [1], [0], [5]])

MADE: dict[str, Callable[[], Representation]] = {
    "t5": lambda: T5(dim=H * E, num_heads=H),
    "shaw": lambda: Shaw(**SIZES, max_distance=4),
    "skew": lambda: Skew(**SIZES, max_distance=4),
    "tupe": lambda: TUPE(dim=H * E, num_heads=H),
    "graph": lambda: Graph(**SIZES, num_labels=3),
}


def gradients(position: Representation, heads: list[Tensor], grad: Tensor) -> list[Tensor]:
    labels = torch.arange(T * T).view(1, T, T) % 4 - 1
    leaves = [*position.parameters()]
    if isinstance(position, Graph):
        with use_edges(position, labels):
            out = attend(*heads, None, position, GAPS, GAPS)
    else:
        out = attend(*heads, None, position, GAPS, GAPS)
    return list(torch.autograd.grad(out, leaves, grad.to(out.dtype)))


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_with_gaps_between_positions(name, plain, monkeypatch):
    if plain:
        monkeypatch.setattr(kernels, "is_available", lambda _: False)
    torch.manual_seed(0)
    position = MADE[name]().bfloat16()
    heads, grad = [x.bfloat16() for x in torch.randn(3, B, H, T, E)], torch.randn(B, H, T, E)
    got = gradients(position, heads, grad.bfloat16())
    exact = [x.double() for x in heads], grad.bfloat16().double()
    for one, other in zip(got, gradients(deepcopy(position).double(), *exact), strict=True):
        assert one.dtype == torch.bfloat16
        error = (one.double() - other).norm() / other.norm()
        assert error < 0.05, error


def test_a_vector_that_many_sentences_have():
    torch.manual_seed(0)
    learned, x = Learned(dim=16, num_positions=8).bfloat16(), torch.zeros(3000, 2, 16).bfloat16()
    pos = torch.arange(2).expand(3000, 2)
    grad = torch.rand(x.shape).bfloat16()
    learned.embed(x, pos).backward(grad)
    expected = grad.double().sum(0)
    assert (learned.weight.grad[:2].double() - expected).norm() < 0.005 * expected.norm()
