"""Our model as MarianMT, which transformers opens without Shapeshift.

MarianMT is post-norm, with sinusoidal positions at both embeddings whose sines come first and
cosines last; ours alternate. Another order of the D numbers of each state changes nothing if all
weights follow it. (Its LayerNorm adds 1e-5 to the variance, ours 1e-6, which the check allows for.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from shapeshift.data.subwords import BOS, EOS, PAD
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.attention import Attention
from shapeshift.model.layers import DecoderLayer, Embedding, EncoderLayer
from shapeshift.positions import Absolute, Shifted, Sinusoidal

from .support import STACKS, acting

if TYPE_CHECKING:
    from transformers import MarianMTModel


def fits(model: Transformer, shape: ModelConfig) -> bool:
    """Return whether MarianMT computes what the model does: its positions in evaluation are
    sinusoidal, from 0 on, at the embeddings alone."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    return (
        shape.norm == "post"
        and not any(acting(attention.position) for attention in attentions)
        and all(_is_plain(side) for side in (model.source, model.target))
        and (shape.tie_output or not shape.share_embeddings)
    )


def _is_plain(side: Embedding) -> bool:
    ids = side.position_ids
    from_zero = type(ids) is Absolute or (isinstance(ids, Shifted) and not ids.authors)
    kinds = [kind for kind in side.position.kinds() if kind.overrides("embed")]
    return from_zero and [type(kind) for kind in kinds] == [Sinusoidal]


def convert(model: Transformer, shape: ModelConfig, max_length: int) -> MarianMTModel:
    """Return the model as MarianMT; see `fits`.

    Args:
        model: trained, in fp32.
        shape: that it was built with.
        max_length: the most tokens of a sentence.
    """
    from transformers import MarianConfig, MarianMTModel

    marian: MarianMTModel = MarianMTModel(
        MarianConfig(
            vocab_size=model.source.tokens.num_embeddings,
            decoder_vocab_size=model.target.tokens.num_embeddings,
            max_position_embeddings=max_length,
            encoder_layers=shape.encoder_layers,
            decoder_layers=shape.decoder_layers,
            encoder_ffn_dim=shape.ff_dim,
            decoder_ffn_dim=shape.ff_dim,
            encoder_attention_heads=shape.num_heads,
            decoder_attention_heads=shape.num_heads,
            d_model=shape.dim,
            activation_function=shape.activation,
            dropout=shape.dropout,
            attention_dropout=shape.attention_dropout,
            activation_dropout=shape.activation_dropout,
            scale_embedding=True,
            share_encoder_decoder_embeddings=shape.share_embeddings,
            tie_word_embeddings=shape.tie_output,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=BOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )
    order = torch.cat((torch.arange(0, shape.dim, 2), torch.arange(1, shape.dim, 2)))
    with torch.no_grad():
        for name, side in zip(STACKS, (model.source, model.target), strict=True):
            stack = getattr(marian.model, name)
            stack.embed_tokens.weight.copy_(side.tokens.weight[:, order])
            for ours, theirs in zip(getattr(model, name), stack.layers, strict=True):
                _set_layer(theirs, ours, order)
        marian.lm_head.weight.copy_(model.output.weight[:, order])
    marian.train(False)
    return marian


def _set_layer(theirs: Any, ours: EncoderLayer | DecoderLayer, order: Tensor) -> None:
    _set_attention(theirs.self_attn, ours.attention, order)
    _set_norm(theirs.self_attn_layer_norm, ours.around_attention.norm, order)
    if isinstance(ours, DecoderLayer):
        _set_attention(theirs.encoder_attn, ours.cross_attention, order)
        _set_norm(theirs.encoder_attn_layer_norm, ours.around_cross_attention.norm, order)
    theirs.fc1.weight.copy_(ours.feed_forward.inner.weight[:, order])
    theirs.fc1.bias.copy_(ours.feed_forward.inner.bias)
    theirs.fc2.weight.copy_(ours.feed_forward.outer.weight[order])
    theirs.fc2.bias.copy_(ours.feed_forward.outer.bias[order])
    _set_norm(theirs.final_layer_norm, ours.around_feed_forward.norm, order)


def _set_attention(theirs: Any, ours: Attention, order: Tensor) -> None:
    parts = zip(ours.in_weight.chunk(3), ours.in_bias.chunk(3), strict=True)
    linears = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    for linear, (weight, bias) in zip(linears, parts, strict=True):
        linear.weight.copy_(weight[:, order])
        linear.bias.copy_(bias)
    theirs.out_proj.weight.copy_(ours.out.weight[order])
    theirs.out_proj.bias.copy_(ours.out.bias[order])


def _set_norm(theirs: nn.LayerNorm, ours: nn.LayerNorm, order: Tensor) -> None:
    theirs.weight.copy_(ours.weight[order])
    theirs.bias.copy_(ours.bias[order])
