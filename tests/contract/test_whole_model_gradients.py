"""Loss and gradients of a whole model in the types that users train in, on each path, against the
same model in float64, computed in plain steps without packing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention import explain, recording
from shapeshift.kernels import library
from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.model.attention import Attention
from shapeshift.positions import KINDS, Part, PoPE, Representation, Scheme
from shapeshift.positions.registry import Entry

from .conftest import CELLS, VARIANTS

EPSILON, VOCABULARY, NUM_ATTENTIONS = 0.1, 23, 6
SHAPE = {"dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 2, "decoder_layers": 2}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.3}
"""Of a gradient's norm. A number in float32 is rounded by 6e-8 at most, in bf16 by 4e-3, and some
twenty products lie between a weight and the loss. In bf16 some hidden units change their sign in
ReLU as well: with PyTorch's own operations alone, errors of these small models are up to 0.18. A
gradient that lacks a term, or is of another tensor, is wrong by half of its size or more."""

FLOOR = 0.05
"""Of the norm of the largest gradient: one that is smaller is a difference of larger numbers, and
no more exact than they are."""


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Return sources, target inputs and target outputs with padding, and one sentence without."""
    generator = torch.Generator().manual_seed(4)

    def side(*lengths: int) -> Tensor:
        ids = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
        return ids * (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])

    source, target = side(7, 2, 5), side(4, 6, 3)
    target_input = torch.where(target > 0, target.roll(1, 1), target)
    target_input[:, 0] = 2
    return source, target_input, target


def make(scheme: Scheme, norm: str) -> Transformer:
    torch.manual_seed(5)
    config = ModelConfig(norm=norm, **SHAPE, **NO_DROPOUT)
    model = build(config, scheme, VOCABULARY, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():  # none is zero or one, as biases and gains begin
            parameter += 0.1 * torch.randn_like(parameter)
    return model.train()


def in_float64(model: Transformer) -> tuple[Tensor, dict[str, Tensor]]:
    """Return loss and gradients in plain steps."""
    source, target_input, target = batch()
    twin = deepcopy(model).double()
    with recording() as probabilities:
        hidden = twin(source, target_input)
    assert len(probabilities) == NUM_ATTENTIONS  # of plain attention
    real = target > 0
    loss = F.cross_entropy(
        twin.project(hidden)[real], target[real], reduction="sum", label_smoothing=EPSILON
    )
    return loss.detach(), gradients(twin, loss)


def gradients(model: Transformer, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {n: x for n, x in zip(names, found, strict=True) if x is not None}


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the calls of kernels in C, by name."""
    calls: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        call = library.call

        def counted(name: str, *arguments: Any) -> None:
            calls[name] += 1
            call(name, *arguments)

        patch.setattr(library, "call", counted)
        yield calls


def explained(model: Transformer, dtype: torch.dtype, with_kernels: bool) -> Counter[str]:
    """Return how many attentions each backend serves, as `explain` names it."""
    how: dict[str, Any] = {"dtype": dtype, "with_kernels": with_kernels, "train": True, "length": 7}
    heads = {"num_heads": SHAPE["num_heads"], "head_dim": SHAPE["dim"] // SHAPE["num_heads"]}
    attentions = [x for x in model.modules() if isinstance(x, Attention)]
    return Counter(explain(x.position, **how, **heads).backend for x in attentions)


def check(model: Transformer, ran: list[str], *, num_plain: int = 0) -> None:
    """Compare loss and gradients in both types, with and without kernels; assert which backends
    ran.

    Args:
        ran: the fixture.
        num_plain: attentions that kernels in C do not serve, besides those that change scores or
            widen queries and keys.
    """
    attentions = [x for x in model.modules() if isinstance(x, Attention)]
    num_plain += sum(
        x.position.acts("score") or any(isinstance(kind, PoPE) for kind in x.position.kinds())
        for x in attentions
    )
    expected_loss, expected = in_float64(model)
    assert ran == ["reference"] * NUM_ATTENTIONS
    largest = max(float(x.norm()) for x in expected.values())
    for dtype, in_c in ((x, y) for x in TOLERANCE for y in (True, False)):
        if in_c and not kernels.is_available(dtype):
            continue
        with counting() as calls, pytest.MonkeyPatch.context() as patch:
            if not in_c:
                patch.setattr(kernels, "is_available", lambda dtype: False)
            ran.clear()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = label_smoothed_loss(model, *batch(), EPSILON).smoothed
            found = gradients(model, loss)
            assert Counter(ran) == explained(model, dtype, in_c)
        number = NUM_ATTENTIONS - num_plain if in_c else 0
        assert ran.count("cpu") == number
        assert ran.count("reference") == NUM_ATTENTIONS - number
        assert calls["attention_forward"] == calls["attention_backward"] == number
        assert calls["cross_entropy"] == in_c
        assert found.keys() == expected.keys()
        assert abs(loss.item() - expected_loss.item()) < TOLERANCE[dtype] * expected_loss.item()
        errors = {
            name: float((found[name].double() - wanted).norm())
            / max(float(wanted.norm()), FLOOR * largest)
            for name, wanted in expected.items()
        }
        worst = max(errors, key=errors.__getitem__)
        assert errors[worst] < TOLERANCE[dtype], (dtype, in_c, worst, errors[worst])


NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


@NORMS
@pytest.mark.parametrize("name", CELLS)
def test_each_kind_at_each_place(name: str, norm: str, ran: list[str]) -> None:
    check(make(CELLS[name], norm), ran)


@pytest.mark.slow
@NORMS
@pytest.mark.parametrize(
    "name", [name for name, x in VARIANTS.items() if x.position_ids.name == "absolute"]
)
def test_each_variant(name: str, norm: str, ran: list[str]) -> None:
    check(make(VARIANTS[name], norm), ran)


class Convolved(Representation):
    """`inputs` reads its arguments transposed, as a convolution over tokens does, here over those
    before: padding has no meaning."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.convolution = nn.Conv1d(dim, dim, 3, groups=dim)

    def inputs(self, q, k, v, pos_q, pos_k):
        return q + self.convolution(F.pad(q.transpose(1, 2), (2, 0))).transpose(1, 2), k, v


class InHeads(Representation):
    """`inputs` reads its arguments as heads."""

    def __init__(self, *, dim: int, num_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, dim // num_heads))

    def inputs(self, q, k, v, pos_q, pos_k):
        heads = k.unflatten(-1, (len(self.weight), -1)).transpose(1, 2)
        return q, k + (heads * self.weight).transpose(1, 2).flatten(2), v


class InPlace(Representation):
    """`inputs` changes its arguments in place, which are one tensor in self-attention."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def inputs(self, q, k, v, pos_q, pos_k):
        q.mul_(self.weight)
        k[:, :1].add_(self.weight)
        return q, k, v


class Turned(Representation):
    """`rotate` reads views, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(head_dim // 2))

    def rotate(self, q, k, pos_q, pos_k):
        return self._turn(q, pos_q), self._turn(k, pos_k)

    def _turn(self, x, pos):
        a, b = x.transpose(1, 2).unflatten(-1, (2, -1)).unbind(-2)  # (B, T, H, E / 2)
        angle = (pos[:, :, None] * self.weight)[:, :, None]
        out = torch.cat((a * angle.cos(), a * angle.sin()), -1)
        out[..., : a.shape[-1]].sub_(b * angle.sin())
        out[..., a.shape[-1] :].add_(b * angle.cos())
        return out.transpose(1, 2)


class Biased(Representation):
    """`bias` changes what it has looked up in place, and returns a transposed view of it."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 9, num_heads))

    def bias(self, pos_q, pos_k, *, dtype):
        bias = self.table[pos_q[:, :, None], pos_k[:, None]].permute(0, 3, 1, 2)
        bias[..., :1].mul_(0.5)
        return bias.to(dtype)


class BiasedByQueries(Representation):
    """`query_bias` reads queries transposed, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))

    def query_bias(self, q, pos_q, pos_k):
        bias = (self.table[pos_k].unsqueeze(1) @ q.mT).mT
        bias.add_((pos_k / 9)[:, None, None].to(bias.dtype))
        return bias


class BiasedValues(Representation):
    """`value_bias` reads probabilities transposed, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))

    def value_bias(self, probs, pos_q, pos_k):
        out = (self.table.to(probs.dtype)[pos_k].unsqueeze(1).mT @ probs.mT).mT
        return out.mul_(2.0)


class Embedded(Representation):
    """`embed` changes its argument in place, through a view."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def embed(self, x, pos):
        x.transpose(1, 2).mul_(self.weight[:, None])
        return x.add_(pos.unsqueeze(-1) / 9)


OWN = {
    each.__name__.lower(): each
    for each in (
        Convolved, InHeads, InPlace, Turned, Biased, BiasedByQueries, BiasedValues, Embedded,
    )
}  # fmt: skip
PLAIN = {BiasedValues}
"""Kinds for which kernels in C do not serve."""


@NORMS
@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, kind in OWN.items() for place in kind.places]
)
def test_each_hook_of_a_kind_of_one_s_own(
    name: str, place: str, norm: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, name, Entry(OWN[name], "own", "own"))
    number = {"embedding": 0, "self": 4, "cross": 2}[place]
    model = make(Scheme(parts=(Part(name, place),)), norm)
    check(model, ran, num_plain=number if OWN[name] in PLAIN else 0)
