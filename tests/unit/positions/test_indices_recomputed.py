"""Drawn positions under gradient checkpointing, and the seeds of `shapeshift.SHAPE`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift import SHAPE
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Absolute, Randomized, Shifted, Sinusoidal, recompute

DIM = 8


@pytest.fixture(autouse=True)
def no_pass_before() -> None:
    recompute._kept.clear()


class Model(nn.Module):
    def __init__(self, indices: Absolute) -> None:
        super().__init__()
        self.tokens, self.position = nn.Embedding(20, DIM), SHAPE(DIM)
        self.position.indices = indices
        self.inner, self.out = nn.Linear(DIM, DIM), nn.Linear(DIM, 1)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(torch.tanh(self.inner(self.position(self.tokens(ids)))))


def recomputed(model: Model, ids: Tensor, reentrant: bool | None, restore: bool = True) -> Tensor:
    """Call the model, with checkpointing unless `reentrant` is None."""
    if reentrant is None:
        return model(ids)
    start = torch.zeros(1, requires_grad=True)  # or a reentrant one would have no backward pass
    return checkpoint(
        lambda start: model(ids) + 0 * start,
        start,
        use_reentrant=reentrant,
        preserve_rng_state=restore,
    )


def gradients(make: Callable[[], Absolute], reentrant: bool | None) -> list[Tensor]:
    """Of two updates with two passes each."""
    torch.manual_seed(0)
    model = Model(make())
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        batches = torch.randint(20, (2, 16, 6), generator=generator)
        one, other = (recomputed(model, ids, reentrant) for ids in batches)
        (one * other).square().sum().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize(
    "make",
    [lambda: Shifted(60), lambda: Shifted(60, by_rank=True), lambda: Randomized(60, max_length=9)],
    ids=["shifted", "shifted by rank", "randomized"],
)
def test_the_gradient_is_the_plain_one(make: Callable[[], Absolute], reentrant: bool) -> None:
    for one, other in zip(gradients(make, reentrant), gradients(make, None), strict=True):
        torch.testing.assert_close(one, other)


def test_the_drop_in_module_too() -> None:
    def gradient(reentrant: bool | None) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(20, DIM), SHAPE(DIM, 60), nn.Linear(DIM, DIM), nn.Tanh())
        ids = torch.randint(20, (16, 6))
        out = model(ids) if reentrant is None else checkpoint(model, ids, use_reentrant=reentrant)
        out.square().sum().backward()
        assert model[2].weight.grad is not None
        return model[2].weight.grad

    torch.testing.assert_close(gradient(False), gradient(None))


@pytest.mark.parametrize("reentrant", [False, True])
def test_it_is_refused_where_the_generator_is_not_restored(reentrant: bool) -> None:
    out = recomputed(Model(Shifted(60)), torch.ones(4, 3).long(), reentrant, restore=False)
    with pytest.raises(ShapeshiftError, match="checkpoint with preserve_rng_state=True"):
        out.sum().backward()


def test_it_is_refused_where_a_compiled_part_checkpoints_the_draw() -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    compiled = torch.compile(lambda ids: recomputed(model, ids, False), backend="aot_eager")
    loss = compiled(ids).sum()
    with pytest.raises(ShapeshiftError, match="outside of what is compiled"):
        loss.backward()


def test_it_is_refused_where_two_passes_began_with_the_same_seed() -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    passes = []
    for _ in range(2):
        torch.manual_seed(3)
        passes.append(recomputed(model, ids, False).sum())
    with pytest.raises(ShapeshiftError, match=r"call torch\.manual_seed with another number"):
        passes[0].backward()


def test_a_third_pass_with_the_same_seed_changes_nothing() -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    passes = []
    for number in range(3):
        torch.manual_seed(3)
        passes.append(recomputed(model, ids, False).sum())
        if number == 1:
            passes.pop()  # given up: the first one is not
    with pytest.raises(ShapeshiftError, match="passes began with the same state"):
        passes[0].backward()


def test_a_graph_that_is_retained_may_be_recomputed_again() -> None:
    model, ids = Model(Shifted(60)), torch.arange(12).view(4, 3)
    torch.manual_seed(3)
    loss = recomputed(model, ids, False).square().sum()
    grads = []
    for _ in range(2):
        model.zero_grad()
        loss.backward(retain_graph=True)
        grads.append(model.inner.weight.grad)
    torch.testing.assert_close(*grads)
    torch.manual_seed(3)
    other = recomputed(model, ids, False).sum()
    with pytest.raises(ShapeshiftError, match="passes began with the same state"):
        loss.backward()
    del other


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_a_pass_without_gradient_counts_where_the_seed_is_the_same(reentrant: bool) -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    torch.manual_seed(3)
    with torch.no_grad():
        model(ids)
    torch.manual_seed(3)
    with pytest.raises(ShapeshiftError, match=r"passes under torch\.no_grad .* count"):
        recomputed(model, ids, reentrant).sum().backward()


def bound(x: Tensor) -> Tensor:
    return x


@pytest.mark.parametrize(
    "hook", [torch.Tensor.clone, [1].__getitem__, bound], ids=["of a class", "bound", "of a module"]
)
def test_passes_under_other_hooks_count_where_the_seed_is_the_same(
    hook: Callable[[Tensor], object],
) -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    for _ in range(3):
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.clone, hook):
            model(ids)
    torch.manual_seed(3)
    with pytest.raises(ShapeshiftError, match="passes began with the same state"):
        recomputed(model, ids, False).sum().backward()


def test_what_is_kept_does_not_grow_with_passes_of_one_seed() -> None:
    indices = Shifted(60)
    for _ in range(50):
        torch.manual_seed(3)
        with torch.no_grad():
            indices(4, 3)
    [kept] = recompute._kept.values()
    assert len(kept) == 1


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
def test_passes_that_began_alike_and_drew_alike_are_told_apart_by_nothing(reentrant: bool) -> None:
    model, ids = Model(Shifted(60)), torch.arange(12).view(4, 3)

    def gradient(reentrant: bool | None) -> Tensor:
        model.zero_grad()
        losses = []
        for _ in range(2):
            torch.manual_seed(3)
            model.position.indices.seed(1)
            losses.append(recomputed(model, ids, reentrant).square().sum())
        sum(losses).backward()
        assert model.inner.weight.grad is not None
        return model.inner.weight.grad

    torch.testing.assert_close(gradient(reentrant), gradient(None))


def test_a_seed_may_come_again_after_a_pass_that_was_given_up() -> None:
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    for _ in range(2):
        torch.manual_seed(3)
        loss = recomputed(model, ids, False).sum()
        del loss  # no backward pass
    torch.manual_seed(3)
    recomputed(model, ids, False).sum().backward()
    assert model.inner.weight.grad is not None


@pytest.mark.parametrize("other", [False, True], ids=["non-reentrant", "reentrant"])
def test_a_seed_may_come_again_after_the_backward_pass(other: bool) -> None:
    model, ids = Model(Shifted(60)), torch.arange(12).view(4, 3)
    grads = []
    for reentrant in (other, None):
        model.position.indices.seed(1)
        for _ in range(3):
            model.zero_grad()
            torch.manual_seed(3)
            recomputed(model, ids, reentrant).square().sum().backward()
        grads.append(model.inner.weight.grad)
    torch.testing.assert_close(*grads)


def test_old_draws_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "KEPT", 3)
    model, ids = Model(Shifted(60)), torch.ones(4, 3).long()
    passes = [recomputed(model, ids, False).sum() for _ in range(4)]
    passes[1].backward()
    with pytest.raises(ShapeshiftError, match="which pass drew them cannot be told"):
        passes[0].backward()


def test_the_draws_do_not_depend_on_checkpointing_or_the_global_seed() -> None:
    def offsets(reentrant: bool | None) -> list[Tensor]:
        torch.manual_seed(0 if reentrant is None else 1 + reentrant)
        model = Model(Shifted(10_000, seed=4))
        found: list[Tensor] = []
        model.position.indices.register_forward_hook(lambda _, args, pos: found.append(pos))
        for _ in range(3):
            recomputed(model, torch.ones(4, 3).long(), reentrant)
            torch.rand(1)
        return found

    expected = offsets(None)
    assert not torch.equal(*expected[:2])
    for reentrant in (False, True):
        assert all(map(torch.equal, offsets(reentrant), expected))


def starts(module: SHAPE, count: int = 20) -> Tensor:
    """Return the offsets that the next call draws."""
    return module.indices(count, 1)[:, 0]


def test_modules_of_one_model_draw_apart_and_the_global_seed_decides() -> None:
    def draw(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [starts(module) for module in (SHAPE(DIM), SHAPE(DIM))]

    source, target = draw(1)
    assert not torch.equal(source, target)
    again, other = draw(1), draw(2)
    assert torch.equal(torch.stack(again), torch.stack([source, target]))
    assert not torch.equal(other[0], source)


def test_the_draws_of_a_module_do_not_follow_the_global_generator() -> None:
    torch.manual_seed(1)
    module, twin = SHAPE(DIM, seed=None), SHAPE(DIM, seed=5)
    state = torch.get_rng_state()
    starts(module)
    starts(twin)
    assert torch.equal(torch.get_rng_state(), state)


def draws_of_ranks(make: Callable[[], SHAPE], monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return three draws `(3, B)` of each of three processes."""
    found = []
    modules = []
    for _ in range(3):
        torch.manual_seed(1)  # as every process does, before the group is there
        modules.append(make())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for rank, module in enumerate(modules):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        found.append(torch.stack([starts(module) for _ in range(3)]))
    return found


def test_processes_draw_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = draws_of_ranks(lambda: SHAPE(DIM), monkeypatch)
    rows = {tuple(row.tolist()) for one in found for row in one}
    assert len(rows) == 9
    assert all(one.min() >= 0 and one.max() <= 500 for one in found)
    again = draws_of_ranks(lambda: SHAPE(DIM), monkeypatch)
    assert all(map(torch.equal, found, again))


def test_processes_with_a_seed_draw_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = draws_of_ranks(lambda: SHAPE(DIM, seed=6), monkeypatch)
    assert all(torch.equal(first, other) for other in others)


def test_the_offsets_of_a_process_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    counts = torch.bincount(starts(SHAPE(DIM, 9), 10_000), minlength=10)
    assert ((counts - 1000.0).square() / 1000).sum() < 27.88  # 99.9th percentile, 9 degrees


def test_compilers_are_told_what_the_operators_do() -> None:
    claims = ("test_schema", "test_faketensor")
    state = Shifted(9)._generator
    torch.library.opcheck(recompute._integers, (state, 10, 4, True, True), test_utils=claims)
    torch.library.opcheck(recompute._uniform, (state, 3, 4, True), test_utils=claims)


@pytest.mark.parametrize("max_offset", [2.5, "9", None])
def test_what_is_no_whole_number_is_refused(max_offset: object) -> None:
    with pytest.raises(ShapeshiftError, match="max_offset must be a whole number, got"):
        SHAPE(DIM, max_offset)


def test_sinusoidal_positions_are_those_of_the_offsets() -> None:
    torch.manual_seed(1)
    module, x = SHAPE(DIM), torch.zeros(3, 4, DIM)
    torch.manual_seed(1)
    pos = SHAPE(DIM).indices(3, 4)
    assert torch.equal(module(x), Sinusoidal(DIM).encode(pos, x))
