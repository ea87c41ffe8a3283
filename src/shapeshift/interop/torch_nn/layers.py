"""torch.nn's encoder and decoder layer with a position representation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Representation
from shapeshift.positions.arguments import checked
from shapeshift.positions.base import temporarily_set

from .attention import Given, MultiheadAttention, attention_like, in_backward
from .checks import as_position, check_place

Layer = TypeVar("Layer", "TransformerEncoderLayer", "TransformerDecoderLayer")


class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    """`torch.nn.TransformerEncoderLayer` plus `position`, for `torch.nn.TransformerEncoder` too.

        position = Shaw(num_heads=8, head_dim=64)
        layer = TransformerEncoderLayer(512, 8, batch_first=True, position=position)
        encoder = torch.nn.TransformerEncoder(layer, num_layers=6, enable_nested_tensor=False)

    `torch.nn.TransformerEncoder` copies the layer. Each copy has a representation of its own, but
    for kinds that all layers share in their papers, such as T5: all copies have one, so build
    another layer for another stack. PyTorch's fused fast path for inference knows no positions and
    is not taken.

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

    @checked
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

    def __deepcopy__(self, memo: dict[int, Any]) -> TransformerEncoderLayer:
        return _copied(self, memo)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        pos: Tensor | None = None,
    ) -> Tensor:
        """As `torch.nn.TransformerEncoderLayer.forward`; `pos (B|1, T)`, None takes those of
        `use_positions` or counts from 0."""
        forward = partial(super().forward, src, src_mask, src_key_padding_mask, is_causal)
        if pos is None:
            return forward()
        with temporarily_set([self.self_attn], "given", Given(pos, pos, is_repeated=True)):
            return forward()


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

    @checked
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

    def __deepcopy__(self, memo: dict[int, Any]) -> TransformerDecoderLayer:
        return _copied(self, memo)

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
        """As `torch.nn.TransformerDecoderLayer.forward`.

        `pos (B|1, T)` and `memory_pos (B|1, S)` are the positions of target and source. Without
        both, those of `use_positions` hold; None counts from 0.
        """
        padding = tgt_key_padding_mask, memory_key_padding_mask
        hints = tgt_is_causal, memory_is_causal
        forward = partial(super().forward, tgt, memory, tgt_mask, memory_mask, *padding, *hints)
        if pos is None and memory_pos is None:
            return forward()
        given = Given(pos, pos, is_repeated=True), Given(pos, memory_pos, is_repeated=True)
        with (
            temporarily_set([self.self_attn], "given", given[0]),
            temporarily_set([self.multihead_attn], "given", given[1]),
        ):
            return forward()


def _copied(layer: Layer, memo: dict[int, Any]) -> Layer:
    """Return what `copy.deepcopy` makes of a layer: a model is copied with all that its layers
    share, and a layer by itself, for a stack, without what the layers of a stack share."""
    if not memo:
        positions = [module for module in layer.modules() if isinstance(module, Representation)]
        memo.update((id(position), position) for position in positions if position.share_layers)
    copy = layer.__new__(type(layer))
    memo[id(layer)] = copy
    copy.__dict__.update(deepcopy(layer.__dict__, memo))
    return copy


@contextmanager
def use_positions(
    model: nn.Module, pos: Tensor | None = None, memory_pos: Tensor | None = None
) -> Iterator[None]:
    """Give positions to every encoder or decoder layer in `model` until the block ends. The stacks
    of torch need this, because their calls have no argument for positions.

        with use_positions(encoder, source_pos), use_positions(decoder, pos, source_pos):
            out = decoder(target, encoder(source), tgt_mask=mask)

    Blocks nest: the inner one holds, and arguments of a layer's call come before both. The end of
    a block, also by an exception, restores what held before. Positions belong to the model as
    weights do: threads that use different ones need a copy of the model each. `torch.compile` makes
    one graph for all positions. Gradient checkpointing repeats a block only if it is inside of the
    function that is checkpointed; otherwise the backward pass is an error.

    Args:
        model: a `TransformerEncoderLayer`, a `TransformerDecoderLayer`, or any module that holds
            some of one of the two.
        pos: `(B|1, T)`, on the batch's device; None counts from 0.
        memory_pos: `(B|1, S)`, of what decoder layers attend to; None counts from 0.

    Raises:
        ShapeshiftError: if `model` has neither, or both, or `memory_pos` is for no layer.
    """
    encoders = [each for each in model.modules() if isinstance(each, TransformerEncoderLayer)]
    decoders = [each for each in model.modules() if isinstance(each, TransformerDecoderLayer)]
    name = type(model).__name__
    if not encoders and not decoders:
        raise ShapeshiftError(
            f"{name} has no layer that takes positions; build it of shapeshift.interop.torch_nn's"
            " TransformerEncoderLayer or TransformerDecoderLayer"
        )
    if encoders and decoders:
        raise ShapeshiftError(
            f"{name} has encoder and decoder layers; call use_positions for its encoder and for its"
            " decoder, each with positions of its own"
        )
    if encoders and memory_pos is not None:
        raise ShapeshiftError(f"{name} has no decoder layer to take memory_pos; leave it out")
    again = in_backward()  # this block is being repeated
    to_self = [layer.self_attn for layer in encoders or decoders]
    to_memory = [layer.multihead_attn for layer in decoders]
    with (
        temporarily_set(to_self, "given", Given(pos, pos, again)),
        temporarily_set(to_memory, "given", Given(pos, memory_pos, again)),
    ):
        yield
