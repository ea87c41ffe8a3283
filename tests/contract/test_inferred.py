"""Kinds that override a hook and declare nothing: it acts wherever and however attention runs."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention.backends import cpu, sdpa
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.model.attention import Attention
from shapeshift.positions import T5, ALiBi, Chain, Representation, Shaw

from .own_kinds import OWN, Biased, Embedded, Turned, build

B, H, E = 2, 2, 4
D = H * E
FROM = 64
LENGTHS = (FROM - 1, FROM + 1)
"""Below and above the length from which other ways serve: see `short`."""


def distances(pos_q: Tensor, pos_k: Tensor) -> Tensor:
    return (pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)).unsqueeze(1)  # (B|1, 1, Q, K)


class BiasByIndex(Representation):
    """Reads the size of the attention, so that it may not be called for some queries."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(H, 8))

    def bias(self, pos_q, pos_k, *, dtype):
        i, j = torch.arange(pos_q.shape[1])[:, None], torch.arange(pos_k.shape[1])
        return self.weight[None, :, (i * j) % 8]  # (1, H, Q, K)


class LouderKeys(Shaw):
    """Inherits a fast `scores`, which does not compute this."""

    def query_bias(self, q, pos_q, pos_k):
        return -3 * super().query_bias(q, pos_q, pos_k)


class KeysAgain(Shaw):
    """Overrides what it was built without."""

    def __init__(self) -> None:
        super().__init__(num_heads=H, head_dim=E, add_to="values")

    def query_bias(self, q, pos_q, pos_k):
        return q.sum(-1, keepdim=True) * (distances(pos_q, pos_k) % 3)


def own(name: str) -> Representation:
    return build(OWN[name], dim=D, num_heads=H, head_dim=E)


FORGETFUL = {
    **{name: partial(own, name) for name in OWN if name not in ("embedded", "inplace")},
    "bias by index": BiasByIndex,
    "query bias of a subclass": lambda: LouderKeys(num_heads=H, head_dim=E, max_distance=2),
    "query bias without keys": KeysAgain,
    "chain": lambda: Chain(own("biased"), ALiBi(num_heads=H)),
    "chain of chains": lambda: Chain(
        T5(dim=D, num_heads=H), Chain(own("inheads"), Chain(own("biasedvalues")))
    ),
    "chain that turns": lambda: Chain(ALiBi(num_heads=H), own("turned")),
}


def reference(layer: Attention, x: Tensor, pos: Tensor) -> Tensor:
    """The equations in the docstring of `Representation`, step by step."""
    position = layer.position
    inputs = position.inputs(x, x, x, pos, pos)
    weights, biases = layer.in_weight.chunk(3), layer.in_bias.chunk(3)
    q, k, v = (
        nn.functional.linear(*each).unflatten(-1, (H, E)).transpose(1, 2)
        for each in zip(inputs, weights, biases, strict=True)
    )
    q, k = position.rotate(q, k, pos, pos)
    q = q * E**-0.5
    scores = q @ k.transpose(-1, -2)
    for bias in (position.bias(pos, pos, dtype=q.dtype), position.query_bias(q, pos, pos)):
        scores = scores if bias is None else scores + bias
    probs = scores.softmax(-1).to(v.dtype)
    out, mixed = probs @ v, position.value_bias(probs, pos, pos)
    return layer.out((out if mixed is None else out + mixed).transpose(1, 2).flatten(2))


def run(module: nn.Module, x: Tensor, pos: Tensor, *, weights: bool = False) -> Tensor:
    if isinstance(module, Attention):
        return module(x, x, pos, pos, None)
    return module(x, x, x, need_weights=weights, pos_q=pos, pos_k=pos)[0]


@pytest.fixture
def short(monkeypatch):
    """Let few keys be enough for the ways that serve long sentences."""
    monkeypatch.setattr(sdpa, "FUSED_FROM", dict.fromkeys(sdpa.FUSED_FROM, FROM))
    monkeypatch.setattr(cpu, "RECOMPUTED_FROM", FROM)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", FORGETFUL)
@pytest.mark.parametrize(
    ("backend", "length"),
    [("default", n) for n in LENGTHS]
    + [(name, LENGTHS[1]) for name in ("reference", "blocked", "sdpa", "cpu")],
    indirect=["backend"],
)
def test_a_hook_acts_without_declarations(kind, length, dtype, backend):
    torch.manual_seed(0)
    position = FORGETFUL[kind]().requires_grad_(True)
    ours = Attention(D, H, 1e-9, position)  # a dropout that drops nothing
    theirs = MultiheadAttention(D, H, 1e-9, batch_first=True, position=position)
    theirs.in_proj_weight, theirs.in_proj_bias = ours.in_weight, ours.in_bias
    theirs.out_proj = ours.out
    ours.to(dtype)
    x = torch.randn(B, length, D, dtype=dtype)
    pos = torch.arange(length) + torch.tensor([[0], [9]])
    with torch.no_grad():
        expected = reference(ours, x, pos)
        mixes = (
            position.value_bias(torch.rand(B, H, length, length, dtype=dtype), pos, pos) is not None
        )
        ours.position = Representation()
        without = reference(ours, x, pos)
        ours.position = position
    acting = [hook for hook in ("bias", "query_bias", "value_bias") if position.acts(hook)]
    divides = all(position.derives(hook) for hook in acting)
    limit = 1e-4 if dtype == torch.float32 else 0.015
    assert far(without, expected) > 5 * limit
    for training in (False, True):
        with torch.set_grad_enabled(training):
            for module in (ours.train(training), theirs.train(training)):
                before = backend.calls
                assert far(run(module, x, pos), expected) < limit
                runs = {"reference": True, "blocked": divides, "sdpa": not mixes}
                runs["cpu"] = not mixes or position.derives("value_bias")
                assert (backend.calls > before) == runs.get(backend.name, False)
    assert far(run(theirs, x, pos, weights=True), expected) < limit


def far(got: Tensor, expected: Tensor) -> float:
    return float((got - expected).detach().norm() / expected.norm())


def test_a_promise_does_not_outlive_the_hook_that_it_is_about():
    assert Shaw(num_heads=H, head_dim=E).shift_invariant
    for cls in (Biased, LouderKeys, Turned):
        assert not cls.shift_invariant, cls
    assert not Chain(ALiBi(num_heads=H), BiasByIndex()).shift_invariant


def test_places_are_those_where_a_hook_is_called():
    assert Embedded.places == ("embedding",)
    assert Biased.places == ("self", "cross")
    with pytest.raises(ShapeshiftError, match=r"places of Lost are embedding.*use self or cross"):
        type("Lost", (Biased,), {"places": ("embedding",)})
    for places in ("self", ("self", "crosss")):
        with pytest.raises(
            ShapeshiftError, match=r"Typo must be a tuple of embedding, self, cross"
        ):
            type("Typo", (Biased,), {"places": places})


def test_a_description_that_nothing_reads_is_refused():
    with pytest.raises(ShapeshiftError, match=r"Unread overrides distance_bias.*override bias"):
        type("Unread", (Biased,), {"distance_bias": lambda *_: None})
    type("Read", (LouderKeys,), {"distance_vectors": lambda *_: (None, None)})
