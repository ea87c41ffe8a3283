"""Rotations against the paper's block-diagonal matrix, and the ways to stretch them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from shapeshift.positions import Rotary

WIDTH = 8


def matrix(position: int, thetas: list[float], pairs: str, width: int) -> np.ndarray:
    """R of Su et al. 2021, equation 15, with the identity on channels that do not turn."""
    r = np.eye(width)
    half = len(thetas)
    for m, theta in enumerate(thetas):
        a, b = (2 * m, 2 * m + 1) if pairs == "interleaved" else (m, m + half)
        angle = position * theta
        r[a, a] = r[b, b] = math.cos(angle)
        r[a, b], r[b, a] = -math.sin(angle), math.sin(angle)
    return r


def thetas_of(width: int, base: float = 10_000.0) -> list[float]:
    return [math.pow(base, -2 * (m - 1) / width) for m in range(1, width // 2 + 1)]


def yarn(thetas: list[float], s: float, length: int) -> list[float]:
    """Definition 2 of Peng et al. 2023 (NTK by parts), with r = L / wavelength."""
    made = []
    for theta in thetas:
        r = length / (2 * math.pi / theta)
        gamma = 0.0 if r < 1 else 1.0 if r > 32 else (r - 1) / 31
        made.append((1 - gamma) * theta / s + gamma * theta)
    return made


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize(("fraction", "turning"), [(1.0, 8), (0.5, 4), (0.4, 2), (0.1, 2)])
@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_layer_equals_the_papers_matrix(pairs, fraction, turning, cross, check_layer) -> None:
    rotary = Rotary(head_dim=WIDTH, pairs=pairs, fraction=fraction)
    thetas = thetas_of(turning)

    def score(h, i, j, q, k):
        at_i, at_j = (matrix(pos, thetas, pairs, WIDTH) for pos in (i, j))
        return (at_i @ q) @ (at_j @ k) / math.sqrt(WIDTH)

    check_layer(rotary, score, dim=16, cross=cross)


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@torch.no_grad()
def test_far_out_it_is_exact(pairs: str) -> None:
    pos = [0, 1, 9_999, 100_000]
    x = torch.randn(1, 1, len(pos), WIDTH, dtype=torch.float64)
    rotary, given = Rotary(head_dim=WIDTH, pairs=pairs), torch.tensor([pos])
    rows = zip(pos, x[0, 0].numpy(), strict=True)
    expected = [matrix(p, thetas_of(WIDTH), pairs, WIDTH) @ row for p, row in rows]
    got, _ = rotary.rotate(x, x, given, given)
    np.testing.assert_allclose(got[0, 0], np.stack(expected), rtol=0, atol=1e-9)
    single, _ = rotary.rotate(x.float(), x.float(), given, given)
    assert single.dtype == torch.float32
    assert (single.double() - got).abs().max() < 1e-6  # angles made in float32 are off by 4e-3


def test_half_precision_turns_in_float32() -> None:
    x = torch.randn(1, 1, 64, 64).bfloat16()
    pos = torch.arange(64)[None]
    got, _ = Rotary(head_dim=64).rotate(x, x, pos, pos)
    expected, _ = Rotary(head_dim=64).rotate(x.double(), x.double(), pos, pos)
    # One rounding at the end, half of the last of 8 bits.
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("width", "fraction"), [(4, 1.0), (128, 1.0), (64, 0.25)])
def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest(width, fraction) -> None:
    plain = Rotary(head_dim=width, fraction=fraction).frequencies().tolist()
    made = (
        Rotary(head_dim=width, fraction=fraction, scaling="ntk", factor=8.0).frequencies().tolist()
    )
    turning = 2 * len(plain)
    base = 10_000 * math.pow(8.0, turning / (turning - 2))
    assert made == pytest.approx(thetas_of(turning, base), rel=1e-12)
    assert made[0] == plain[0] == 1.0
    assert made[-1] == pytest.approx(plain[-1] / 8, rel=1e-12)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_yarn_divides_all_scores_by_its_temperature(fraction, check_layer) -> None:
    options = {"scaling": "yarn", "factor": 8.0, "original_length": 100}
    rotary = Rotary(head_dim=WIDTH, fraction=fraction, **options)
    t = (0.1 * math.log(8) + 1) ** -2
    thetas = yarn(thetas_of(int(WIDTH * fraction)), 8, 100)

    def score(h, i, j, q, k):
        at_i, at_j = (matrix(pos, thetas, "interleaved", WIDTH) for pos in (i, j))
        return (at_i @ q) @ (at_j @ k) / (t * math.sqrt(WIDTH))

    check_layer(rotary, score, dim=16)
