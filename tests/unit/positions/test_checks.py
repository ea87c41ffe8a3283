"""Limits of positions where the numbers cannot be read: the shape still says something."""

from __future__ import annotations

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Learned, XPos
from shapeshift.positions.checks import can_read

META = torch.device("meta")


def test_numbers_on_the_cpu_can_be_read_and_those_that_are_not_there_cannot() -> None:
    assert can_read(torch.arange(3))
    assert not can_read(torch.arange(3, device=META))

    @torch.compile(backend="eager", fullgraph=True)
    def inside(pos: torch.Tensor) -> torch.Tensor:
        return pos + 1 if can_read(pos) else pos

    pos = torch.arange(3)
    assert torch.equal(inside(pos), pos)


def test_learned_knows_a_length_without_reading() -> None:
    learned = Learned(4, num_positions=6).to(META)
    x = torch.empty(2, 6, 4, device=META)
    pos = torch.arange(7, device=META)[None]
    assert learned.embed(x, pos[:, :6]).shape == x.shape
    with pytest.raises(ShapeshiftError, match=r"sequence of 7 tokens.*position 6.*ends at 5"):
        learned.encode(pos, x)


def test_xpos_without_numbers_has_a_shape() -> None:
    q, pos = torch.empty(2, 3, 5, 8, device=META), torch.arange(5, device=META)[None]
    turned, _ = XPos(8).heads(q, q, pos, pos)
    assert (turned.shape, turned.device.type) == (q.shape, "meta")


def test_xpos_without_numbers_is_checked_where_they_are() -> None:
    # What a GPU runs is an assertion on the device; on a CPU it runs, too.
    xpos, q = XPos(8, scale_base=1.0), torch.randn(1, 1, 2, 8)

    def turn(first: int) -> torch.Tensor:
        pos = torch.arange(first, first + 2)[None]
        return torch.compile(xpos.heads, backend="eager")(q, q, pos, pos)[0]

    assert turn(0).isfinite().all()
    with pytest.raises(RuntimeError, match=r"on either side of centre=0; move centre"):
        turn(1000)
