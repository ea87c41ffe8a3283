"""SHAPE by hooks under gradient checkpointing: the gradient is that of the plain model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift import shift_positions

DIM = 8


class Embedder(nn.Module):
    def __init__(self, places: nn.Embedding) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, DIM), places

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))


Call = Callable[..., Tensor]


def plainly(function: Call, *args: Tensor) -> Tensor:
    return function(*args)


def kept_apart(function: Call, *args: Tensor) -> Tensor:
    return checkpoint(function, *args, use_reentrant=False)


def kept_by_reentry(function: Call, *args: Tensor) -> Tensor:
    start = torch.zeros(1, requires_grad=True)  # or there would be no backward pass
    return checkpoint(
        lambda start, *rest: function(*rest) + 0 * start, start, *args, use_reentrant=True
    )


class Pair(nn.Module):
    """Source and target have one table; `inner` runs each side's embedder."""

    def __init__(self, inner: Callable[..., Tensor]) -> None:
        super().__init__()
        table = nn.Embedding(60, DIM)
        self.source, self.target = Embedder(table), Embedder(table)
        self.out = nn.Linear(DIM, DIM)
        self.inner = inner

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.inner(self.source, source), self.inner(self.target, target)
        return torch.tanh(self.out(x).sum(1) * self.out(y).sum(1))


def trained(inner: Call, outer: Call = plainly, sizes: tuple[int, ...] = (4,)) -> list[Tensor]:
    """Make two updates, each of passes of these sizes and one backward pass; return the weights."""
    torch.manual_seed(0)
    model = Pair(inner)
    shift_positions(model, 30, modules="source.places")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        losses = []
        for size in sizes:
            source, target = torch.randint(20, (2, size, 6), generator=generator)
            losses.append(outer(model, source, target).square().sum())
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 3)], ids=["passes of one B", "of different B"])
@pytest.mark.parametrize(
    ("inner", "outer"),
    [
        (kept_apart, plainly),
        (kept_by_reentry, plainly),
        (plainly, kept_apart),
        (plainly, kept_by_reentry),
        (kept_apart, kept_apart),
    ],
)
def test_the_gradient_is_the_plain_one(inner: Call, outer: Call, sizes: tuple[int, ...]) -> None:
    for got, expected in zip(
        trained(inner, outer, sizes), trained(plainly, sizes=sizes), strict=True
    ):
        torch.testing.assert_close(got, expected)
