"""Dropout: rate, scale, independence, one mask for both directions, odd inputs."""

from __future__ import annotations

import pytest
import torch

from shapeshift.attention.dropout import dropout

COUNT = 200_000


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_nothing_happens_in_evaluation_or_at_zero() -> None:
    x = torch.randn(5)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_mean(p: float) -> None:
    out = dropout(torch.ones(COUNT), p, training=True)
    deviation = (p * (1 - p) / COUNT) ** 0.5
    assert abs((out == 0).double().mean().item() - p) < 4 * deviation
    assert abs(out.double().mean().item() - 1) < 4 * deviation / (1 - p)
    kept = out[out != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3)


def test_the_mean_is_exact_for_the_rate_that_is_used() -> None:
    # p = 0.1 becomes 6554 / 2^16, and the scale must follow, or all activations would drift.
    kept = dropout(torch.ones(1000, dtype=torch.float64), 0.1, training=True).max().item()
    assert kept == pytest.approx(65536 / (65536 - 6554), rel=1e-12)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8])
def test_elements_are_dropped_independently(lag: int) -> None:
    dropped = (dropout(torch.ones(COUNT), 0.3, training=True) == 0).double()
    together = (dropped[lag:] * dropped[:-lag]).mean().item()
    assert abs(together - 0.09) < 4 * (0.09 * 0.91 / COUNT) ** 0.5 * 1.5


def test_each_of_the_four_elements_of_a_word_has_the_same_rate() -> None:
    dropped = (dropout(torch.ones(COUNT), 0.3, training=True) == 0).double()
    rates = dropped.view(-1, 4).mean(0)
    assert (rates - 0.3).abs().max() < 4 * (0.21 / (COUNT / 4)) ** 0.5


def test_calls_differ_and_the_global_seed_repeats_them() -> None:
    x = torch.ones(100)
    first, second = (dropout(x, 0.5, training=True) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(dropout(x, 0.5, training=True), first)


def test_the_gradient_goes_through_the_same_mask() -> None:
    x = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.4, training=True)
    towards = torch.randn_like(out)
    (out * towards).sum().backward()
    torch.testing.assert_close(x.grad, towards * out.detach() / x.detach(), rtol=1e-12, atol=0)


def test_rates_at_the_edges() -> None:
    ones = torch.ones(50_000)
    assert dropout(ones, 1e-9, training=True).eq(1).all()  # rounds to nothing dropped
    almost = dropout(ones, 1 - 1e-9, training=True)
    assert almost.isfinite().all()
    assert almost.ne(0).sum() <= 10  # one in 65,536


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,), (2, 0, 3), (5, 7, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5, training=True).shape == shape


def test_bfloat16_keeps_its_dtype_and_mean() -> None:
    out = dropout(torch.ones(COUNT, dtype=torch.bfloat16), 0.1, training=True)
    assert out.dtype == torch.bfloat16
    assert out.double().mean().item() == pytest.approx(1, abs=0.01)


def test_input_that_is_not_contiguous() -> None:
    x = torch.arange(1.0, 41.0).view(5, 8).t()[::2]
    out = dropout(x, 0.5, training=True)
    kept = out != 0
    assert 0 < kept.sum() < x.numel()
    assert torch.equal(out[kept], 2 * x[kept])
