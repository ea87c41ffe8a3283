"""PoPE's heads, which are wider than its values."""

import pytest
import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, explain
from shapeshift.interop.numbering import CAUSAL, NAME, attention
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.model.attention import Attention
from shapeshift.positions import Chain, PoPE, Representation, Rotary, Shaw

H, E, T = 2, 16, 7
POS = torch.arange(T)[None]


def pope() -> PoPE:
    torch.manual_seed(0)
    position = PoPE(num_heads=H, head_dim=E).double()
    nn.init.uniform_(position.phase, -7, 1)
    return position


class Placed(nn.Module):
    """As an attention of a changed Hugging Face model."""

    def __init__(self, position: Representation):
        super().__init__()
        vars(self)[NAME], vars(self)[CAUSAL] = (nn.ModuleList([position]), 0), True


@pytest.mark.parametrize("softcap", [None, 1e9])
def test_a_models_own_scale_stays(softcap):
    position = pope()
    q, k, v = torch.randn(3, 1, H, T, E, dtype=torch.float64)
    options = {"scaling": 0.3, "position_ids": POS, "softcap": softcap}
    found, _ = attention(Placed(position), q, k, v, None, **options)
    turned_q, turned_k = position.rotate(q, k, POS, POS)  # by sqrt(2), for attention
    scores = turned_q @ turned_k.mT * (0.3 / 2**0.5)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(later, -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(found.transpose(1, 2), expected, rtol=0, atol=1e-7)


def test_no_kernel_for_equal_widths_serves(ran):
    position = pope()
    layer = Attention(H * E, H, 0.0, position).double()
    theirs = MultiheadAttention(H * E, H, batch_first=True, position=position).double()
    theirs.in_proj_weight, theirs.in_proj_bias = layer.in_weight, layer.in_bias
    theirs.out_proj = layer.out
    x = torch.randn(2, T, H * E, dtype=torch.float64)
    expected = layer(x, x, POS, POS, None, causal=True)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    found, _ = theirs(x, x, x, attn_mask=later, need_weights=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    layer.float()(x.float(), x.float(), POS, POS, None)
    assert {*ran} == {"reference"}
    for decode in (False, True):
        said = explain(position, decode=decode, with_kernels=True, head_dim=E, num_heads=H)
        assert said.backend == "reference"
        assert "another width than values" in said.reasons["cpu"]
        assert explain(position, device="cuda", decode=decode).backend == "sdpa"


def test_rotate_is_called_once(monkeypatch):
    position, calls = pope(), []
    position.register_forward_hook(lambda module, args, out: calls.append(args[0]))
    layer = Attention(H * E, H, 0.0, position).double()
    x = torch.randn(2, T, H * E, dtype=torch.float64)
    layer(x, x, POS, POS, None, causal=True)
    assert calls.count("rotate") == 1


def test_other_kinds_have_keys_as_wide_as_values():
    q, k, v = torch.randn(1, H, T, 2 * E), torch.randn(1, H, T, 2 * E), torch.randn(1, H, T, E)
    with pytest.raises(ShapeshiftError, match=r"keys and values \(B, H, K, E\)"):
        attend(q, k, v, None, Rotary(head_dim=E), POS, POS)
    with pytest.raises(ShapeshiftError, match="PoPE turns the queries that Shaw reads"):
        Chain(PoPE(num_heads=H, head_dim=E), Shaw(num_heads=H, head_dim=E))
    with pytest.raises(ShapeshiftError, match="built for num_heads=2, but here it is 3"):
        PoPE(num_heads=H, head_dim=E).rotate(*torch.randn(2, 1, 3, T, E), POS, POS)
