"""What single kinds do beyond the contract: weights, initial values, limits, what they refuse."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.contract.conftest import Watch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.positions import (
    FIRE,
    KINDS,
    T5,
    TUPE,
    ALiBi,
    Chain,
    Graph,
    Learned,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    Skew,
    XPos,
    checks,
    get,
)

H, E, D = 2, 4, 8


def kind(name: type[Representation], **options: object) -> Representation:
    """Build a kind for H heads of width E."""
    taken = inspect.signature(name).parameters
    sizes = {"dim": D, "num_heads": H, "head_dim": E}
    return name(**{**{key: size for key, size in sizes.items() if key in taken}, **options})


@pytest.mark.parametrize(
    ("name", "options", "shapes"),
    [
        (Shaw, {}, {"keys": (1, 33, 4), "values": (1, 33, 4)}),
        (Shaw, {"max_distance": 3, "causal": True}, {"keys": (1, 4, 4), "values": (1, 4, 4)}),
        (Shaw, {"add_to": "keys", "per_head": True, "max_distance": 0}, {"keys": (2, 1, 4)}),
        (Skew, {}, {"keys": (2, 129, 4)}),
        (Skew, {"max_distance": 3, "per_head": False, "causal": True}, {"keys": (1, 4, 4)}),
        (Graph, {"num_labels": 5}, {"keys": (1, 5, 4), "values": (1, 5, 4)}),
        (T5, {"causal": True}, {"weight": (32, 2)}),
        (TUPE, {}, {"vectors.weight": (1024, 8), "query": (8, 8), "key": (8, 8)}),
    ],
)
def test_what_is_learned_and_saved(name, options, shapes):
    saved = kind(name, **options).state_dict()
    assert {key: tuple(value.shape) for key, value in saved.items()} == shapes


@pytest.mark.parametrize("assign", [True, False])
def test_a_table_that_keys_and_values_share_stays_one(assign):
    saved = kind(Shaw, share_tables=True)
    with torch.device("meta"):
        model = nn.Sequential(kind(Shaw, share_tables=True))
    if not assign:
        model.to_empty(device="cpu")
        assert len([*model.parameters()]) == 1
    state = {f"0.{name}": table.clone() for name, table in saved.state_dict().items()}
    model.load_state_dict(state, assign=assign)
    (table,) = model.parameters()
    assert torch.equal(table, saved.keys)
    assert pickle.loads(pickle.dumps(model))[0].values.shape == table.shape


def test_initial_values():
    torch.manual_seed(0)
    limit = (6 / (201 + 64)) ** 0.5  # Xavier's
    for table in Shaw(num_heads=1, head_dim=64, max_distance=100).parameters():
        assert 0.99 * limit < table.abs().max() <= limit
    approximately = {
        Skew(num_heads=8, head_dim=64).keys.norm(dim=-1).mean(): 1.0,
        T5(dim=64, num_heads=64).weight.std(): 64**-0.5,
        TUPE(dim=64, num_heads=2).vectors.weight.std(): 1.0,
        Learned(dim=64).weight.std(): 64**-0.5,
        FIRE(num_heads=3).log_c.exp(): 0.1,
        FIRE(num_heads=3).log_threshold.exp(): 512,
    }
    for got, expected in approximately.items():
        assert got.item() == pytest.approx(expected, rel=0.05)


def test_learned_gives_the_row_of_each_position_and_names_its_limit():
    learned, pos = Learned(dim=4, num_positions=6), torch.tensor([[5, 0, 2]])
    assert torch.equal(learned.embed(torch.zeros(1, 3, 4), pos)[0], learned.weight[[5, 0, 2]])
    with pytest.raises(ShapeshiftError, match=r"positions -2 to 2, .*; count from"):
        learned.embed(torch.zeros(1, 5, 4), torch.arange(-2, 3)[None])
    with pytest.raises(ShapeshiftError, match=r"to 4, but the learned table ends at 3"):
        kind(TUPE, num_positions=4).bias(*[torch.arange(5)[None]] * 2, dtype=torch.float32)
    for device in ("cpu", "meta"):  # where positions cannot be read, their number is known
        x, pos = torch.empty(2, 6, 4, device=device), torch.arange(9, device=device)[None]
        assert learned.to(device).embed(x, pos[:, :6]).shape == x.shape
        with pytest.raises(ShapeshiftError, match=r"sequence of 9 tokens.*to 8.*ends at 5"):
            learned.encode(pos, x)


@pytest.mark.parametrize("add_to", ["q", "k", "v", "qkv"])
def test_an_encoding_is_added_to_the_named_projections_alone(add_to):
    encoding = Sinusoidal(dim=4, add_to=add_to)
    x, pos_q, pos_k = torch.randn(1, 3, 4), torch.arange(3)[None], torch.arange(10, 13)[None]
    for name, got in zip("qkv", encoding.inputs(x, x, x, pos_q, pos_k), strict=True):
        pos = pos_q if name == "q" else pos_k
        expected = x + encoding.encode(pos, x) if name in add_to else x
        assert torch.equal(got, expected), name


def refuse_float64(operator: object, _: object, out: object) -> None:
    """As a device that has none, such as Apple's MPS."""
    for each in tree_leaves(out):
        if isinstance(each, Tensor) and each.dtype is torch.float64:
            raise TypeError(f"{operator} makes float64")


POS = torch.arange(40)[None]
X = torch.ones(1, 40, 8)
YARN = {"scaling": "yarn", "factor": 4.0, "original_length": 10}
COMPUTED: dict[str, Callable[[], Tensor]] = {
    "sinusoidal": lambda: Sinusoidal(dim=8).embed(X, POS),
    "rotary": lambda: Rotary(head_dim=8, **YARN).rotate(X[None], X[None], POS, POS)[0],
    "xpos": lambda: XPos(head_dim=8).rotate(X[None], X[None], POS, POS)[1],
    "alibi": lambda: ALiBi(num_heads=3).bias(POS, POS, dtype=torch.float32),
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_a_device_without_float64_computes_in_float32(compute, monkeypatch):
    expected = compute()
    monkeypatch.setattr(checks, "WITHOUT_FLOAT64", ("mps", "cpu"))
    with Watch(refuse_float64):
        got = compute()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


Q = torch.ones(2, H, 3, E)
PROBS = torch.ones(2, H, 3, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda pos: Sinusoidal(dim=8).embed(X[:, :3].expand(2, -1, -1), pos),
        lambda pos: Learned(dim=8).inputs(*[X[:, :3].expand(2, -1, -1)] * 3, pos, pos),
        lambda pos: kind(Rotary).rotate(Q, Q, pos, pos),
        lambda pos: kind(XPos).rotate(Q, Q, POS[:, :3], pos),
        lambda pos: kind(Shaw).query_bias(Q, pos, POS[:, :3]),
        lambda pos: kind(Shaw).value_bias(PROBS, POS[:, :3], pos),
    ],
)
def test_positions_do_not_broadcast_over_tokens(call):
    call(POS[:, :3])
    for pos in (POS[:, :1], POS[:, :1].expand(2, -1), POS[:, :3].expand(3, -1)):
        with pytest.raises(ShapeshiftError, match=r"must be integers \(1, 3\) or \(2, 3\) here"):
            call(pos)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(1, 3, 1), "Sinusoidal was built for dim=8, but here it is 1"),
        (torch.ones(3, 8), r"floating point of shape \(B, T, D\), got float32 \(3, 8\)"),
        (torch.ones(1, 3, 8, dtype=torch.int64), r"got int64 \(1, 3, 8\)"),
    ],
)
def test_vectors_are_added_to_floating_point_of_their_width(x, message):
    for call in (
        Sinusoidal(dim=8).embed,
        lambda x, pos: Sinusoidal(dim=8).inputs(x, x, x, pos, pos),
    ):
        with pytest.raises(ShapeshiftError, match=message):
            call(x, POS[:, :3])


class Short(Representation):
    """Its bias would be read as one for each head."""

    def bias(self, pos_q, pos_k, *, dtype):
        return torch.zeros(len(pos_q), pos_q.shape[1], pos_k.shape[1], dtype=dtype)


class ShortOutput(Representation):
    def value_bias(self, probs, pos_q, pos_k):
        return probs.new_zeros(*probs.shape[1:3], E)


@pytest.mark.parametrize("position", [Short(), ShortOutput(), Chain(Short(), kind(ALiBi))])
def test_what_is_added_has_a_dimension_for_the_heads(position):
    q, pos = torch.randn(2, H, 3, E), torch.arange(3)[None].expand(2, -1)
    with pytest.raises(ShapeshiftError, match=r"four dimensions.*, got \(2, 3, [34]\)"):
        attend(q, q, q, None, position, pos, pos)


class Own(Representation):
    """A kind with annotations of all sorts."""

    def __init__(self, dim: int, scale: float = 1.0, *, x: Nowhere = None, **more: int):  # noqa: F821
        super().__init__()
        self.options = dim, scale, x, more


def test_annotations_of_a_kind_of_ones_own():
    assert Own(8, "any", x=3, more=4).options == (8, "any", 3, {"more": 4})
    with pytest.raises(ShapeshiftError, match=r"Own.dim: expected at least 1, got 0"):
        Own(0)
    assert kind(ALiBi, num_heads=np.int64(2)).slopes().shape == (2,)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "none"])
def test_its_repr_has_every_option(name):
    position = get(name, dim=H * E, num_heads=H, head_dim=E)
    options = inspect.signature(type(position)).parameters
    assert [option for option in options if f"{option}=" not in repr(position)] == []


def test_a_repr_shows_what_differs():
    assert "fraction=0.5" in repr(kind(Rotary, fraction=0.5))
    assert "add_to='values', share_tables=False, per_head=True" in repr(
        kind(Shaw, add_to="values", per_head=True)
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (Skew, {"max_distance": -1}, "max_distance must be at least 0, got -1"),
        (Shaw, {"add_to": "keys", "share_tables": True}, r"share_tables .* add_to='both'"),
        (Shaw, {"add_to": 3, "per_head": "false"}, "Shaw.add_to: .*; Shaw.per_head: .*got 'false'"),
        (T5, {"num_buckets": 30}, r"num_buckets must be 4, 8, 12, ….*30"),
        (T5, {"max_distance": 16}, "more than half of num_buckets=32, got 16"),
        (ALiBi, {"num_heads": 0}, "num_heads: expected at least 1, got 0"),
        (FIRE, {"hidden": 0}, "hidden must be at least 1"),
        (FIRE, {"threshold": 0.0}, "threshold must be positive"),
        (Rotary, {"head_dim": 7}, "got head_dim=7; choose an even head_dim"),
        (Rotary, {"base": math.nan}, "base: expected a finite number, got nan"),
        (Rotary, {"pairs": "half"}, "pairs: expected 'interleaved' or 'halves', got 'half'"),
        (Rotary, {"factor": 2.0}, "factor=2.0 has no meaning with scaling='none'"),
        (Rotary, {"scaling": "yarn", "factor": 2.0}, "needs original_length"),
        (Rotary, {"original_length": 9}, "no other scaling takes it"),
        (Rotary, {"scaling": "ntk", "factor": 2.0, "fraction": 0.5}, "only one pair"),
        (Sinusoidal, {"dim": 7}, "even width .* got dim=7; choose an even dim"),
        (TUPE, {"dim": 10, "num_heads": 4}, "dim must be a multiple of num_heads, got 10 and 4"),
    ],
)
def test_settings_that_have_no_meaning(name, options, message):
    with pytest.raises(ShapeshiftError, match=message):
        kind(name, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Chain(kind(Rotary), kind(Shaw)), "Rotary turns the queries that Shaw reads, .*T5"),
        (lambda: Chain(Chain(kind(Rotary)), kind(Graph, num_labels=3)), "that Graph reads"),
        (lambda: Chain(kind(Rotary), kind(XPos)), "Rotary and XPos would both .*; leave one"),
        (lambda: Chain("rope", "alibi"), "must be Representations, got 'rope'.*get builds"),
        (lambda: Chain(kind(ALiBi), Chain(kind(T5, num_heads=4))), "num_heads=4, but here it is 2"),
    ],
)
def test_a_chain_refuses_a_part_that_changes_what_another_needs(make, message):
    with pytest.raises(ShapeshiftError, match=message):
        make()


def test_integer_heads_do_not_rotate():
    heads, pos = torch.ones(1, H, 3, E, dtype=torch.int64), torch.arange(3)[None]
    with pytest.raises(ShapeshiftError, match=r"q must have a floating-point dtype, got int64"):
        Rotary(head_dim=E).rotate(heads, heads, pos, pos)


@pytest.mark.parametrize("name", [Rotary, XPos])
@pytest.mark.parametrize("widths", [(8, 4), (4, 8)])
def test_heads_of_another_width_are_refused(name, widths):
    q, k = (torch.zeros(1, H, 3, width) for width in widths)
    with pytest.raises(ShapeshiftError, match="head_dim=4, but here it is 8; build it for"):
        kind(name).rotate(q, k, POS[:, :3], POS[:, :3])


@pytest.mark.parametrize("name", [Rotary, XPos])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_heads_rotate_however_they_lie_in_memory(name, dtype):
    T, pos = 3, torch.arange(3).unsqueeze(0)
    wide = torch.randn(1, T, 2 * H * E + 1, dtype=dtype)
    columns = wide[..., : H * E], wide[..., 1 : H * E + 1]
    by_channel = torch.randn(1, H * E, T, dtype=dtype).view(1, H, E, T).transpose(2, 3)
    shifted = torch.randn(1 + H * T * E, dtype=dtype)[1:].view(1, H, T, E)
    for x in (*(each.view(1, T, H, E).transpose(1, 2) for each in columns), by_channel, shifted):
        plain = x.clone(memory_format=torch.contiguous_format)
        got, expected = (kind(name).rotate(y, y, pos, pos) for y in (x, plain))
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_heads_of_a_projection_rotate_without_a_copy():
    heads = torch.randn(1, 3, H * E).view(1, 3, H, E).transpose(1, 2)
    called = []
    with Watch(lambda operator, given, out: called.append(str(operator))):
        kind(Rotary).rotate(heads, heads, torch.arange(3)[None], torch.arange(3)[None])
    assert "aten.view_as_complex.default" in called
    assert "aten.clone.default" not in called
