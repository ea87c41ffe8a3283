"""Limits of positions where the numbers cannot be read: the shape still says something."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import ALiBi, Learned, Rotary, Sinusoidal, XPos, checks

META = torch.device("meta")


def test_learned_knows_a_length_without_reading() -> None:
    learned = Learned(dim=4, num_positions=6).to(META)
    x = torch.empty(2, 6, 4, device=META)
    pos = torch.arange(7, device=META)[None]
    assert learned.embed(x, pos[:, :6]).shape == x.shape
    with pytest.raises(ShapeshiftError, match=r"sequence of 7 tokens.*position 6.*ends at 5"):
        learned.encode(pos, x)


class Without(TorchDispatchMode):
    """A device that refuses float64, as Apple's MPS does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, Tensor) and each.dtype is torch.float64:
                raise TypeError(f"{func} makes float64")
        return out


POS = torch.arange(40)[None]
X = torch.ones(1, 40, 8)
COMPUTED: dict[str, Callable[[], Tensor]] = {
    "sinusoidal": lambda: Sinusoidal(dim=8).embed(X, POS),
    "rotary": lambda: Rotary(head_dim=8, scaling="yarn", factor=4.0, original_length=10).rotate(
        X[None], X[None], POS, POS
    )[0],
    "xpos": lambda: XPos(head_dim=8).rotate(X[None], X[None], POS, POS)[1],
    "alibi": lambda: ALiBi(num_heads=3).bias(POS, POS, dtype=torch.float32),
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
def test_a_device_without_float64_computes_in_float32(
    compute: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = compute()
    monkeypatch.setattr(checks, "WITHOUT_FLOAT64", ("mps", "cpu"))
    with Without():
        got = compute()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
