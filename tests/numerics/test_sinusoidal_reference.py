"""Sines and cosines against the formula, in the three orders of channels."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.positions import Sinusoidal

POSITIONS = [0, 1, 2, 9, 500, 4095, 10_001, 65_537, 100_000]


def formula(i: int, dim: int, channels: str, base: float) -> list[float]:
    half = dim // 2
    steps = half - 1 if channels == "tensor2tensor" else half
    angles = [i / math.pow(base, m / steps) for m in range(half)]
    sines, cosines = [math.sin(a) for a in angles], [math.cos(a) for a in angles]
    if channels == "interleaved":
        return [value for pair in zip(sines, cosines, strict=True) for value in pair]
    return sines + cosines


@pytest.mark.parametrize("channels", ["interleaved", "halves", "tensor2tensor"])
@pytest.mark.parametrize(("dim", "base"), [(4, 10_000.0), (10, 10_000.0), (64, 500.0)])
def test_every_channel(channels: str, dim: int, base: float) -> None:
    encoding = Sinusoidal(dim=dim, channels=channels, base=base)
    got = encoding.encode(torch.tensor([POSITIONS]), torch.empty(0, dtype=torch.float64))
    expected = [formula(i, dim, channels, base) for i in POSITIONS]
    wanted = torch.tensor([expected], dtype=torch.float64)
    # 1e-10 and not less: the angle itself is rounded, and at 100,000 its last bit is 1.5e-11.
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-10)


def test_float32_far_out_is_the_rounded_exact_value() -> None:
    exact = torch.tensor(formula(100_000, 64, "interleaved", 10_000.0), dtype=torch.float64)
    got = Sinusoidal(dim=64).encode(torch.tensor([[100_000]]), torch.empty(0))[0, 0]
    assert got.dtype == torch.float32
    assert (got.double() - exact).abs().max() < 1e-7  # angles made in float32 are off by 4e-3
