"""Dropout: rate, scale, independence, one mask for both directions, odd shapes."""

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, attend_with_probs
from shapeshift.attention.dropout import dropout
from shapeshift.positions import Representation

COUNT = 200_000


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_and_mean(p, dtype):
    out = dropout(torch.ones(COUNT, dtype=dtype), p, training=True)
    deviation = (p * (1 - p) / COUNT) ** 0.5
    dropped = (out == 0).double()
    assert out.dtype == dtype
    assert abs(dropped.mean().item() - p) < 4 * deviation
    rates = dropped.view(-1, 4).mean(0)  # each of the four elements of a word
    assert (rates - p).abs().max() < 8 * deviation
    assert torch.allclose(out[out != 0].float(), torch.tensor(1 / (1 - p)), rtol=1e-2)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8])
def test_elements_are_dropped_independently(lag):
    dropped = (dropout(torch.ones(COUNT), 0.3, training=True) == 0).double()
    together = (dropped[lag:] * dropped[:-lag]).mean().item()
    assert abs(together - 0.09) < 4 * (0.09 * 0.91 / COUNT) ** 0.5 * 1.5


def test_the_gradient_goes_through_the_same_mask():
    x = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    out = dropout(x, 0.4, training=True)
    towards = torch.randn_like(out)
    (out * towards).sum().backward()
    torch.testing.assert_close(x.grad, towards * out.detach() / x.detach(), rtol=1e-12, atol=0)


def test_rates_at_the_edges():
    # p = 0.1 becomes 6554 / 2^16, and the scale must follow, or all activations would drift.
    kept = dropout(torch.ones(1000, dtype=torch.float64), 0.1, training=True).max().item()
    assert kept == pytest.approx(65536 / (65536 - 6554), rel=1e-12)
    ones = torch.ones(50_000)
    assert dropout(ones, 0.0, training=True) is dropout(ones, 0.5, training=False) is ones
    assert dropout(ones, 1e-9, training=True).eq(1).all()  # rounds to nothing dropped
    for shape in ((), (3,), (2, 0, 3)):
        assert dropout(torch.ones(shape), 0.5, training=True).shape == shape
    almost = dropout(ones, 1 - 1e-9, training=True)
    assert almost.isfinite().all()
    assert almost.ne(0).sum() <= 10  # one in 65,536


@pytest.mark.parametrize("p", [-0.1, 1.0, 3.0, float("nan")])
def test_a_rate_out_of_range_is_refused(p):
    q, pos = torch.ones(1, 1, 3, 8), torch.arange(3)[None]
    for way in (attend, attend_with_probs):
        with pytest.raises(ShapeshiftError, match=f"at least 0 and below 1, got {p}"):
            way(q, q, q, None, Representation(), pos, pos, p)
    with pytest.raises(ShapeshiftError, match=f"at least 0 and below 1, got {p}"):
        dropout(q, p, training=True)
