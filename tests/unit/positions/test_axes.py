"""Positions with several numbers for each token."""

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.config import parse_config
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.positions import (
    ALiBi,
    Axial,
    Chain,
    Part,
    Representation,
    Rotary,
    Scheme,
    Stack,
    get,
    place,
)

B, H, T, E = 2, 2, 12, 8
GRID = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij"), dim=-1)
GRID = GRID.view(1, T, 2)
"""Row and column of 3 x 4 patches."""


def heads() -> torch.Tensor:
    return torch.randn(3, B, H, T, E, dtype=torch.float64)


@pytest.mark.parametrize("name", ["axial", "rotary"])
def test_scores_depend_on_the_differences_along_each_axis(name):
    position = get(name, head_dim=E, **({} if name == "axial" else {"sections": [2, 2]}))
    assert position.num_axes == 2
    q, k, v = heads()

    def run(pos):
        turned = position("rotate", q, k, pos, pos)
        return attend(*turned, v, None, position, pos, pos)

    base = run(GRID)
    torch.testing.assert_close(run(GRID + torch.tensor([100, 7])), base)
    torch.testing.assert_close(run(GRID + torch.tensor([[[3, 0]], [[0, 5]]])), base)
    torch.testing.assert_close(run(GRID.double()), base)
    assert (run(GRID.flip(-1)) - base).abs().max() > 1e-3
    assert (run(GRID * 2) - base).abs().max() > 1e-3


def test_an_attention_of_torch_takes_positions_with_axes():
    torch.manual_seed(0)
    attention = MultiheadAttention(H * E, H, batch_first=True, position="axial").double()
    x = torch.randn(B, T, H * E, dtype=torch.float64)
    out, _ = attention(x, x, x, pos_q=GRID)
    order = torch.randperm(T)  # the order of patches means nothing, their positions everything
    shuffled, _ = attention(*[x[:, order]] * 3, pos_q=GRID[:, order])
    torch.testing.assert_close(shuffled, out[:, order])
    with pytest.raises(ShapeshiftError, match=r"give pos_q and pos_k, \(B, Q, 2\) and \(B, K, 2\)"):
        attention(x, x, x)


def test_kinds_with_axes_stand_in_a_chain_with_their_like():
    class Near(Representation):
        """A bias for patches in one row."""

        num_axes = 2

        def bias(self, pos_q, pos_k, *, dtype):
            same = pos_q[..., :, None, 0] == pos_k[..., None, :, 0]
            return same.to(dtype).unsqueeze(1)

    both = Chain(Axial(head_dim=E), Near())
    assert both.num_axes == 2
    q, k, v = heads()
    turned = both("rotate", q, k, GRID, GRID)
    scores = turned[0] @ turned[1].mT / E**0.5 + Near().bias(GRID, GRID, dtype=q.dtype)
    got = attend(*turned, v, None, both, GRID, GRID)
    torch.testing.assert_close(got, scores.softmax(-1) @ v)
    assert Chain(Representation(), Axial(head_dim=E)).num_axes == 2
    with pytest.raises(ShapeshiftError, match="Axial takes positions with 2 axes and ALiBi with 1"):
        Chain(Axial(head_dim=E), ALiBi(num_heads=H))


ONE = torch.arange(T)[None]
SECTIONS = {"head_dim": E, "sections": [2, 1, 1]}
MODEL = Stack("decoder", H * E, H, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rotate(Axial(head_dim=E), ONE), r"\(1, 12, 2\) or \(2, 12, 2\) here, a number"),
        (lambda: rotate(Axial(head_dim=E), GRID[:, :5]), r"got int64 \(1, 5, 2\)"),
        (lambda: rotate(Axial(head_dim=E), GRID.bool()), r"got bool \(1, 12, 2\)"),
        (lambda: rotate(Rotary(**SECTIONS), GRID), r"\(2, 12, 3\) here.*, got int64 \(1, 12, 2\)"),
        (lambda: rotate(Rotary(head_dim=E), GRID), r"pos_q must be integers \(1, 12\) or"),
        (lambda: rotate(Rotary(head_dim=E), ONE.float()), "pos_q must be integers"),
        (lambda: Axial(head_dim=6), "must be a multiple of 4, got 6"),
        (lambda: Axial(head_dim=8, num_axes=1), "num_axes must be at least 2, got 1"),
        (lambda: Rotary(head_dim=E, sections=[2, 1]), r"must add up to 4.*got \[2, 1\], .* 3"),
        (lambda: Rotary(head_dim=E, sections=[4]), "pairs of each of two or more axes"),
        (lambda: Rotary(head_dim=E, sections="22"), "pairs of each of two or more axes"),
        (lambda: Rotary(head_dim=E, sections=[4, 0]), "each of sections must be at least 1, got 0"),
        (
            lambda: Rotary(head_dim=E, sections=[1, 3], section_order="interleaved"),
            r"after the first must be at most 2, got \[1, 3\]",
        ),
        (lambda: Rotary(head_dim=E, section_order="interleaved"), "no meaning without sections"),
        (
            lambda: place(Scheme(parts=(Part("rotary", options={"sections": [2, 2]}),)), MODEL),
            "'rotary' takes positions with 2 axes here, and tokens of this model have one",
        ),
        (lambda: parse_config({}, ["position=axial"]), "'axial' takes positions with 2 axes here"),
    ],
)
def test_positions_with_axes_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ShapeshiftError, match=message):
        make()


def rotate(position: Representation, pos: torch.Tensor) -> object:
    q, k, _ = heads()
    return position("rotate", q, k, pos, pos)
