"""torch.nn's encoder and decoder layer with a position representation."""

from __future__ import annotations

from typing import Any

from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Representation

from .attention import MultiheadAttention
from .checks import build


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """`torch.nn.TransformerEncoderLayer` plus `position`, for `torch.nn.TransformerEncoder` too.

        position = Shaw(num_heads=8, head_dim=64)
        layer = TransformerEncoderLayer(512, 8, batch_first=True, position=position)
        encoder = torch.nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False)

    `torch.nn.TransformerEncoder` copies the layer, so that each copy has a representation of its
    own. PyTorch's fused fast path for inference knows no positions and is not taken. Positions
    count from 0; for others, call `MultiheadAttention` in a layer of your own.

    Args:
        d_model: D.
        nhead: H; D must be a multiple.
        options: those of `torch.nn.TransformerEncoderLayer`, such as `batch_first`.
        position: acts in the attention, a module or a name as in `MultiheadAttention`; None is
            none.

    Raises:
        ShapeshiftError: if a position has no meaning here or was built for another D, H or E.
    """

    self_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        *options: Any,
        position: Representation | str | None = None,
        **more_options: Any,
    ):
        super().__init__(d_model, nhead, *options, **more_options)
        self.self_attn = _with_position(self.self_attn, position, "self")


class TransformerDecoderLayer(nn.TransformerDecoderLayer):
    """`torch.nn.TransformerDecoderLayer` plus positions, for `torch.nn.TransformerDecoder` too.

        layer = TransformerDecoderLayer(
            512,
            8,
            position=Skew(num_heads=8, head_dim=64, causal=True),
            cross_position=Sinusoidal(dim=512),
        )
        decoder = torch.nn.TransformerDecoder(layer, num_layers=6)

    This is the decoder of Miyazaki et al. (2024, section 3): relative positions among the target's
    tokens, absolute ones on queries and keys where they look at the source. As in torch, the causal
    mask must be given. `torch.nn.TransformerDecoder` copies the layer, as `TransformerEncoder`.

    Args:
        d_model: D.
        nhead: H; D must be a multiple.
        options: those of `torch.nn.TransformerDecoderLayer`, such as `batch_first`.
        position: acts in the self-attention, a module or a name as in `MultiheadAttention`; None
            is none.
        cross_position: acts in the attention to `memory`, likewise.

    Raises:
        ShapeshiftError: if a position has no meaning here or was built for another D, H or E.
    """

    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        *options: Any,
        position: Representation | str | None = None,
        cross_position: Representation | str | None = None,
        **more_options: Any,
    ):
        super().__init__(d_model, nhead, *options, **more_options)
        self.self_attn = _with_position(self.self_attn, position, "self")
        self.multihead_attn = _with_position(self.multihead_attn, cross_position, "cross")


def _with_position(
    theirs: nn.MultiheadAttention, position: Representation | str | None, place: str
) -> MultiheadAttention:
    """Return an attention with the weights of another and a position at `place`."""
    D, H, weight = theirs.embed_dim, theirs.num_heads, theirs.in_proj_weight
    options: dict[str, Any] = {"bias": theirs.in_proj_bias is not None, "device": "meta"}
    options |= {"dropout": theirs.dropout, "batch_first": theirs.batch_first}
    ours = MultiheadAttention(D, H, **options)
    # The weights stay those that torch drew: one seed makes torch's layer and this one.
    ours.load_state_dict(theirs.state_dict(), assign=True)
    built = build(position, dim=D, num_heads=H, head_dim=theirs.head_dim)
    ours.position = built.to(device=weight.device, dtype=weight.dtype)
    for kind in built.kinds():
        if place not in kind.places:
            raise ShapeshiftError(
                f"{type(kind).__name__} has no meaning at {place!r};"
                f" use it at {' or '.join(kind.places)}"
            )
    return ours
