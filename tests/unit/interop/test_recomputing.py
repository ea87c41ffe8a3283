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


both_ways = pytest.mark.parametrize(
    "recomputed", [kept_apart, kept_by_reentry], ids=["non-reentrant", "reentrant"]
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


SIZES = pytest.mark.parametrize(
    "sizes",
    [(4,), (4, 4, 4), (4, 3)],
    ids=["one pass", "three passes of the same B", "passes of different B"],
)


@both_ways
@SIZES
@pytest.mark.parametrize("whole", [True, False], ids=["the whole model", "its embedders"])
def test_the_gradient_is_the_plain_one(
    recomputed: Call, sizes: tuple[int, ...], whole: bool
) -> None:
    expected = trained(plainly, sizes=sizes)
    got = trained(plainly, recomputed, sizes) if whole else trained(recomputed, sizes=sizes)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_checkpoints_may_be_nested() -> None:
    for one, other in zip(trained(kept_apart, kept_apart), trained(plainly), strict=True):
        torch.testing.assert_close(one, other)
