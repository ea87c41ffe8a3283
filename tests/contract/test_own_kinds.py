"""A kind of one's own that describes its mathematics is served as a kind of ours is: by the same
backend on every machine, which computes what `reference` defines."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shapeshift import kernels
from shapeshift.attention import Call, explain, recording, run
from shapeshift.attention.backends import blocked, flex, packed, triton
from shapeshift.attention.packing import Packing
from shapeshift.model.attention import Attention
from shapeshift.model.cache import KeyValues
from shapeshift.positions import Representation, get
from shapeshift.positions.pairs import Table
from shapeshift.positions.turns import Turn

H, E = 2, 16
D = H * E
SIZES = {"dim": D, "num_heads": H, "head_dim": E}


class Limited(Representation):
    """A learned number for each distance up to 3."""

    limits = (-3, 3)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(H, 7))

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype)[:, distances + 3]


class Fixed(Representation):
    """A number for each distance, however far, that is not learned."""

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return -(distances.abs().to(dtype).sqrt() * 0.7 + 0.1 * (distances > 0))[None]


class Learned(Representation):
    """A learned slope for each side."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(2, H))

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        shape = (H, *[1] * distances.ndim)
        left, right = (x.to(dtype).view(shape) for x in self.slopes)
        return left * distances.clamp(max=0) - right * distances.clamp(min=0)


class Turning(Representation):
    """Turns half of the channels, each pair at a speed of its own."""

    shift_invariant = True

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        angles = pos[..., None].double() * torch.linspace(0.1, 1.3, E // 4, dtype=torch.float64)
        return Turn(angles.cos(), angles.sin(), halves=True)


class Vectors(Representation):
    """Vectors for distances from -2 to 3, of each head for keys, of all heads for values."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(H, 6, E))
        self.values = nn.Parameter(torch.randn(1, 6, E))

    def distance_vectors(self) -> tuple[Table, Table]:
        return Table(self.keys, -2), Table(self.values, -2)


LIKE: dict[type[Representation], str] = {
    Limited: "t5",
    Fixed: "alibi",
    Learned: "kerple",
    Turning: "rotary",
    Vectors: "shaw",
}
"""Each kind, and ours that is described in the same way."""

BF16 = torch.bfloat16
COLUMNS: dict[str, dict[str, Any]] = {
    "cpu": {"with_kernels": True},
    "cpu, training": {"with_kernels": True, "train": True},
    "cpu, bf16, training": {"with_kernels": True, "train": True, "dtype": BF16},
    "cpu, dropout": {"with_kernels": True, "train": True, "dropout_p": 0.1},
    "cpu, long": {"with_kernels": True, "length": 2048},
    "cpu, decoding": {"with_kernels": True, "decode": True},
    "cpu, compiled": {"with_kernels": True, "compiled": True},
    "no kernels": {"with_kernels": False, "train": True},
    "no kernels, long": {"with_kernels": False, "length": 2048},
    "no kernels, decoding": {"with_kernels": False, "decode": True},
    "cuda": {"device": "cuda"},
    "cuda, bf16, training": {"device": "cuda", "dtype": BF16, "train": True},
    "cuda, dropout": {"device": "cuda", "dtype": BF16, "train": True, "dropout_p": 0.1},
    "cuda, long": {"device": "cuda", "dtype": BF16, "length": 2048},
    "cuda, decoding": {"device": "cuda", "dtype": BF16, "decode": True},
    "cuda, compiled": {"device": "cuda", "dtype": BF16, "train": True, "compiled": True},
}
"""Machines and calls, as options of `explain`."""

FASTEST = {
    ("cpu, bf16, training", Limited): "cpu",
    ("cpu, bf16, training", Fixed): "cpu",
    ("cpu, bf16, training", Learned): "cpu",
    ("cpu, bf16, training", Turning): "cpu",
    ("cpu, bf16, training", Vectors): "cpu",
    ("cpu, decoding", Limited): "decode",
    ("cpu, decoding", Vectors): "decode",
    ("no kernels, long", Fixed): "blocked",
    ("cuda, bf16, training", Limited): "triton",
    ("cuda, bf16, training", Turning): "packed",
    ("cuda, bf16, training", Vectors): "triton",
    ("cuda, long", Fixed): "flex",
    ("cuda, long", Learned): "flex",
    ("cuda, dropout", Vectors): "reference",  # no kernel for tables drops probabilities
    ("cuda, compiled", Turning): "packed",
    ("cuda, compiled", Vectors): "triton",
}
"""Which backend is known to serve; else a change that slows both kinds down would be none."""


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("kind", LIKE)
def test_it_has_the_backend_of_our_kind(kind: type[Representation], column: str) -> None:
    options = COLUMNS[column] | {"num_heads": H, "head_dim": E}
    own, ours = kind(), get(LIKE[kind], **SIZES)
    found = explain(own, **options)
    assert found == explain(ours, **options)
    assert found.backend == FASTEST.get((column, kind), found.backend)


def in_float64(layer: Attention, x: Tensor, pos: Tensor, causal: bool) -> tuple[Tensor, ...]:
    """Return the output and the gradients of a layer by `reference`."""
    with recording() as probabilities:
        out = deepcopy(layer).double()
        found = outcome(out, x.double(), pos, causal=causal)
    assert len(probabilities) == 1
    return found


def outcome(layer: Attention, x: Tensor, pos: Tensor, *, causal: bool) -> tuple[Tensor, ...]:
    out = layer(x, x, pos, pos, None, causal=causal)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape).roll(1, -1)
    return out, *torch.autograd.grad((out * weights).sum(), list(layer.parameters()))


def made(kind: type[Representation]) -> Attention:
    torch.manual_seed(0)
    layer = Attention(D, H, 0.0, kind())
    nn.init.normal_(layer.in_bias, std=0.3)
    return layer


RUN = {
    "cpu, training": "cpu",
    "cpu, bf16, training": "cpu",
    "no kernels": "reference",
    "no kernels, long": "blocked",
}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("column", RUN)
@pytest.mark.parametrize("kind", LIKE)
def test_what_runs_is_the_reference(
    kind: type[Representation],
    column: str,
    causal: bool,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = COLUMNS[column] | {"num_heads": H, "head_dim": E, "length": 40}
    dtype = options.get("dtype", torch.float32)
    if options["with_kernels"] and not kernels.is_available(dtype):
        pytest.skip("no compiled kernels")
    layer, x, pos = made(kind), torch.randn(3, 40, D), torch.arange(5, 45)[None]
    expected = in_float64(layer, x, pos, causal)
    assert ran.pop() == "reference"
    if not options["with_kernels"]:
        monkeypatch.setattr(kernels, "is_available", lambda _: False)
    if "long" in column:
        monkeypatch.setattr(blocked, "BLOCK", 700)  # parts of one sentence, some queries
    with torch.autocast("cpu", BF16, enabled=dtype == BF16):
        found = outcome(layer, x, pos, causal=causal)
    assert ran == [explain(layer.position, **options).backend] == [RUN[column]]
    near = {torch.float32: 1e-5, BF16: 0.03}[dtype]
    for got, wanted in zip(found, expected, strict=True):
        error = float((got.detach().double() - wanted.detach()).norm())
        assert error <= near * max(float(wanted.detach().norm()), 1.0)


@torch.no_grad()
@pytest.mark.parametrize("with_kernels", [True, False], ids=["kernels", "no kernels"])
@pytest.mark.parametrize("kind", LIKE)
def test_steps_of_decoding_are_the_reference(
    kind: type[Representation],
    with_kernels: bool,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not with_kernels:
        monkeypatch.setattr(kernels, "is_available", lambda _: False)
    elif not kernels.is_available(torch.float32):
        pytest.skip("no compiled kernels")
    layer, x, pos = made(kind).eval(), torch.randn(2, 9, D), torch.arange(9)[None]
    with recording():
        expected = layer(x, x, pos, pos, None, causal=True)
    ran.clear()
    cache = KeyValues()
    for n in range(9):
        step = x[:, n : n + 1]
        out = layer(step, step, pos[:, n : n + 1], pos[:, : n + 1], None, cache, causal=True)
        torch.testing.assert_close(out, expected[:, n : n + 1], rtol=1e-4, atol=1e-5)
    options = {"decode": True, "with_kernels": with_kernels, "num_heads": H, "head_dim": E}
    assert ran == [explain(layer.position, **options).backend] * 9


def call_of(position: Representation, causal: bool) -> tuple[Call, Tensor]:
    """Return a call with full sentences, packed, and its output in float64."""
    torch.manual_seed(1)
    B, T = 2, 11
    rows, pos = torch.randn(B * T, 3 * D, dtype=torch.float64), torch.arange(4, 4 + T)[None]
    packing = Packing(torch.arange(B * T), (B, T))
    how: dict[str, Any] = {"num_heads": H, "causal": causal, "packing": (packing, packing)}
    call = Call([rows], position.double(), pos, pos, **how)
    with recording():
        assert explain(call).backend == "reference"
        return call, run(call)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kind", [Limited, Fixed, Learned])
def test_flex_is_the_reference(kind: type[Representation], causal: bool) -> None:
    """FlexAttention without a GPU, in plain steps."""
    with torch.no_grad():
        call, expected = call_of(kind(), causal)
        torch.testing.assert_close(flex.run(call), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_packed_is_the_reference(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain products stand for PyTorch's kernel."""

    def efficient(q: Tensor, k: Tensor, v: Tensor, where: packed.Where, causal: bool) -> Tensor:
        heads = (x.unflatten(0, (2, -1)).transpose(1, 2) for x in (q, k, v))
        attend: Callable[..., Tensor] = torch.nn.functional.scaled_dot_product_attention
        return attend(*heads, is_causal=causal).transpose(1, 2).flatten(0, 1)

    monkeypatch.setattr(packed, "_efficient", efficient)
    call, expected = call_of(Turning(), causal)
    torch.testing.assert_close(packed.run(call), expected, rtol=0, atol=1e-12)


def test_the_tables_of_a_gpu_s_kernel_are_the_descriptions() -> None:
    """The kernel itself is tested in tests/gpu."""
    call, _ = call_of(position := Limited(), causal=False)
    keys, values = triton._tables(call)
    assert keys is not None
    assert values is None
    assert keys.low == -3
    torch.testing.assert_close(keys.vectors.double(), position.weight)
    call, _ = call_of(vectors := Vectors(), causal=False)
    keys, values = triton._tables(call)
    assert (keys, values) == vectors.distance_vectors()
