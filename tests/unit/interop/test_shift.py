"""SHAPE by hooks, in plain PyTorch models."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift import shift_positions, unshift
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Sinusoidal

ROWS, DIM = 32, 8


class Embedder(nn.Module):
    """Tokens plus positions; positions are called with (T,) as nanoGPT does."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, DIM)
        self.places = nn.Embedding(ROWS, DIM)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))


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


class Dictionary(nn.Module):
    """Its modules lie in a container that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"wte": nn.Embedding(20, DIM), "wpe": nn.Embedding(ROWS, DIM)})

    def forward(self, mask: Tensor | None = None, *, input_ids: Tensor) -> Tensor:
        return self.parts["wte"](input_ids) + self.parts["wpe"](torch.arange(input_ids.shape[1]))


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(20, (48, 6), generator=torch.Generator().manual_seed(1))


def offsets(positions: Tensor, table: Tensor) -> list[int]:
    """Find, for each `(T, D)` of `positions`, where in the table it stands."""
    windows = table.unfold(0, positions.shape[1], 1).transpose(1, 2)  # (starts, T, D)
    same = torch.isclose(positions[:, None], windows, atol=1e-6).all(-1).all(-1)  # (B, starts)
    assert (same.sum(1) == 1).all()
    return same.int().argmax(1).tolist()


def drawn(model: Model, ids: Tensor) -> list[int]:
    embedder = model.embedder
    return offsets((embedder(ids) - embedder.tokens(ids)).detach(), embedder.places.weight.detach())


def test_each_sequence_of_each_pass_has_its_own_offset_within_the_range(ids: Tensor) -> None:
    model = Model()
    assert shift_positions(model, 3, modules="embedder.places") == ["embedder.places"]
    first, second = drawn(model, ids), drawn(model, ids)
    assert set(first) == set(second) == {0, 1, 2, 3}
    assert first != second


def test_positions_beyond_the_table_are_refused() -> None:
    class Given(Embedder):
        def forward(self, ids: Tensor, pos: Tensor) -> Tensor:
            return self.tokens(ids) + self.places(pos)

    model, ids = Given(), torch.zeros(2, 3, dtype=torch.long)
    shift_positions(model, 9, modules="places")
    model(ids, torch.arange(20, 23))
    message = "places: .* position 23 with max_offset=9 needs 33; use max_offset=8 or"
    with pytest.raises(ShapeshiftError, match=message):
        model(ids, torch.arange(21, 24))
    model.eval()(ids, torch.arange(29, 32))


def test_evaluation_is_unchanged_and_unshift_restores_the_model(ids: Tensor) -> None:
    model = Model()
    before, attributes = model(ids), set(vars(model))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    shift_positions(model, 9, modules=["embedder.places"])
    assert set(model.state_dict()) == set(weights)
    assert not torch.allclose(model(ids), before)
    model.embedder.eval()  # a frozen part is not shifted
    assert torch.equal(model(ids), before)
    assert torch.equal(model.eval()(ids), before)
    unshift(model.train())
    assert torch.equal(model(ids), before)
    assert set(vars(model)) == attributes
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert all(torch.equal(model.state_dict()[name], weights[name]) for name in weights)
    shift_positions(model, 9, modules=["embedder.places"])  # and it can be shifted again


def test_the_number_of_sequences_is_found_behind_a_container(ids: Tensor) -> None:
    model = Dictionary()
    shift_positions(model, 4, modules=["parts.wpe"])
    positions = model(torch.ones(1, 6), input_ids=ids) - model.parts["wte"](ids)
    found = offsets(positions.detach(), model.parts["wpe"].weight.detach())
    assert set(found) == {0, 1, 2, 3, 4}


def test_any_module_that_is_called_with_positions_can_be_named(ids: Tensor) -> None:
    class Sines(nn.Module):
        def forward(self, pos: Tensor) -> Tensor:
            return Sinusoidal(dim=DIM).encode(pos.view(-1, pos.shape[-1]), torch.zeros(()))

    model = Model()
    model.embedder.places = Sines()
    shift_positions(model, 100, modules=["embedder.places"])
    table = model.embedder.places.eval()(torch.arange(106))[0]
    model.embedder.places.train()
    positions = model.embedder(ids) - model.embedder.tokens(ids)
    found = offsets(positions.detach(), table)
    assert len(set(found)) > 20
    assert max(found) <= 100


def test_a_table_shared_by_two_sides_is_drawn_for_each(ids: Tensor) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = Embedder(), Embedder()
            self.target.places = self.source.places

        def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            return self.source(source), self.target(target)

    model = Pair()
    shift_positions(model, 20, modules=["source.places"])
    source, target = model(ids, ids[:30])
    table = model.source.places.weight.detach()
    at_source = offsets((source - model.source.tokens(ids)).detach(), table)
    at_target = offsets((target - model.target.tokens(ids[:30])).detach(), table)
    assert at_source[:30] != at_target


@pytest.mark.parametrize("how", ["function, by its result", "method"])
def test_what_was_compiled_before_is_shifted_and_unshifted(how: str, ids: Tensor) -> None:
    torch.compiler.reset()
    model = Model()
    call = model
    if how == "method":
        model.compile(backend="eager")
    else:
        call = torch.compile(model, backend="eager")
    given = call if "result" in how else model
    name = "_orig_mod.embedder.places" if "result" in how else "embedder.places"
    plain = call(ids)
    for _ in range(2):
        shift_positions(given, 9, modules=name)
        first, second = call(ids), call(ids)
        assert not torch.allclose(first, plain)
        assert not torch.allclose(first, second)
        unshift(given)
        assert torch.allclose(call(ids), plain)


def trained(compiled: bool, recompute: bool) -> list[Tensor]:
    """Train a model for a few steps of different sizes; return its weights."""
    torch.compiler.reset()
    torch.manual_seed(0)
    model = Model(recompute)
    shift_positions(model, 20, modules="embedder.places")
    if compiled:  # Dynamo breaks its graph where a recomputed part notes the number of sequences
        model.compile(backend="aot_eager", fullgraph=not recompute)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1)
    for size in ((8, 6), (8, 6), (5, 4), (7, 9)):
        optimizer.zero_grad()
        model(torch.randint(20, size, generator=generator)).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("recompute", [False, True])
def test_compiled_training_is_training(recompute: bool) -> None:
    for got, expected in zip(trained(True, recompute), trained(False, False), strict=True):
        assert torch.allclose(got, expected, atol=1e-6)


def test_a_table_that_is_called_with_the_tokens_is_refused_in_the_first_pass(ids: Tensor) -> None:
    for given in (ids, ids[:, :1].expand(48, 6)):
        model = Model()
        shift_positions(model, 5, modules="embedder.tokens")
        with pytest.raises(
            ShapeshiftError, match=r"'embedder\.tokens' holds tokens and not positions"
        ):
            model(given)

    class Batch(nn.Module):
        """Called with a mapping; its model with named arguments."""

        def __init__(self) -> None:
            super().__init__()
            self.model = Dictionary()

        def forward(self, batch: dict[str, Tensor]) -> Tensor:
            return self.model(**batch)

    shift_positions(model := Batch(), 5, modules="model.parts.wte")
    with pytest.raises(ShapeshiftError, match=r"'model\.parts\.wte' holds tokens"):
        model({"input_ids": ids})


def test_a_table_that_does_not_run_is_refused_in_the_first_pass(ids: Tensor) -> None:
    class Unused(Model):
        def __init__(self) -> None:
            super().__init__()
            self.places = nn.Embedding(ROWS, DIM)

    model = Unused()
    shift_positions(model, 5, modules=["places", "embedder.places"])
    model.eval()(ids)
    with pytest.raises(ShapeshiftError, match="places has not run in a forward pass of Unused"):
        model.train()(ids)
    unshift(model)
    shift_positions(model, 5, modules="embedder.places")  # the remedy
    model(ids)


PLACES = "embedder.places"


def with_others(model: nn.Module) -> nn.Module:
    """Add what is no table of positions, or looks like one by a part of its name."""
    model.drop, model.post_norm = nn.Dropout(), nn.LayerNorm(DIM)
    model.pos_bias, model.composer = nn.Linear(DIM, DIM), nn.Embedding(4, DIM)
    model.relative_attention_bias = nn.Embedding(ROWS, 2)
    model.learned = nn.Parameter(torch.zeros(1, ROWS, DIM))
    model.register_buffer("fixed", torch.zeros(ROWS, DIM))
    return model


@pytest.mark.parametrize(
    ("modules", "options", "message"),
    [
        (PLACES, {"max_offset": -1}, "max_offset must be at least 0"),
        (PLACES, {"max_offset": 2.5}, r"max_offset must be a whole number, got 2\.5"),
        (PLACES, {"max_length": 0}, "max_length must be at least 1, got 0"),
        (PLACES, {"max_offset": 32}, "places: .*has 32 pos.*use max_offset=31 or less$"),
        (
            PLACES,
            {"max_offset": 20, "max_length": 13},
            "places: .*needs 33; use max_offset=19 or less or sequences of 12 tokens or fewer",
        ),
        (PLACES, {"max_offset": 20, "max_length": 40}, "needs 60; use sequences of 12 tokens or"),
        (PLACES, {"max_offset": 40, "max_length": 40}, "shorter sequences and a smaller max_off"),
        ([], {}, "no absolute position embedding"),
        (["embedder.place"], {}, r"no module 'embedder\.place'; did you mean 'embedder\.places'\?"),
        ("out", {}, "first argument of Linear is not position numbers"),
        ("drop", {}, "first argument of Dropout is not position numbers"),
        ("relative_attention_bias", {}, "is not position numbers, .* but distances"),
        ("learned", {}, "'learned' of Model is a tensor, not a .*SHAPE"),
        ("fixed", {}, "'fixed' of Model is a tensor.* such as an nn.Embedding"),
        ("embedder.places.weight", {}, "'embedder.places.weight' of Model is a tensor"),
    ],
)
def test_what_cannot_be_shifted_is_refused_and_leaves_nothing_behind(
    modules: str | list[str], options: dict[str, float], message: str
) -> None:
    model = with_others(Model())
    with pytest.raises(ShapeshiftError, match=message):
        shift_positions(model, **{"max_offset": 5, **options}, modules=modules)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_the_input_embedding_is_refused_at_once() -> None:
    class Named(Model):
        def get_input_embeddings(self) -> nn.Module:
            return self.embedder.tokens

    with pytest.raises(
        ShapeshiftError, match=r"holds tokens .* it is the input embedding of Named"
    ):
        shift_positions(Named(), 5, modules="embedder.tokens")


class Hidden(nn.Module):
    """Called with hidden states."""

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_a_module_that_is_not_called_with_numbers_is_refused_in_the_first_pass(ids: Tensor) -> None:
    model = Model()
    model.out = Hidden()
    shift_positions(model, 5, modules="out")
    with pytest.raises(ShapeshiftError, match="first argument of Hidden is not position numbers"):
        model(ids)


def test_a_model_is_shifted_once_and_called_as_a_whole(ids: Tensor) -> None:
    model = Model()
    with pytest.raises(ShapeshiftError, match="are not shifted"):
        unshift(model)
    shift_positions(model, 5, modules=PLACES)
    with pytest.raises(ShapeshiftError, match="changed by shift_positions; call unshift"):
        shift_positions(nn.Sequential(model), 5, modules="0.embedder.places")
    with pytest.raises(ShapeshiftError, match="this Embedder were changed by shift"):
        shift_positions(model.embedder, 5, modules="places")
    with pytest.raises(ShapeshiftError, match="call the model that was given"):
        model.embedder.forward(ids)


def test_token_ids_that_count_are_no_evidence_against_positions() -> None:
    counting = torch.arange(6).unsqueeze(0)
    shift_positions(model := Model(), 5, modules="embedder.places")
    model(counting)
