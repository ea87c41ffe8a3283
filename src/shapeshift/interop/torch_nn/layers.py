"""torch.nn's encoder and decoder layer with a position representation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from shapeshift.positions import Representation

from .attention import MultiheadAttention, attention_like
from .checks import as_position, check_place


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """`torch.nn.TransformerEncoderLayer` plus `position`, for `torch.nn.TransformerEncoder` too.

        position = Shaw(num_heads=8, head_dim=64)
        layer = TransformerEncoderLayer(512, 8, batch_first=True, position=position)
        encoder = torch.nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False)

    `torch.nn.TransformerEncoder` copies the layer, so that each copy has a representation of its
    own. PyTorch's fused fast path for inference knows no positions and is not taken.

    Args:
        d_model: D.
        nhead: H; D must be a multiple.
        options: those of `torch.nn.TransformerEncoderLayer`, such as `batch_first`.
        position: acts in the attention, a module or a name as in `MultiheadAttention`; None is
            none.

    Raises:
        ShapeshiftError: if D is no multiple of H, or a position has no meaning here or was built
            for another D, H or E.
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
        position = as_position(position, d_model, nhead)
        check_place("position", position, "self")
        super().__init__(d_model, nhead, *options, **more_options)
        self.self_attn = attention_like(self.self_attn, position)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        pos: Tensor | None = None,
    ) -> Tensor:
        """As `torch.nn.TransformerEncoderLayer.forward`; `pos (B|1, T)` are the positions of the
        tokens, None counts from 0."""

        def attend(x: Tensor) -> Any:
            masks = {"key_padding_mask": src_key_padding_mask, "attn_mask": src_mask}
            options = {"need_weights": False, "is_causal": is_causal, "pos_q": pos, "pos_k": pos}
            return self.dropout1(self.self_attn(x, x, x, **masks, **options)[0])

        def feed_forward(x: Tensor) -> Any:
            inner = self.dropout(self.activation(self.linear1(x)))
            return self.dropout2(self.linear2(inner))

        x = src
        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + feed_forward(self.norm2(x))
        else:
            x = self.norm1(x + attend(x))
            x = self.norm2(x + feed_forward(x))
        return x  # type: ignore[no-any-return]


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
        ShapeshiftError: if D is no multiple of H, or a position has no meaning here or was built
            for another D, H or E.
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
        position = as_position(position, d_model, nhead)
        cross_position = as_position(cross_position, d_model, nhead)
        check_place("position", position, "self")
        check_place("cross_position", cross_position, "cross")
        super().__init__(d_model, nhead, *options, **more_options)
        self.self_attn = attention_like(self.self_attn, position)
        self.multihead_attn = attention_like(self.multihead_attn, cross_position)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
        *,
        pos: Tensor | None = None,
        memory_pos: Tensor | None = None,
    ) -> Tensor:
        """As `torch.nn.TransformerDecoderLayer.forward`; `pos (B|1, T)` and `memory_pos (B|1, S)`
        are the positions of target and source, None counts from 0."""
        if pos is not None or memory_pos is not None:
            pos, memory_pos = (
                self._counted(x) if given is None else given
                for x, given in ((tgt, pos), (memory, memory_pos))
            )

        def attend(x: Tensor) -> Any:
            masks = {"key_padding_mask": tgt_key_padding_mask, "attn_mask": tgt_mask}
            options = {
                "need_weights": False,
                "is_causal": tgt_is_causal,
                "pos_q": pos,
                "pos_k": pos,
            }
            return self.dropout1(self.self_attn(x, x, x, **masks, **options)[0])

        def attend_to_memory(x: Tensor) -> Any:
            masks = {"key_padding_mask": memory_key_padding_mask, "attn_mask": memory_mask}
            options = {"need_weights": False, "is_causal": memory_is_causal}
            positions = {"pos_q": pos, "pos_k": memory_pos}
            out, _ = self.multihead_attn(x, memory, memory, **masks, **options, **positions)
            return self.dropout2(out)

        def feed_forward(x: Tensor) -> Any:
            inner = self.dropout(self.activation(self.linear1(x)))
            return self.dropout3(self.linear2(inner))

        x = tgt
        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + attend_to_memory(self.norm2(x))
            x = x + feed_forward(self.norm3(x))
        else:
            x = self.norm1(x + attend(x))
            x = self.norm2(x + attend_to_memory(x))
            x = self.norm3(x + feed_forward(x))
        return x  # type: ignore[no-any-return]

    def _counted(self, x: Tensor) -> Tensor:
        length = x.shape[-2] if self.self_attn.batch_first else x.shape[0]
        return torch.arange(length, device=x.device).unsqueeze(0)
