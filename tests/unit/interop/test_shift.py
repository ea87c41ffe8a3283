"""SHAPE by hooks, in plain PyTorch models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift import shift_positions, unshift
from shapeshift._system.errors import ShapeshiftError

ROWS, DIM = 32, 8


class Embedder(nn.Module):
    """Tokens plus positions, with the names of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(20, DIM)
        self.wpe = nn.Embedding(ROWS, DIM)

    def forward(self, ids: Tensor) -> Tensor:
        return self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))


class Model(nn.Module):
    def __init__(self, recompute: bool = False) -> None:
        super().__init__()
        self.embedder = Embedder()
        self.out = nn.Linear(DIM, 5)
        self.recompute = recompute

    def forward(self, ids: Tensor) -> Tensor:
        if self.recompute:
            x = checkpoint(self.embedder, ids, use_reentrant=False)
        else:
            x = self.embedder(ids)
        return self.out(torch.tanh(x))


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(20, (48, 6), generator=torch.Generator().manual_seed(1))


def offsets(positions: Tensor, table: Tensor, first: int = 0) -> list[int]:
    """Find, for each `(T, D)` of `positions`, how far behind `first` it stands in the table."""
    windows = table.unfold(0, positions.shape[1], 1).transpose(1, 2)[first:]  # (starts, T, D)
    same = (positions[:, None] - windows).abs().amax((-1, -2)) < 1e-4  # (B, starts)
    assert (same.sum(1) == 1).all()
    return same.int().argmax(1).tolist()


def test_positions_beyond_the_table_are_refused() -> None:
    class Given(Embedder):
        def forward(self, ids: Tensor, pos: Tensor) -> Tensor:
            return self.wte(ids) + self.wpe(pos)

    model, ids = Given(), torch.zeros(2, 3, dtype=torch.long)
    shift_positions(model, 9)
    model(ids, torch.arange(20, 23))
    message = "wpe: .* 24 tokens with max_offset=9 need 33; use max_offset=8 or"
    with pytest.raises(ShapeshiftError, match=message):
        model(ids, torch.arange(21, 24))
    model.eval()(ids, torch.arange(29, 32))


def test_a_table_shared_by_two_sides_is_drawn_for_each(ids: Tensor) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = Embedder(), Embedder()
            self.target.wpe = self.source.wpe

        def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            return self.source(source), self.target(target)

    model = Pair()
    assert shift_positions(model, 20) == ["target.wpe"]
    source, target = model(ids, ids[:30])
    table = model.source.wpe.weight.detach()
    at_source = offsets((source - model.source.wte(ids)).detach(), table)
    at_target = offsets((target - model.target.wte(ids[:30])).detach(), table)
    assert at_source[:30] != at_target


@pytest.mark.long
@pytest.mark.parametrize("how", ["function", "method"])
def test_what_was_compiled_before_is_shifted_and_unshifted(how: str, ids: Tensor) -> None:
    torch.compiler.reset()
    model = Model()
    call = model
    if how == "method":
        model.compile(backend="eager")
    else:
        call = torch.compile(model, backend="eager")
    plain = call(ids)
    shift_positions(call, 9)
    assert not torch.allclose(call(ids), plain)
    assert not torch.allclose(call(ids), call(ids))
    unshift(call)
    assert torch.allclose(call(ids), plain)


def trained(compiled: bool, recompute: bool) -> list[Tensor]:
    """Train a model for a few steps of different sizes; return its weights."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model = Model(recompute)
    shift_positions(model, 20)
    if compiled:  # Dynamo breaks its graph where a recomputed part notes the number of sequences
        model.compile(backend="aot_eager", fullgraph=not recompute)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for size in ((8, 6), (8, 6), (5, 4), (7, 9)):
        optimizer.zero_grad()
        model(torch.randint(20, size, generator=generator)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.long
@pytest.mark.parametrize("recompute", [False, True])
def test_compiled_training_is_training(recompute: bool) -> None:
    for got, expected in zip(trained(True, recompute), trained(False, False), strict=True):
        assert torch.allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_offset": -1}, "max_offset must be at least 0"),
        ({"max_offset": 5, "max_length": 0}, "max_length must be at least 1, got 0"),
        ({"max_offset": 32}, "wpe: .*has 32 pos.*use max_offset=31 or less$"),
        ({"max_offset": 20, "max_length": 13}, "wpe: .*need 33; use max_offset=19 or less$"),
    ],
)
def test_what_cannot_be_shifted_is_refused_and_leaves_nothing_behind(
    options: dict[str, float], message: str
) -> None:
    model = Model()
    with pytest.raises(ShapeshiftError, match=message):
        shift_positions(model, **options)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_a_model_is_shifted_once_and_called_as_a_whole(ids: Tensor) -> None:
    with pytest.raises(ShapeshiftError, match="embedding is known in Linear; in a model of your"):
        shift_positions(nn.Linear(2, 2))
    model = Model()
    with pytest.raises(ShapeshiftError, match="are not shifted"):
        unshift(model)
    shift_positions(model, 5)
    with pytest.raises(ShapeshiftError, match="changed by shift_positions; call unshift"):
        shift_positions(nn.Sequential(model), 5)
    with pytest.raises(ShapeshiftError, match="this Embedder were changed by shift"):
        shift_positions(model.embedder, 5)
    with pytest.raises(ShapeshiftError, match="call the model that was given"):
        model.embedder.forward(ids)


def test_a_table_is_known_by_its_neighbour() -> None:
    class Entities(Embedder):
        def __init__(self) -> None:
            super().__init__()
            self.entity_embeddings = self.wte
            del self.wte

    with pytest.raises(ShapeshiftError, match="no absolute position embedding is known"):
        shift_positions(Entities())
    nano = nn.ModuleDict({"wte": nn.Embedding(20, DIM), "wpe": nn.Embedding(ROWS, DIM)})
    assert shift_positions(nn.ModuleDict({"transformer": nano}), 5) == ["transformer.wpe"]


@pytest.mark.parametrize("count", [0, 2])
def test_a_table_that_is_not_looked_up_once_is_refused(count: int, ids: Tensor) -> None:
    class Other(Embedder):
        def forward(self, ids: Tensor) -> Tensor:
            pos = torch.arange(ids.shape[1])
            return self.wte(ids) + sum(self.wpe(pos) for _ in range(count))

    model = Other()
    plain = model(ids)
    shift_positions(model, 5)
    with pytest.raises(ShapeshiftError, match=f"wpe: Other looks it up {count} times in a call"):
        model(ids)
    assert torch.equal(model.eval()(ids), plain)
