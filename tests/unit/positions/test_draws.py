"""Draws from a generator that is a tensor."""

from __future__ import annotations

import torch

from shapeshift.positions import draws


def test_the_numbers_are_those_of_a_torch_generator() -> None:
    state, generator = draws.seeded(7), torch.Generator().manual_seed(7)
    for _ in range(3):
        expected = torch.randint(501, (6,), generator=generator)
        assert torch.equal(draws.integers(state, 501, 6), expected)
        expected = torch.rand(2, 700, generator=generator)  # more than the state holds
        assert torch.equal(draws.uniform(state, 2, 700), expected)


def test_the_global_generator_is_neither_read_nor_moved() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draws.integers(draws.seeded(3), 1000, 20)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(draws.integers(draws.seeded(3), 1000, 20), first)


def test_a_default_device_or_dtype_changes_nothing() -> None:
    expected = draws.integers(draws.seeded(3), 9, 5), draws.uniform(draws.seeded(3), 2, 5)
    with torch.device("meta"):
        state = draws.seeded(3)
        assert torch.equal(draws.integers(state, 9, 5), expected[0])
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(draws.uniform(draws.seeded(3), 2, 5), expected[1])
    finally:
        torch.set_default_dtype(torch.float32)


def test_compilers_are_told_what_the_operators_do() -> None:
    claims = ("test_schema", "test_faketensor")
    torch.library.opcheck(draws.integers, (draws.seeded(0), 10, 4), test_utils=claims)
    torch.library.opcheck(draws.uniform, (draws.seeded(0), 3, 4), test_utils=claims)
