"""What single kinds do beyond the contract: limits, initial values, options, what they refuse."""

from __future__ import annotations

import inspect

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import (
    SHAPE,
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
)
from shapeshift.positions.registry import KINDS, POSITION_IDS, check_options, entry


def test_no_position_is_the_identity() -> None:
    none = Representation()
    x, memory, pos = torch.randn(1, 3, 4), torch.randn(1, 2, 4), torch.arange(3)[None]
    assert none.embed(x, pos) is x
    assert none.inputs(x, memory, memory, pos, pos[:, :2]) == (x, memory, memory)
    assert none.bias(pos, pos, dtype=x.dtype) is None
    assert none.query_bias(x[:, None], pos, pos) is None
    assert none.value_bias(torch.rand(1, 1, 3, 3), pos, pos) is None


def test_learned_gives_the_row_of_each_position() -> None:
    learned = Learned(dim=4, num_positions=6)
    pos = torch.tensor([[5, 0, 2]])
    assert torch.equal(learned.embed(torch.zeros(1, 3, 4), pos)[0], learned.weight[[5, 0, 2]])


def test_learned_starts_like_the_embeddings_or_as_told() -> None:
    torch.manual_seed(0)
    assert Learned(dim=64).weight.std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert Learned(dim=64, std=0.5).weight.std().item() == pytest.approx(0.5, rel=0.02)


def test_learned_names_the_length_and_the_limit() -> None:
    learned = Learned(dim=4, num_positions=6)
    with pytest.raises(ShapeshiftError, match=r"sequence of 9 tokens.*position 8.*ends at 5"):
        learned.embed(torch.zeros(1, 9, 4), torch.arange(9)[None])
    with pytest.raises(ShapeshiftError, match=r"starts at position 0, got position -2; count from"):
        learned.embed(torch.zeros(1, 5, 4), torch.arange(-2, 3)[None])
    with pytest.raises(ShapeshiftError, match="num_positions"):
        Learned(dim=4, num_positions=0)


@pytest.mark.parametrize("dim", [7, 2, 0])
def test_sinusoidal_refuses_widths_without_pairs(dim: int) -> None:
    with pytest.raises(ShapeshiftError, match=f"even width .*{dim}"):
        Sinusoidal(dim=dim)


@pytest.mark.parametrize("add_to", ["q", "k", "v", "qk", "qkv"])
def test_an_encoding_is_added_to_the_named_projections_alone(add_to: str) -> None:
    encoding = Sinusoidal(dim=4, add_to=add_to)
    x, pos_q, pos_k = torch.randn(1, 3, 4), torch.arange(3)[None], torch.arange(10, 13)[None]
    made = dict(zip("qkv", encoding.inputs(x, x, x, pos_q, pos_k), strict=True))
    for name, got in made.items():
        pos = pos_q if name == "q" else pos_k
        expected = x + encoding.encode(pos, x) if name in add_to else x
        assert torch.equal(got, expected), name


@pytest.mark.parametrize("add_to", ["", "Q", "keys"])
def test_an_encoding_refuses_projections_that_are_none(add_to: str) -> None:
    with pytest.raises(ShapeshiftError, match="add_to"):
        Sinusoidal(dim=4, add_to=add_to)


def test_shaw_has_the_tables_it_was_asked_for() -> None:
    def rows(**options: object) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(p.shape)
            for name, p in Shaw(num_heads=2, head_dim=4, **options).named_parameters()
        }

    assert rows() == {"keys": (1, 33, 4), "values": (1, 33, 4)}
    assert rows(max_distance=3, causal=True) == {"keys": (1, 4, 4), "values": (1, 4, 4)}
    assert rows(add_to="keys", per_head=True, max_distance=0) == {"keys": (2, 1, 4)}
    assert rows(add_to="values") == {"values": (1, 33, 4)}
    assert rows(share_tables=True, max_distance=1) == {"keys": (1, 3, 4)}
    with pytest.raises(ShapeshiftError, match="max_distance"):
        Shaw(num_heads=2, head_dim=4, max_distance=-1)
    with pytest.raises(ShapeshiftError, match=r"share_tables .* add_to='keys'.* add_to='both'"):
        Shaw(num_heads=2, head_dim=4, add_to="keys", share_tables=True)


def test_shaw_tables_start_at_xaviers_range() -> None:
    torch.manual_seed(0)
    shaw = Shaw(num_heads=1, head_dim=64, max_distance=100)
    limit = (6 / (201 + 64)) ** 0.5
    for table in (shaw.keys, shaw.values):
        assert 0.99 * limit < table.abs().max() <= limit
        assert table.std().item() == pytest.approx(limit / 3**0.5, rel=0.02)


def test_shaw_memory_does_not_grow_with_queries_times_keys_times_width() -> None:
    shaw = Shaw(num_heads=2, head_dim=64, max_distance=4)
    q, pos = torch.randn(1, 2, 50, 64), torch.arange(50)[None]
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()), lambda t: t):
        shaw.query_bias(q, pos, pos)
        shaw.value_bias(torch.rand(1, 2, 50, 50), pos, pos)
    assert max(sizes) < 50 * 50 * 64


def test_a_chain_is_the_sum_of_its_parts() -> None:
    torch.manual_seed(0)
    shaw, other, sines = (
        Shaw(num_heads=2, head_dim=4),
        Shaw(num_heads=2, head_dim=4, add_to="keys"),
        Sinusoidal(dim=8),
    )
    chain = Chain(shaw, sines, other)
    q, probs, pos = torch.randn(1, 2, 5, 4), torch.rand(1, 2, 5, 5), torch.arange(5)[None]
    expected = shaw.query_bias(q, pos, pos) + other.query_bias(q, pos, pos)
    torch.testing.assert_close(chain.query_bias(q, pos, pos), expected)
    assert torch.equal(chain.value_bias(probs, pos, pos), shaw.value_bias(probs, pos, pos))
    assert chain.overrides("value_bias")
    assert not Chain(other, sines).overrides("value_bias")
    assert Chain(sines).query_bias(q, pos, pos) is None


def test_a_chain_is_shift_invariant_if_all_its_parts_are() -> None:
    assert Chain(Shaw(num_heads=2, head_dim=4), Representation()).shift_invariant
    assert not Chain(Shaw(num_heads=2, head_dim=4), Sinusoidal(dim=8)).shift_invariant


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Chain(Rotary(head_dim=4), Shaw(num_heads=2, head_dim=4)),
            "Rotary turns the queries that Shaw reads, .*T5",
        ),
        (
            lambda: Chain(Skew(num_heads=2, head_dim=4), XPos(head_dim=4)),
            "XPos turns the queries that Skew reads, .*T5",
        ),
        (
            lambda: Chain(Chain(Rotary(head_dim=4)), Graph(num_heads=2, head_dim=4, num_labels=3)),
            "that Graph reads",
        ),
        (
            lambda: Chain(
                Shaw(num_heads=2, head_dim=4), Chain(T5(dim=8, num_heads=2), Rotary(head_dim=4))
            ),
            "that Shaw reads",
        ),
        (
            lambda: Chain(Rotary(head_dim=4), XPos(head_dim=4)),
            "Rotary and XPos would both change .*; leave one",
        ),
        (
            lambda: Chain(TUPE(dim=8, num_heads=2), Chain(TUPE(dim=8, num_heads=2))),
            "TUPE and TUPE would both change",
        ),
    ],
)
def test_a_chain_refuses_a_part_that_changes_what_another_needs(make, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_what_does_not_read_queries_stands_beside_rotary() -> None:
    chain = Chain(
        Rotary(head_dim=4),
        Shaw(num_heads=2, head_dim=4, add_to="values"),
        Graph(num_heads=2, head_dim=4, num_labels=3, add_to="values"),
        TUPE(dim=8, num_heads=2),
    )
    assert (chain.position_free_heads, chain.overrides("query_bias")) == (False, False)
    chain = Chain(
        TUPE(dim=8, num_heads=2),
        Skew(num_heads=2, head_dim=4),
        Shaw(num_heads=2, head_dim=4),
        ALiBi(num_heads=2),
    )
    assert (chain.position_free_heads, chain.overrides("query_bias")) == (True, True)


def test_options_of_a_kind_leave_out_what_the_model_fixes() -> None:
    assert not KINDS["none"].options()
    assert "max_distance" in KINDS["shaw"].options()
    assert not {"num_heads", "head_dim", "causal"} & set(KINDS["shaw"].options())


@pytest.mark.parametrize(
    "build",
    [
        SHAPE,
        Graph,
        *(
            each.build
            for each in (*KINDS.values(), *POSITION_IDS.values())
            if "__init__" in vars(each.build)
        ),
    ],
)
def test_arguments_are_given_by_name(build: type) -> None:
    parameters = inspect.signature(build).parameters.values()
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters)
    with pytest.raises(TypeError, match="positional argument"):
        build(8)


def test_errors_name_the_nearest() -> None:
    with pytest.raises(ShapeshiftError, match=r"unknown kind 'shav'; did you mean 'shaw'\?"):
        entry(KINDS, "shav", "kind")
    with pytest.raises(ShapeshiftError, match=r"max_distence.*did you mean 'max_distance'\?"):
        check_options(KINDS["shaw"], {"max_distence": 3}, "kind 'shaw'")
    with pytest.raises(ShapeshiftError, match="it takes none"):
        check_options(KINDS["none"], {"x": 1}, "kind 'none'")
