"""Models for CTranslate2, which translates on CPUs and GPUs without PyTorch.

model.bin, config.json      the model
*_vocabulary.json           the pieces, in the order of their ids
export.json, subwords/, …   see `folder`
"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError, require
from shapeshift._system.files import MAX_FILE, read
from shapeshift.data.subwords import BOS, EOS, PAD, SPECIAL_PIECES, UNK, Subwords
from shapeshift.decoding.capacity import Capacity, capacity
from shapeshift.decoding.scoring import evaluating
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.attention import Attention
from shapeshift.model.layers import NORM_EPS, DecoderLayer, EncoderLayer, Residual
from shapeshift.positions import Representation, Rotary
from shapeshift.positions.pairs import Table

from .folder import Report, Trained, new_folder, refuse_useless_length
from .parity import BEAM, MAX_LENGTH, Ids, LogProbs, check
from .support import STACKS, acting, has_linear_bias, reach, self_attentions, support, unsupported


def export(
    trained: Trained,
    target: Path,
    *,
    quantization: str | None = None,
    max_length: int | None = None,
) -> Report:
    """Write a model for CTranslate2, and check that it computes the same.

    The check runs on the fp32 model, whatever the quantization. The folder appears when everything
    in it is on the disk, and not at all if the check fails.

    Args:
        trained: the model.
        target: a folder, missing or empty.
        quantization: of the weights, such as `int8`; None is fp32.
        max_length: the most tokens of a sentence, with `</s>`, where the engine needs a table and
            the model has no limit of its own; None is `MAX_LENGTH`.

    Raises:
        ShapeshiftError: CTranslate2 is not installed or cannot compute these positions exactly;
            the folder holds something; the check fails; the disk refuses; `max_length` has no
            effect.
    """
    require("ctranslate2", "ctranslate2")
    model, shape, scheme = trained.model, trained.shape, trained.position.scheme
    reason = unsupported(scheme, shape)
    if reason is not None:
        raise ShapeshiftError(f"this model cannot be exported exactly: {reason}")
    own = _capacity(model, max_length or MAX_LENGTH)
    refuse_useless_length(max_length, own)
    with new_folder(target) as folder:
        _write(folder, trained, own)
        engine = CTranslate2Model(folder, trained.subwords, own, torch.device("cpu"))
        parity = check(model, engine, own, trained.longest)
        if quantization is not None:
            folder.rename(folder.with_name("float32"))
            _write(folder, trained, own, quantization)
        report = Report(
            f"CTranslate2 {metadata.version('ctranslate2')}", "ctranslate2.Translator",
            support(scheme, shape), own, parity,
            trained.weights_sha256, quantization, trained.checkpoint,
        )  # fmt: skip
        report.save(folder, trained.subword_models)
    return report


_SETTINGS = {
    "unk_token": SPECIAL_PIECES[UNK],
    "bos_token": SPECIAL_PIECES[BOS],
    "decoder_start_token": SPECIAL_PIECES[BOS],
    "eos_token": SPECIAL_PIECES[EOS],
    "add_source_eos": True,
}
"""Of `config.json`."""


class CTranslate2Model:
    """An exported model as CTranslate2 opens it, for ids instead of pieces; a `parity.Engine`."""

    def __init__(self, folder: Path, subwords: Subwords, capacity: Capacity, device: torch.device):
        settings = json.loads(read(folder / "config.json", MAX_FILE))
        if wrong := [x for x, value in _SETTINGS.items() if settings.get(x) != value]:
            # With others the engine may end the process.
            raise ValueError(f"config.json has another {', '.join(wrong)}")
        self.capacity = capacity
        self._translator = require("ctranslate2", "ctranslate2").Translator(
            str(folder),
            device=device.type,
            device_index=device.index or 0,
            intra_threads=torch.get_num_threads(),
        )
        self._source = subwords.source_pieces(range(subwords.source_size))
        self._target = subwords.target_pieces(range(subwords.target_size))
        self._ids = {piece: i for i, piece in enumerate(self._target)}

    def score(self, sources: Ids, targets: Ids, max_tokens: int = 0) -> LogProbs:
        results = self._translator.score_batch(
            [[self._source[i] for i in ids] for ids in sources],
            [[self._target[i] for i in ids] for ids in targets],
            max_batch_size=max_tokens,  # 0 is one batch
            batch_type="tokens",
            max_input_length=0,
        )
        return [result.log_probs for result in results]

    def search(self, sources: Ids, max_steps: int) -> list[tuple[list[int], float]]:
        lengths = {"min_decoding_length": max_steps, "max_decoding_length": max_steps}
        found = self.translate(sources, beam_size=BEAM, length_penalty=0, **lengths)
        return [hypotheses[0] for hypotheses in found]

    def translate(self, sources: Ids, **options: Any) -> list[list[tuple[list[int], float]]]:
        """Return the hypotheses of each source, with their scores; the options are those of
        `ctranslate2.Translator.translate_batch`."""
        results = self._translator.translate_batch(
            [[self._source[i] for i in ids] for ids in sources],
            suppress_sequences=[[SPECIAL_PIECES[PAD]], [SPECIAL_PIECES[BOS]]],
            max_input_length=0,
            return_scores=True,
            **options,
        )
        return [
            [
                ([self._ids[piece] for piece in pieces], score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]


def convert(model: Transformer, shape: ModelConfig, subwords: Subwords, limits: Capacity) -> Any:
    """Return the model as a `ctranslate2.specs.TransformerSpec`; see `export`."""
    from ctranslate2.specs import common_spec, transformer_spec

    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
    }
    options = {"pre_norm": shape.norm == "pre", "activation": activations[shape.activation]}
    positions = {name: [a.position for a in self_attentions(model, name)] for name in STACKS}
    linear_bias = has_linear_bias("decoder", positions["decoder"])
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(shape.encoder_layers, shape.num_heads, **options),
        transformer_spec.TransformerDecoderSpec(
            shape.decoder_layers, shape.num_heads, alibi=linear_bias, **options
        ),
    )
    new_layers = (
        transformer_spec.TransformerEncoderLayerSpec,
        transformer_spec.TransformerDecoderLayerSpec,
    )
    for name, new_layer, limit in zip(STACKS, new_layers, limits, strict=True):
        stack, embedding = getattr(spec, name), model.source if name == "encoder" else model.target
        natively = linear_bias and name == "decoder"
        kinds = [None if natively else _only(position) for position in positions[name]]
        stack.layer = [new_layer(**_options(kind)) for kind in kinds]
        for each, layer, kind in zip(stack.layer, getattr(model, name), kinds, strict=True):
            _set_layer(each, layer)
            if kind is not None:
                _set_positions(each.self_attention, kind, name, shape)
        if kinds[0] is not None:
            del stack.position_encodings
        elif not natively:
            # Without a table, the engine adds sinusoids of its own, counted from 1.
            assert limit is not None, "a table ends"
            pos = embedding.position_ids(1, limit)
            zeros = torch.zeros(1, limit, shape.dim)
            stack.position_encodings.encodings = _copy(embedding.position.embed(zeros, pos)[0])
        if shape.norm == "pre":
            _set_norm(stack.layer_norm, getattr(model, f"{name}_norm"))
    spec.encoder.embeddings[0].weight = _copy(model.source.tokens.weight)
    spec.decoder.embeddings.weight = _copy(model.target.tokens.weight)
    spec.decoder.projection.weight = _copy(model.output.weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _copy(model.output_bias)
    spec.register_source_vocabulary(subwords.source_pieces(range(subwords.source_size)))
    spec.register_target_vocabulary(subwords.target_pieces(range(subwords.target_size)))
    for setting, value in _SETTINGS.items():
        setattr(spec.config, setting, value)
    spec.config.layer_norm_epsilon = NORM_EPS
    return spec


def _write(
    folder: Path, trained: Trained, limits: Capacity, quantization: str | None = None
) -> None:
    with evaluating(trained.model):
        spec = convert(trained.model, trained.shape, trained.subwords, limits)
    spec.validate()
    spec.optimize(quantization=quantization)
    folder.mkdir()
    spec.save(str(folder))


def _capacity(model: Transformer, max_length: int) -> Capacity:
    """Return the maximum number of tokens of each side that the exported model has positions
    for."""
    limits = []
    for name, limit in zip(STACKS, capacity(model), strict=True):
        has_table = _only(self_attentions(model, name)[0].position) is None
        limits.append(max_length if limit is None and has_table else limit)
    return Capacity(*limits)


def _only(position: Representation) -> Representation | None:
    """Return the kind of a self-attention, or None; `unsupported` has refused several."""
    kinds = acting(position)
    return kinds[0] if kinds else None


def _options(position: Representation | None) -> dict[str, Any]:
    """Return the options of a layer's specification that its positions require."""
    from ctranslate2.specs import attention_spec

    if position is None:
        return {}
    if position.acts("query_bias") or position.acts("value_bias"):
        return {"relative_position": True}
    if not isinstance(position, Rotary):
        return {"relative_attention_bias": True}
    base = position.base
    if position.scaling == "ntk":
        base *= position.factor ** (position.width / (position.width - 2))
    options = {
        "rotary_dim": position.width,
        "rotary_interleave": position.pairs == "interleaved",
        "rotary_base": base,
    }
    if position.scaling == "linear":
        options["rotary_scaling_type"] = attention_spec.RotaryScalingType.Linear
        options["rotary_scaling_factor"] = position.factor
    return options


def _set_positions(spec: Any, kind: Representation, stack: str, shape: ModelConfig) -> None:
    if (k := reach(kind)) is None:  # rotary
        return
    if kind.acts("bias"):
        k = max(k, 1)
        spec.relative_attention_bias = _bias_table(kind, k, stack, shape.num_heads)
        spec.relative_attention_max_distance = np.int32(2 * k)
    else:
        keys, values = kind.distance_vectors()
        spec.relative_position_keys = _relative_table(keys, k, shape)
        spec.relative_position_values = _relative_table(values, k, shape)


def _relative_table(table: Table | None, k: int, shape: ModelConfig) -> Tensor:
    """Return the vectors of the distances −k … k, `(2k + 1, E)`; the engine needs both tables."""
    if table is None:
        return torch.zeros(2 * k + 1, shape.dim // shape.num_heads)
    rows = torch.arange(-k - table.low, k - table.low + 1).clamp(0, table.vectors.shape[1] - 1)
    return _copy(table.vectors[0, rows])


def _bias_table(kind: Representation, k: int, stack: str, num_heads: int) -> Tensor:
    """Return a bias for each bucket, `(n, H)`. In each direction, half of the buckets hold one
    distance each; the others hold growing ranges, where the kind's bias must be constant."""
    halves = []
    for sign in (-1,) if stack == "decoder" else (-1, 1):
        numbers = kind.bias_at(sign * torch.arange(k + 1), torch.float32)  # (H|1, k + 1)
        by_distance = numbers.expand(num_heads, -1).t()
        halves += [by_distance[:-1], by_distance[-1:].expand(k, -1)]
    return _copy(torch.cat(halves))


def _set_layer(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _set_attention(spec.self_attention, layer.attention, layer.around_attention, 3)
    if isinstance(layer, DecoderLayer):
        _set_attention(spec.attention, layer.cross_attention, layer.around_cross_attention, 1)
    _set_norm(spec.ffn.layer_norm, layer.around_feed_forward.norm)
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    _set_linear(spec.ffn.linear_0, inner.weight, inner.bias)
    _set_linear(spec.ffn.linear_1, outer.weight, outer.bias)


def _set_attention(spec: Any, attention: Attention, residual: Residual, num_first: int) -> None:
    """Set the projections: the first product computes `num_first` of Q, K and V, the second the
    rest."""
    _set_norm(spec.layer_norm, residual.norm)
    first = num_first * attention.in_weight.shape[1]
    parts = [slice(0, first)] if num_first == 3 else [slice(0, first), slice(first, None)]
    for linear, part in zip(spec.linear, parts, strict=False):
        _set_linear(linear, attention.in_weight[part], attention.in_bias[part])
    _set_linear(spec.linear[-1], attention.out.weight, attention.out.bias)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _copy(weight), _copy(bias)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(tensor: Tensor) -> Tensor:
    # Never the model's own memory, which quantization would change.
    return tensor.detach().float().contiguous().clone()
