"""Our model as MarianMT, which transformers opens without Shapeshift, and MarianMT as our model.

MarianMT is post-norm, with sinusoidal positions at both embeddings whose sines come first and
cosines last; ours alternate. Another order of the D numbers of each state changes nothing if all
weights follow it. (transformers' LayerNorm adds 1e-5 to the variance, ours 1e-6, which the check
allows for.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import BOS, EOS, PAD
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.model.attention import Attention
from shapeshift.model.layers import DecoderLayer, Embedding
from shapeshift.positions import SCHEMES, Absolute, Shifted, Sinusoidal

from .support import STACKS, acting

if TYPE_CHECKING:
    from transformers import MarianConfig, MarianMTModel

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
"""What transformers calls an activation → what we call it."""

SETTINGS = {
    "d_model": "dim",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "ff_dim",
    "tie_word_embeddings": "tie_output",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
}
"""MarianMT's name of a setting → ours."""

NEVER = -100.0
"""The logit's bias of a token that the model does not generate: e^-100 is nothing in float32."""

Weight = tuple[Tensor, Tensor, int | None]
"""Ours, MarianMT's, and the axis along which they have the D numbers of a state, if any."""


def fits(model: Transformer, shape: ModelConfig) -> bool:
    """Return whether MarianMT computes what the model does: its positions in evaluation are
    the paper's sinusoids, from 0 on, at the embeddings alone."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    return (
        shape.norm == "post"
        and not any(acting(attention.position) for attention in attentions)
        and all(_is_plain(side) for side in (model.source, model.target))
        and (shape.tie_output or not shape.share_embeddings)
    )


def _is_plain(side: Embedding) -> bool:
    ids = side.position_ids
    from_zero = type(ids) is Absolute or (type(ids) is Shifted and not ids.authors)
    kinds = [kind for kind in side.position.kinds() if kind.acts("embed")]
    if not from_zero or [type(kind) for kind in kinds] != [Sinusoidal]:
        return False
    [sinusoidal] = cast(list[Sinusoidal], kinds)
    return (sinusoidal.channels, sinusoidal.base) == ("interleaved", 10000)


def convert(model: Transformer, shape: ModelConfig, max_length: int) -> MarianMTModel:
    """Convert a model that `fits` to MarianMT."""
    from transformers import MarianConfig, MarianMTModel

    marian: MarianMTModel = MarianMTModel(
        MarianConfig(
            vocab_size=model.source.tokens.num_embeddings,
            decoder_vocab_size=model.target.tokens.num_embeddings,
            max_position_embeddings=max_length,
            decoder_ffn_dim=shape.ff_dim,
            decoder_attention_heads=shape.num_heads,
            activation_function=shape.activation,
            scale_embedding=True,
            share_encoder_decoder_embeddings=shape.share_embeddings,
            **{theirs: getattr(shape, ours) for theirs, ours in SETTINGS.items()},
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=BOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
        )
    )
    order = _order(shape.dim)
    with torch.no_grad():
        for ours, theirs, axis in (*_tables(model, marian), *_weights(model, marian)):
            theirs.copy_(ours if axis is None else ours.index_select(axis, order))
        if model.output_bias is not None:
            marian.final_logits_bias.copy_(model.output_bias)
    marian.train(False)
    return marian


def shape_of(config: MarianConfig, *, share_embeddings: bool, output_bias: bool) -> ModelConfig:
    """Return the shape of our model that is equivalent to a MarianMT configuration.

    Raises:
        ShapeshiftError: ours cannot, with the name of the setting.
    """
    known: dict[str, tuple[Any, ...]] = {
        "scale_embedding": (True,),
        "decoder_attention_heads": (config.encoder_attention_heads,),
        "decoder_ffn_dim": (config.encoder_ffn_dim,),
        "activation_function": (*ACTIVATIONS,),
        "d_model": (config.d_model + config.d_model % 2,),
    }
    for name, values in known.items():
        if getattr(config, name) not in values:
            raise ShapeshiftError(
                f"our model cannot hold this MarianMT model: {name} is {getattr(config, name)},"
                f" expected {', '.join(map(str, values))}"
            )
    settings: dict[str, Any] = {ours: getattr(config, name) for name, ours in SETTINGS.items()}
    settings |= {"share_embeddings": share_embeddings, "output_bias": output_bias}
    activation = ACTIVATIONS[config.activation_function]
    return ModelConfig(norm="post", activation=activation, **settings)


@torch.no_grad()
def restore(
    marian: MarianMTModel,
    shape: ModelConfig,
    source_rows: list[int | None],
    target_rows: list[int | None],
    never: set[int],
) -> Transformer:
    """Convert MarianMT to our model; the inverse of `convert`.

    Args:
        marian: to copy, in fp32.
        shape: of our model, see `shape_of`.
        source_rows, target_rows: the id of MarianMT's whose embedding each of our ids has; None is
            zeros.
        never: our target ids that are not generated.
    """
    model = build(shape, SCHEMES["ape"], len(source_rows), len(target_rows)).eval()
    back = _order(shape.dim).argsort()
    for ours, theirs, axis in _weights(model, marian):
        ours.copy_(theirs if axis is None else theirs.index_select(axis, back))
    rows = (source_rows, target_rows, target_rows)
    for (ours, theirs, axis), ids in zip(_tables(model, marian), rows, strict=True):
        ours.zero_()
        known = torch.tensor([n for n, i in enumerate(ids) if i is not None])
        chosen = theirs[[i for i in ids if i is not None]]
        ours[known] = chosen if axis is None else chosen.index_select(axis, back)
    if model.output_bias is not None:
        bias = marian.final_logits_bias[0].tolist()
        model.output_bias.copy_(
            torch.tensor(
                [NEVER if i is None or n in never else bias[i] for n, i in enumerate(target_rows)]
            )
        )
    return model


def _order(dim: int) -> Tensor:
    """Return the index in our D channels of each of MarianMT's: first the even ones, then the odd
    ones."""
    return torch.cat((torch.arange(0, dim, 2), torch.arange(1, dim, 2)))


def _tables(ours: Transformer, theirs: MarianMTModel) -> Iterator[Weight]:
    """Yield the token tables: source, target, output."""
    yield ours.source.tokens.weight, theirs.model.encoder.embed_tokens.weight, 1
    yield ours.target.tokens.weight, theirs.model.decoder.embed_tokens.weight, 1
    yield ours.output.weight, theirs.lm_head.weight, 1


def _weights(ours: Transformer, theirs: MarianMTModel) -> Iterator[Weight]:
    """Yield all weights except the token tables."""
    for name in STACKS:
        layers = zip(getattr(ours, name), getattr(theirs.model, name).layers, strict=True)
        for layer, other in layers:
            yield from _attention(layer.attention, other.self_attn)
            yield from _norm(layer.around_attention.norm, other.self_attn_layer_norm)
            if isinstance(layer, DecoderLayer):
                yield from _attention(layer.cross_attention, other.encoder_attn)
                yield from _norm(layer.around_cross_attention.norm, other.encoder_attn_layer_norm)
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            yield inner.weight, other.fc1.weight, 1
            yield inner.bias, other.fc1.bias, None
            yield outer.weight, other.fc2.weight, 0
            yield outer.bias, other.fc2.bias, 0
            yield from _norm(layer.around_feed_forward.norm, other.final_layer_norm)


def _attention(ours: Attention, theirs: Any) -> Iterator[Weight]:
    parts = zip(ours.in_weight.chunk(3), ours.in_bias.chunk(3), strict=True)
    linears = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    for linear, (weight, bias) in zip(linears, parts, strict=True):
        yield weight, linear.weight, 1
        yield bias, linear.bias, None
    yield ours.out.weight, theirs.out_proj.weight, 0
    yield ours.out.bias, theirs.out_proj.bias, 0


def _norm(ours: nn.LayerNorm, theirs: nn.LayerNorm) -> Iterator[Weight]:
    yield ours.weight, theirs.weight, 0
    yield ours.bias, theirs.bias, 0
