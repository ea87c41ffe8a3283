"""Loss and gradients of a whole model in the types that users train in, on each path, against the
same model in float64, computed in plain steps without packing."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention import explain, recording
from shapeshift.kernels import library
from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.model.attention import Attention
from shapeshift.positions import KINDS, Part, PoPE, Scheme
from shapeshift.positions.registry import Entry

from .conftest import CELLS, VARIANTS
from .own_kinds import OWN, BiasedValues

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

    def side(*lengths):
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

        def counted(name, *arguments):
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
def test_each_kind_at_each_place(name, norm, ran):
    check(make(CELLS[name], norm), ran)


@pytest.mark.slow
@NORMS
@pytest.mark.parametrize(
    "name", [name for name, x in VARIANTS.items() if x.position_ids.name == "absolute"]
)
def test_each_variant(name, norm, ran):
    check(make(VARIANTS[name], norm), ran)


PLAIN = {BiasedValues}
"""Kinds for which kernels in C do not serve."""


@NORMS
@pytest.mark.parametrize(
    ("name", "place"), [(name, place) for name, kind in OWN.items() for place in kind.places]
)
def test_each_hook_of_a_kind_of_one_s_own(name, place, norm, ran, monkeypatch):
    monkeypatch.setitem(KINDS, name, Entry(OWN[name], "own", "own"))
    number = {"embedding": 0, "self": 4, "cross": 2}[place]
    model = make(Scheme(parts=(Part(name, place),)), norm)
    check(model, ran, num_plain=number if OWN[name] in PLAIN else 0)
