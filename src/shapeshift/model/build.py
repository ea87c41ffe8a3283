"""From a configuration to a model."""

from __future__ import annotations

import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Representation, Scheme, Stack, build_position_ids, check, place
from shapeshift.positions.checks import whole_number
from shapeshift.positions.scheme import find_scheme

from .attention import Attention
from .config import ModelConfig
from .layers import DecoderLayer, Embedding, EncoderLayer, FeedForward, Residual
from .tied import separate_modules
from .transformer import PAD, Transformer


def build(
    config: ModelConfig, scheme: Scheme | str, source_size: int, target_size: int
) -> Transformer:
    """Build a Transformer with fresh weights, drawn from PyTorch's global generator.

    Args:
        config: its shape.
        scheme: how it knows positions, or the name of a scheme.
        source_size, target_size: V of each side; one number if the sides share a table.

    Raises:
        ShapeshiftError: if the scheme has no meaning, sides of different size share a table, or an
            argument is of another type.
    """
    source_size = whole_number("source_size", source_size, 1)
    target_size = whole_number("target_size", target_size, 1)
    if isinstance(scheme, str):
        scheme = find_scheme(scheme)
    check(scheme)
    if config.share_embeddings and source_size != target_size:
        raise ShapeshiftError(
            f"source ({source_size}) and target ({target_size}) vocabularies differ, so they cannot"
            " share embeddings; set model.share_embeddings=false or data.subwords.joint=true"
        )
    target_table = _table(target_size, config.dim)
    source_table = target_table if config.share_embeddings else _table(source_size, config.dim)
    output_table = target_table if config.tie_output else _table(target_size, config.dim)

    def attention(position: Representation) -> Attention:
        return Attention(config.dim, config.num_heads, config.attention_dropout, position)

    def feed_forward() -> FeedForward:
        return FeedForward(config.dim, config.ff_dim, config.activation, config.activation_dropout)

    def residuals(count: int) -> list[Residual]:
        return [Residual(config.dim, config.dropout, config.norm == "pre") for _ in range(count)]

    sizes = config.dim, config.num_heads
    encoder = place(scheme, Stack("encoder", *sizes, config.encoder_layers))
    decoder = place(scheme, Stack("decoder", *sizes, config.decoder_layers))
    at_both = zip(decoder.self_attention, decoder.cross_attention, strict=True)
    model = Transformer(
        Embedding(source_table, build_position_ids(scheme), encoder.embedding, config.dropout),
        Embedding(target_table, build_position_ids(scheme), decoder.embedding, config.dropout),
        [
            EncoderLayer(attention(at), feed_forward(), residuals(2))
            for at in encoder.self_attention
        ],
        [
            DecoderLayer(attention(own), attention(cross), feed_forward(), residuals(3))
            for own, cross in at_both
        ],
        output_table,
        final_norm=config.norm == "pre",
        output_bias=nn.Parameter(torch.zeros(target_size)) if config.output_bias else None,
    )
    separate_modules(model)
    return model


def _table(num_tokens: int, dim: int) -> nn.Embedding:
    # N(0, 1/D): the scaled embeddings have unit variance, and so have tied logits at the start.
    table = nn.Embedding(num_tokens, dim, padding_idx=PAD)
    nn.init.normal_(table.weight, std=dim**-0.5)
    nn.init.zeros_(table.weight[PAD])
    return table
