"""What attention is called with: masks of both kinds, and what fits nothing."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, attend_with_probs
from shapeshift.model.attention import Attention
from shapeshift.positions import ALiBi, Representation, Rotary, Shaw, Sinusoidal

B, H, T, E = 2, 4, 5, 8
D = H * E
POS = torch.arange(T)[None]
WAYS = (attend, lambda *call: attend_with_probs(*call)[0])


def heads(sentences: int = B, num_heads: int = H, length: int = T, width: int = E) -> Tensor:
    return torch.randn(sentences, num_heads, length, width)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("k", "v", "pos_q", "pos_k", "position", "message"),
    [
        (heads(num_heads=2), heads(num_heads=2), POS, POS, Shaw, "grouped-query heads"),
        (heads(num_heads=1), heads(num_heads=1), POS, POS, Shaw, r"got .*, float32 \(2, 1, 5, 8\)"),
        (heads(1), heads(1), POS, POS, Shaw, r"keys and values \(B, H, K, E\)"),
        (heads(width=4), heads(width=4), POS, POS, Shaw, r"float32 \(2, 4, 5, 4\)"),
        (heads(), heads(length=3), POS, POS, Shaw, r"float32 \(2, 4, 3, 8\)"),
        (heads()[0], heads()[0], POS, POS, Shaw, r"float32 \(4, 5, 8\)"),
        (heads(), heads(), POS[:, :1], POS, Shaw, r"pos_q must be integers \(1, 5\) or \(2, 5\)"),
        (heads(), heads(), POS, POS[:, :2], Shaw, r"pos_k must .*, got int64 \(1, 2\)"),
        (heads(), heads(), POS.expand(3, -1), POS, Shaw, r"pos_q must .*, got int64 \(3, 5\)"),
        (heads(), heads(), POS[0], POS, Shaw, r"got int64 \(5,\); give pos.unsqueeze\(0\)"),
        (heads(), heads(), [0, 1, 2, 3, 4], POS, Shaw, r"pos_q must .*, got list$"),
        (heads(), heads(), POS, POS, ALiBi, "ALiBi was built for num_heads=1, but here it is 4"),
    ],
)
def test_heads_and_positions_that_do_not_fit_are_refused(
    way, k, v, pos_q, pos_k, position, message
):
    built = ALiBi(num_heads=1) if position is ALiBi else Shaw(num_heads=H, head_dim=E)
    with pytest.raises(ShapeshiftError, match=message):
        way(heads(), k, v, None, built, pos_q, pos_k)


@pytest.mark.parametrize("way", WAYS)
def test_a_boolean_mask_is_true_where_attention_is_allowed(way):
    q, k, v = heads(), heads(), heads()
    allowed = torch.arange(T) < 3
    expected = way(q, k[:, :, :3], v[:, :, :3], None, Representation(), POS, POS[:, :3])
    for mask in (allowed, allowed.view(1, 1, 1, T), allowed.expand(B, H, T, T)):
        got = way(q, k, v, mask, Representation(), POS, POS)
        torch.testing.assert_close(got, expected)
    with pytest.raises(ShapeshiftError, match=r"boolean, .* got int64 \(5,\); give mask.bool\(\)"):
        way(q, k, v, allowed.long(), Representation(), POS, POS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(T, T), (2, T), (1, 1, 2, T + 2), (3, 1, 2, T), (1,) * 5])
def test_a_mask_that_does_not_fit_is_refused(dtype, shape):
    k = heads().to(dtype)
    q, pos_q, mask = k[:, :, -2:], POS[:, -2:], torch.zeros(shape, dtype=dtype)
    fits = shape == (2, T)
    for way in WAYS:
        with nullcontext() if fits else pytest.raises(ShapeshiftError, match=r"= \(2, 4, 2, 5\)"):
            way(q, k, k, mask, Representation(), pos_q, POS)


def test_the_layer_refuses_what_does_not_fit_and_takes_a_boolean_mask():
    x, allowed = torch.randn(B, T, D), torch.arange(T) < 3
    layer = Attention(D, H, 0.0, Shaw(num_heads=H, head_dim=E)).eval()
    expected = layer(x, x[:, :3], POS, POS[:, :3], None)
    torch.testing.assert_close(layer(x, x.clone(), POS, POS, allowed[None]), expected)
    refused = {
        r"pos_q must be integers \(1, 5\) or \(2, 5\)": (x, x, POS[:, :1], POS),
        r"pos_k must be integers \(1, 5\) or \(2, 5\)": (x, x.clone(), POS, POS[:, :1]),
        "x and memory must have one B, got 2 and 1": (x, x[:1], POS, POS),
    }
    for message, call in refused.items():
        with pytest.raises(ShapeshiftError, match=message):
            layer(*call, None)


class Shorter(Representation):
    def inputs(self, q, k, v, pos_q, pos_k):
        return q, k, v[:, :1]


def test_inputs_of_another_shape_are_refused():
    x, layer = torch.randn(B, T, D), Attention(D, H, 0.0, Shorter())
    with pytest.raises(ShapeshiftError, match=r"what inputs returns .*, got .* \(2, 1, 32\)$"):
        layer(x, x, POS, POS, None)


@pytest.mark.parametrize(
    ("num_heads", "position", "message"),
    [
        (5, Representation(), "dim must be a multiple of num_heads, got 32 and 5"),
        (0, Representation(), "dim must be a multiple of num_heads, got 32 and 0"),
        (H, ALiBi(num_heads=1), "num_heads=1, but here it is 4"),
        (H, Sinusoidal(dim=16), "dim=16, but here it is 32"),
        (H, Rotary(head_dim=4), "head_dim=4, but here it is 8"),
    ],
)
def test_a_layer_of_other_sizes_is_refused(num_heads, position, message):
    with pytest.raises(ShapeshiftError, match=message):
        Attention(D, num_heads, 0.0, position)
