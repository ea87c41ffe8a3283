"""SHAPE by hooks under gradient checkpointing: the gradient is that of the plain model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift import shift_positions, unshift

from .tiny_models import ALL

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
    """Source and target have one table; `inner` runs each side's embedder, `dropout` follows."""

    def __init__(self, inner: Callable[..., Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        table = nn.Embedding(60, DIM)
        self.source, self.target = Embedder(table), Embedder(table)
        self.out = nn.Linear(DIM, DIM)
        self.dropout = nn.Dropout(dropout)
        self.inner = inner

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.inner(self.source, source), self.inner(self.target, target)
        return torch.tanh(self.dropout(self.out(x)).sum(1) * self.out(y).sum(1))


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


@both_ways
def test_a_table_that_source_and_target_look_up_in_one_call(recomputed: Call) -> None:
    class Flat(nn.Module):
        def __init__(self, run: Call) -> None:
            super().__init__()
            self.embedder, self.run = Embedder(nn.Embedding(60, DIM)), run
            self.layer = nn.Linear(DIM, DIM)
            self.looked_up: list[Tensor] = []

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            def embed(ids: Tensor) -> Tensor:
                positions = self.embedder.places(torch.arange(ids.shape[1]))
                self.looked_up.append(positions.detach())
                return torch.tanh(self.layer(self.embedder.tokens(ids) + positions))

            return self.run(embed, source) * self.run(embed, target)

    def gradient(run: Call) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(0)
        model = Flat(run)
        shift_positions(model, 30, modules="embedder.places")
        ids = torch.randint(20, (4, 5, 6), generator=torch.Generator().manual_seed(1))
        (model(*ids[:2]) * model(*ids[2:])).sum().backward()
        grad = model.embedder.places.weight.grad
        assert grad is not None
        return grad, model.looked_up

    (grad, _), (expected, looked_up) = gradient(recomputed), gradient(plainly)
    torch.testing.assert_close(grad, expected)
    assert not torch.equal(looked_up[0], looked_up[1])  # source and target draw apart


@both_ways
def test_one_encoder_for_two_inputs(recomputed: Call) -> None:
    def gradients(run: Call) -> list[Tensor]:
        model = ALL["bert"].build()
        shift_positions(model, 20)
        ids = torch.arange(48).view(2, 4, 6) % 40 + 5
        u, v = (run(lambda ids: model(input_ids=ids).logits.mean(1), part) for part in ids)
        (u @ v.T).square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    for one, other in zip(gradients(recomputed), gradients(plainly), strict=True):
        torch.testing.assert_close(one, other)


@both_ways
def test_dropout_is_recomputed_with_the_offsets(recomputed: Call) -> None:
    """The gradient of what was computed, by finite differences along one direction."""
    torch.manual_seed(0)
    model = Pair(plainly, dropout=0.3).double()
    source, target = torch.randint(20, (2, 4, 6))
    weight = model.out.weight
    direction = torch.randn_like(weight)

    def loss(step: float) -> Tensor:
        torch.manual_seed(5)
        shift_positions(model, 30, modules="source.places")
        with torch.no_grad():
            weight.add_(direction, alpha=step)
        made = recomputed(model, source, target).square().sum()
        made.backward()
        with torch.no_grad():
            weight.add_(direction, alpha=-step)
        unshift(model)
        return made.detach()

    slope = (loss(1e-5) - loss(-1e-5)) / 2e-5
    model.zero_grad()
    loss(0.0)
    assert weight.grad is not None
    torch.testing.assert_close((weight.grad * direction).sum(), slope, rtol=1e-5, atol=1e-8)
