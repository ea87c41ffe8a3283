"""One interface to anybody's model: token ids in, logits out.

An encoder-decoder is two subjects. Its `decoder` reads targets for a fixed source, its `encoder`
reads sources for a fixed start of the target.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.changed import RELATIVE
from shapeshift.interop.families import TOKENS, find, relative_kind, special_ids, text_config
from shapeshift.positions import Coupled, Randomized, Representation
from shapeshift.positions.base import HOOKS

Claim = Literal["absolute", "relative", "none"]

LIMITS = (
    "max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "max_length"
)  # fmt: skip
"""What configurations call the number of positions of a table, or the length of training."""

CACHES = ("past_key_values", "cache")
"""What models call their cache; transformers 5.24 renamed it."""

FIXED_LENGTH = 5
"""Of the side of an encoder-decoder that does not change."""

WRAP = "wrap it in a module with forward(ids) or forward(ids, attention_mask=None)"
"""The remedy for a model with other inputs."""


class UnsupportedError(Exception):
    """The model cannot be tested for this property; the message says why."""


class Subject:
    """A model, or one side of it, as the properties see it; see `check` for how it is called.

    Args:
        model: is copied before it is changed.
        side: `decoder` or `encoder`. A decoder by itself whose earlier outputs depend on later
            tokens is checked as an encoder.
        claim: what the model says of its positions; None is what its modules say.

    Attributes:
        limit: positions of its table, or the length of training; None if there is no limit.
        usable_ids: the token ids to test with, no special ones.
        is_seq2seq: whether it is one side of an encoder-decoder.
        aligned: whether logits belong to the tokens; those of an encoder belong to the target.
        takes_mask, takes_position_ids, takes_cache: what `logits` may be called with.

    Raises:
        ShapeshiftError: `forward` cannot be called with ids alone.
    """

    def __init__(self, model: nn.Module, side: str = "decoder", claim: Claim | None = None):
        try:
            inspect.signature(model.forward).bind(None)
        except TypeError as error:
            raise ShapeshiftError(
                f"forward of {type(model).__name__} cannot be called with token ids alone"
                f" ({error}); {WRAP}"
            ) from error
        self.model, self.side, self.claim = model, side, claim or _claim(model)
        self.names = inspect.signature(model.forward).parameters
        self.aligned = side == "decoder"
        self.is_seq2seq = "decoder_input_ids" in self.names
        reads_target = self.is_seq2seq and side == "decoder"
        self.mask_name = "decoder_attention_mask" if reads_target else "attention_mask"
        self.takes_mask = self.mask_name in self.names
        # Falcon with ALiBi counts along the mask and ignores the position_ids that it takes.
        has_alibi = any(getattr(config, "alibi", False) for config in _configs(model))
        ignored = self.is_seq2seq or has_alibi
        self.takes_position_ids = "position_ids" in self.names and not ignored
        self.cache_name = next((name for name in CACHES if name in self.names), CACHES[0])
        known = "use_cache" in self.names or self.cache_name == CACHES[0]
        self.takes_cache = self.cache_name in self.names and known and side == "decoder"
        # The position of the first token: RoBERTa's tables begin with a row for padding.
        tables = (x for name, x in model.named_modules() if name.endswith("position_embeddings"))
        padding = [getattr(table, "padding_idx", None) for table in tables]
        self.start = max((row + 1 for row in padding if row is not None), default=0)
        self.usable_ids = _usable_ids(model)
        limit = _limit(model)
        self.limit = None if limit is None else limit - self.start
        if self.limit is not None and self.limit < FIXED_LENGTH:
            raise ShapeshiftError(
                f"{type(model).__name__} has {self.limit} positions, and `check` needs"
                f" {FIXED_LENGTH} or more; give it more"
            )

    def logits(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: list[Any] | None = None,
    ) -> Tensor:
        """Return logits `(B, T, V)` of `ids (B, T)`.

        Args:
            ids: tokens; with a cache, those that follow the ones it has.
            attention_mask: `(B, T)`, 1 on tokens and 0 on padding, of those in the cache as well;
                or what is added to the scores, `(B, 1, T, T)`.
            position_ids: `(B, T)`; None leaves them to the model.
            cache: holds the model's own state of the calls before, empty at first; is written to.

        Raises:
            UnsupportedError: the model does not take this.
        """
        kwargs: dict[str, Any] = {}
        first = ids
        if "decoder_input_ids" in self.names:
            first, kwargs["decoder_input_ids"] = self.pair(ids)
        if attention_mask is not None:
            kwargs[self.mask_name] = attention_mask
            if self.takes_position_ids and position_ids is None:
                counted = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
                position_ids = counted[:, -ids.shape[1] :]
        if position_ids is not None:
            kwargs["position_ids"] = position_ids + self.start
        for name in kwargs:
            if name not in self.names:
                raise UnsupportedError(f"it takes no {name}")
        if "use_cache" in self.names:
            kwargs["use_cache"] = cache is not None
        if cache is not None:
            kwargs[self.cache_name] = cache[0] if cache else None
        try:
            out = self.model(first, **kwargs)
        except ShapeshiftError as error:
            if attention_mask is None or not (attention_mask.diff(dim=-1) > 0).any():
                raise
            raise UnsupportedError(f"it refuses padding left of a token: {error}") from error
        if cache is not None:
            kept = out[1:2] if isinstance(out, tuple) else (getattr(out, self.cache_name, None),)
            if not kept or kept[0] is None:
                raise UnsupportedError("it returns no cache")
            cache[:] = kept
        if not isinstance(out, Tensor):
            out = out[0] if isinstance(out, tuple) else getattr(out, "logits", out)
        return out  # type: ignore[no-any-return]

    def pair(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return sources and targets: `ids` on this side, and the fixed ids on the other."""
        other = fixed(self.usable_ids, len(ids))
        return (ids, other) if self.side == "encoder" else (other, ids)

    def changed(self, change: Callable[[nn.Module], object]) -> Subject:
        """Return this subject with a copy of the model, to which `change` was applied."""
        other = copy(self)
        other.model = deepcopy(self.model)
        change(other.model)
        return other


class Side(nn.Module):
    """One side of a `Transformer`, called like a model of Hugging Face: the other one is fixed.
    Padding is id 0.

    Args:
        model: the whole.
        side: as for `Subject`.
        both: whether positions of source and target are shifted, as cross-attention may see their
            difference; else those of this side alone.
    """

    def __init__(self, model: nn.Module, side: str, both: bool):
        super().__init__()
        self.model, self.side, self.both, self.usable_ids = model, side, both, _usable_ids(model)

    def forward(
        self,
        ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool = False,
    ) -> tuple[Tensor, Any]:
        model: Any = self.model
        offset = None
        if position_ids is not None and attention_mask is None:
            if (position_ids.diff(dim=1) != 1).any():
                raise UnsupportedError("positions are counted by the model, from any start")
            offset = position_ids[:, 0]
        if attention_mask is not None:
            ids = ids * attention_mask
        sides = (ids, offset), (fixed(self.usable_ids, len(ids)), offset if self.both else None)
        source, target = sides if self.side == "encoder" else sides[::-1]
        if use_cache:
            state = past_key_values or model.start(source[0], offset=source[1])
            return model.project(state.extend(target[0])), state
        memory = model.encode(source[0], offset=source[1])
        return model.project(model.decode(target[0], memory, offset=target[1])), None


def fixed(usable_ids: Tensor, rows: int) -> Tensor:
    """Return the ids `(rows, FIXED_LENGTH)` of the fixed side."""
    return usable_ids[torch.arange(FIXED_LENGTH) * 5 % len(usable_ids)].expand(rows, -1)


def subjects(model: nn.Module, claim: Claim | None = None) -> list[Subject]:
    """Return the subjects of a model: its decoder, and its encoder if it has one.

    Raises:
        ShapeshiftError: it is no module, or has no table of tokens.
    """
    if not isinstance(model, nn.Module):
        raise ShapeshiftError(f"expected an nn.Module to check, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if any(weight.is_meta for weight in model.parameters()):
        raise ShapeshiftError(
            "the weights of this model are on the device meta, where they have no numbers; load"
            " them first"
        )
    if all(hasattr(model, name) for name in ("encode", "decode", "project", "start")):
        sides = []
        cross = [x for name, x in model.named_modules() if name.endswith("cross_attention")]
        parts = {
            "decoder": [model.target, model.decoder],
            "encoder": [model.source, model.encoder, *cross],
        }
        for side in parts:
            # Where there is no module for positions, the configuration says that there are none.
            said = claim or (_claim(model) if any(map(_kinds, parts[side])) else "none")
            subject = Subject(Side(model, side, said != "none"), side, said)
            subject.is_seq2seq, subject.takes_mask = True, side == "encoder"
            sides.append(subject)
        return sides
    decoder = Subject(model, "decoder", claim)
    return [decoder, Subject(model, "encoder", claim)] if decoder.is_seq2seq else [decoder]


def _configs(model: nn.Module) -> list[Any]:
    """Return the configuration of a model if it has one, and in it the one of the text."""
    config = getattr(model, "config", None)
    text = text_config(config)
    return [x for x in (config, None if text is config else text) if x is not None]


def _usable_ids(model: nn.Module) -> Tensor:
    """Return token ids that are in every vocabulary and are no special tokens: neither the first
    four nor those that the configuration names."""
    configs = _configs(model)
    owners = (*configs, model)
    size = next((n for x in owners if (n := getattr(x, "vocab_size", None))), None)
    tables = [
        (name.rpartition(".")[2], part.num_embeddings)
        for name, part in model.named_modules()
        if isinstance(part, nn.Embedding)
    ]
    sizes = [size] if size else []
    sizes += [n for name, n in tables if name in TOKENS]  # source and target may differ
    if not sizes and not tables:
        raise ShapeshiftError(
            f"the vocabulary of this {type(model).__name__} is not known; give it a vocab_size"
        )
    size = min(sizes or [tables[0][1]])
    special = special_ids(*configs)
    usable = [n for n in range(max(0, min(4, size - 2)), size) if n not in special]
    if len(usable) < 2:
        raise ShapeshiftError(
            f"{len(usable)} of {size} tokens are not special, and `check` needs 2 or more; give the"
            " model a larger vocab_size"
        )
    return torch.tensor(usable)


def _limit(model: nn.Module) -> int | None:
    """Return how many positions the model has room for, or was trained with."""
    limits = [last + 1 for kind in _kinds(model) if (last := kind.max_position()) is not None]
    limits += [part.max_length for part in model.modules() if isinstance(part, Randomized)]
    for owner in (*_configs(model), model):
        named = [getattr(owner, name, None) for name in LIMITS]
        limits += [n for n in named if isinstance(n, int) and n > 0][:1]  # XLNet has -1: no limit
    return min(limits, default=None)


def _kinds(model: nn.Module) -> list[Representation]:
    """Return the kinds of positions in a model. What layers without a `position` have claims
    nothing, nor do kinds that read the text alone."""
    parts = [part for part in model.modules() if isinstance(part, Representation)]
    inner = {module for part in parts for module in part.modules() if module is not part}
    return [
        kind
        for part in parts
        if part not in inner
        for kind in part.kinds()
        if any(kind.acts(hook) for hook in HOOKS if hook not in ("state", "score"))
        or not kind.position_free_score
    ]


def _claim(model: nn.Module) -> Claim | None:
    """Return whether a model's positions are absolute or relative, judged by its modules. Positions
    from `use_position` are known. A kind that does not promise to depend on distances alone is
    absolute if it has vectors or a table for positions; FIRE is neither, nor is a model whose
    position ids an offset moves for some tokens only (position coupling, Abacus)."""
    if any(isinstance(part, Coupled) for part in model.modules()):
        return None
    if any(hasattr(part, RELATIVE) for part in model.modules()):
        return "relative"
    replaced = [x for name, x in model.named_modules() if name.endswith("shapeshift_positions")]
    kinds = _kinds(model)
    if replaced and not kinds:
        return "none"
    if kinds and all(kind.shift_invariant for kind in kinds):
        return "relative"
    has_vectors = any(kind.acts("embed") or kind.acts("inputs") for kind in kinds)
    if has_vectors or any(not x.shift_invariant and x.max_position() is not None for x in kinds):
        return "absolute"
    if kinds:
        return None
    if any(True for _ in find(model)):
        return "absolute"
    parts = (*model.modules(), *_configs(model))
    return None if relative_kind(parts) is None else "relative"
