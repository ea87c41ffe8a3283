"""Our Transformer behind the interface of transformers: `forward` with labels for `Trainer`, and
`generate` with the key-value cache of the testbed."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.own_modules import outside
from shapeshift.data.subwords import BOS, EOS, PAD
from shapeshift.model import DecoderState, Memory, ModelConfig, Transformer, build
from shapeshift.model.position_config import PositionConfig
from shapeshift.model.tied import tie
from shapeshift.model.transformer import check_padding, padding_mask
from shapeshift.positions.base import tied_names

CACHE = "cache" if "cache" in {x.name for x in fields(Seq2SeqLMOutput)} else "past_key_values"
"""What transformers calls the cache in what a model returns; 5.24 renamed it."""

IGNORED = -100
"""What labels hold where there is no token, as everywhere in transformers."""


class ShapeshiftConfig(PretrainedConfig):
    """What `model.build` needs.

    Args:
        shape: `ModelConfig` as a mapping, such as `{"size": "small"}`.
        position: `PositionConfig` as a mapping, such as `{"name": "rpe"}`.
        source_size, target_size: V of each side.
    """

    model_type = "shapeshift"
    keys_to_ignore_at_inference: ClassVar[list[str]] = [CACHE]  # a list for `Trainer`

    def __init__(
        self,
        shape: dict[str, Any] | None = None,
        position: dict[str, Any] | None = None,
        source_size: int = 8000,
        target_size: int = 8000,
        **kwargs: Any,
    ):
        self.shape = shape or {}
        self.position = position or {}
        self.source_size = source_size
        self.target_size = target_size
        self.vocab_size = target_size
        ids = {
            "pad_token_id": PAD,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "decoder_start_token_id": BOS,
            "is_encoder_decoder": True,
            "tie_word_embeddings": False,  # `build` shares what is shared
        }
        super().__init__(**{**ids, **kwargs})


class Encoder(nn.Module):
    """The encoder of a model, as `generate` calls it. It owns no weights."""

    main_input_name = "input_ids"

    def __init__(self, transformer: Transformer):
        super().__init__()
        self._transformer = [transformer]  # in a list, so that its weights stay the model's alone

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        """Encode `input_ids (B, S)`, padded on the right."""
        [transformer] = self._transformer
        memory = transformer.encode(_padded(input_ids, attention_mask))
        return BaseModelOutput(last_hidden_state=memory.hidden)


class Cache:
    """The decoding state, with the methods that `generate` calls on a cache."""

    is_compileable = False

    def __init__(self, state: DecoderState):
        self.state = state
        self.length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.state.reorder(beam_idx)


class ShapeshiftForSeq2SeqLM(PreTrainedModel, GenerationMixin):
    """An encoder-decoder Transformer with any position representation of Shapeshift."""

    config_class = ShapeshiftConfig
    base_model_prefix = "model"
    accepts_loss_kwargs = True  # `Trainer` gives `num_items_in_batch`

    def __init__(self, config: ShapeshiftConfig):
        super().__init__(config)
        # `from_pretrained` creates models without memory, which tables that no file holds need.
        # Its folder may be a stranger's: kinds of one's own are never imported from there.
        folder = Path(config.name_or_path) if config.name_or_path else None
        with torch.device("cpu"), outside(folder) if folder else nullcontext():
            try:
                shape, position = ModelConfig(**config.shape), PositionConfig(**config.position)
            except ValidationError as error:
                wrong = [str(problem["msg"]) for problem in error.errors()]
                reasons = "; ".join(each.removeprefix("Value error, ") for each in wrong)
                raise ShapeshiftError(reasons, path=folder and folder / "config.json") from error
            self.model = build(shape, position.scheme, config.source_size, config.target_size)
        # `from_pretrained` empties buffers that files lack; kinds of one's own may have some.
        for module in self.model.modules():
            for name, buffer in [*module.named_buffers(recurse=False)]:
                module.register_buffer(name, buffer, persistent=True)
        self._encoder = Encoder(self.model)
        self._tied_weights_keys = tied_names(self)  # files hold the first name
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # the first call of `forward` makes a `Cache`

    def _init_weights(self, module: nn.Module) -> None:
        pass  # `build` has drawn them

    def tie_weights(
        self, missing_keys: set[str] | None = None, recompute_mapping: bool = True
    ) -> None:
        """Assign each shared tensor to all its names; files store only the first one."""
        tie(self, self._tied_weights_keys)
        if missing_keys is not None:
            missing_keys.difference_update(self._tied_weights_keys)

    def get_encoder(self, *_: Any, **__: Any) -> Encoder:
        return self._encoder

    def get_input_embeddings(self) -> nn.Module:
        tokens: nn.Module = self.model.source.tokens
        return tokens

    def resize_token_embeddings(
        self,
        new_num_tokens: int | None = None,
        pad_to_multiple_of: int | None = None,
        mean_resizing: bool = True,
    ) -> nn.Embedding:
        """Resize the source, target and output tables together, as `PreTrainedModel` does.

        Raises:
            ShapeshiftError: source and target have vocabularies of different sizes.
        """
        model, config = self.model, self.config
        tokens: nn.Embedding = model.source.tokens
        if new_num_tokens is None and pad_to_multiple_of is None:
            return tokens
        if config.source_size != config.target_size:
            raise ShapeshiftError(
                f"source and target have vocabularies of {config.source_size} and"
                f" {config.target_size} tokens, and resize_token_embeddings knows one size; build"
                " a model from a ShapeshiftConfig with the source_size and target_size you need"
            )
        tables: list[Any] = [tokens, model.target.tokens, model.output]
        resized: dict[Tensor, Any] = {}  # a weight that tables share stays shared
        for weight, table in {table.weight: table for table in tables}.items():
            new = self._get_resized_embeddings(
                table, new_num_tokens, pad_to_multiple_of, mean_resizing
            )
            resized[weight] = new.weight.requires_grad_(weight.requires_grad)
        for table in dict.fromkeys(tables):
            table.weight = resized[table.weight]
            table.num_embeddings = len(table.weight)
        size = model.output.num_embeddings
        if model.output_bias is not None:
            bias = model.output_bias
            more = bias.new_zeros(max(0, size - len(bias)))
            model.output_bias = nn.Parameter(torch.cat((bias.detach()[:size], more)))
            model.output_bias.requires_grad_(bias.requires_grad)
        config.source_size = config.target_size = config.vocab_size = size
        return tokens

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return `labels (B, T)` shifted right by one, with `<s>` first."""
        shifted = labels.new_full(labels.shape, BOS)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == IGNORED, PAD)

    def prepare_inputs_for_generation(  # type: ignore[override]
        self,
        input_ids: Tensor,
        past_key_values: Cache | None = None,
        cache: Cache | None = None,
        attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,  # by this name, `generate` takes all arguments of `forward`
    ) -> dict[str, Any]:
        cache = past_key_values if cache is None else cache
        return {
            "decoder_input_ids": input_ids[:, 0 if cache is None else cache.length :],
            CACHE: cache,
            "attention_mask": attention_mask,
            "encoder_outputs": encoder_outputs,
            "use_cache": use_cache,
        }

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: Cache | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Seq2SeqLMOutput:
        """Return logits `(B, T, V)`, and the mean cross-entropy of `labels (B, T)`, without those
        of −100.

        `decoder_input_ids` come from the labels by default; with a cache they are the new tokens
        alone. `cache` and `past_key_values` are the same: transformers 5.24 renamed the argument.
        The output has names whatever `return_dict` is. With `num_items_in_batch`, the number of
        labels in all batches of one step, the loss is the sum over the labels divided by it.

        Raises:
            ShapeshiftError: the source or `decoder_input_ids` are padded on the left, the mask has
                another shape, an input is missing, or `encoder_outputs` come in training mode.
        """
        if decoder_input_ids is None:
            if labels is None:
                raise ShapeshiftError("give labels or decoder_input_ids, or call generate()")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        cache = past_key_values if cache is None else cache
        if cache is None:
            memory = self._memory(input_ids, attention_mask, encoder_outputs)
            if not use_cache or self.training:
                hidden = self.model.decode(decoder_input_ids, memory)
            else:
                cache = Cache(DecoderState(self.model, memory, beam=1))
        if cache is not None:
            hidden = cache.state.extend(decoder_input_ids)
            cache.length += decoder_input_ids.shape[1]
        logits = self.model.project(hidden)  # (B, T, V)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits.flatten(0, 1).float(),
                labels.flatten(),
                ignore_index=IGNORED,
                reduction="mean" if num_items_in_batch is None else "sum",
            )
            if num_items_in_batch is not None:
                loss = loss / torch.as_tensor(num_items_in_batch, device=loss.device)
        output: Any = {"loss": loss, "logits": logits, CACHE: cache}
        return Seq2SeqLMOutput(**output)

    def _memory(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None,
    ) -> Memory:
        if encoder_outputs is None:
            if input_ids is None:
                raise ShapeshiftError("give input_ids or encoder_outputs")
            encoded: Memory = self.model.encode(_padded(input_ids, attention_mask))
            return encoded
        if self.training:  # which draws positions that encoder_outputs do not hold
            raise ShapeshiftError(
                "encoder_outputs, and generate(), are for evaluation mode: call model.eval() first;"
                " or give input_ids"
            )
        if isinstance(encoder_outputs, tuple):
            encoder_outputs = BaseModelOutput(encoder_outputs[0])
        hidden = encoder_outputs.last_hidden_state
        if hidden is None:
            raise ShapeshiftError("encoder_outputs must come from get_encoder(); give input_ids")
        pos = self.model.source.position_ids(1, hidden.shape[1], device=hidden.device)
        real = hidden.new_ones(hidden.shape[:2]) if attention_mask is None else attention_mask
        _check_mask(real, hidden.shape[:2])
        return Memory(hidden, pos, padding_mask(real, hidden.dtype))


def _padded(ids: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return `ids (B, S)` with `<pad>` wherever the mask is 0."""
    if attention_mask is None:
        return ids
    _check_mask(attention_mask, ids.shape)
    ids = ids.masked_fill(attention_mask == 0, PAD)
    if not torch.compiler.is_compiling():
        check_padding("input_ids", ids)
    return ids


def _check_mask(attention_mask: Tensor, shape: torch.Size) -> None:
    """Raise a `ShapeshiftError` if the mask is not `(B, S)`: another one would broadcast."""
    if attention_mask.shape != shape:
        raise ShapeshiftError(
            f"attention_mask must be (B, S) = {tuple(shape)}, got {tuple(attention_mask.shape)}"
        )
