"""Forward passes of a Hugging Face model in which no attention mixes tokens, and their record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError, reason

from .changed import register
from .numbering import KEYS, NAME, attention

LENGTH = 7
"""Tokens of a row: a size that hardly any other dimension has."""

SAME = (0, 0.5, 1)
"""Where in a row, from its first to its last place, the same token stands."""


@dataclass
class Call:
    """A call of an attention; the heads are those of the tokens at `SAME`, of which S is the
    number."""

    module: nn.Module
    query: Tensor  # (B, H, S, E)
    key: Tensor  # (B, H or fewer, S, E)
    value: Tensor
    num_keys: int
    mask: Any
    arguments: dict[str, Any]


@dataclass
class Run:
    """What `numbering.attention` calls in place of a position, and what a forward pass shows."""

    length: int  # T
    keep: bool  # whether to keep outputs
    calls: list[Call] = field(default_factory=list)
    outputs: dict[nn.Module, list[Any]] = field(default_factory=dict)  # what modules returned
    reached: set[nn.Module] = field(default_factory=set)  # modules that got `KEYS`
    result: Tensor | None = None  # of the tokens at `SAME`, (B, S, …)

    def attend(
        self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, arguments: Any
    ) -> tuple[Tensor, None]:
        """Record a call and return the values `(B, T, H, E)`."""
        at_q, at_k, at_v = (x[:, :, places(q.shape[2])] for x in (q, k, v))
        self.calls.append(Call(module, at_q, at_k, at_v, k.shape[2], mask, arguments))
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
        return v.transpose(1, 2).contiguous(), None


def _see(part: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
    """Forward hook of all modules."""
    record: Run = vars(part)[NAME]
    if record.keep:
        record.outputs.setdefault(part, []).append(output)
    if KEYS in kwargs:
        record.reached.add(part)


def no_interface(top: nn.Module) -> ShapeshiftError:
    """Return the error for a model whose attention cannot be replaced."""
    return ShapeshiftError(
        f"the attention of {type(top).__name__} does not go through transformers'"
        " AttentionInterface, so use_position cannot replace it"
    )


def rows_of(length: int) -> Tensor:
    """Return numbers of tokens `(2, length)`: 0 at `SAME`, elsewhere 1 to 3 in the first row and 4
    to 6 in the second."""
    numbers = torch.randint(1, 4, (2, length), generator=torch.Generator().manual_seed(0))
    numbers[1] += 3
    numbers[:, places(length)] = 0
    return numbers


def places(length: int) -> list[int]:
    """Return where `SAME` is in a row."""
    return [int(part * (length - 1)) for part in SAME]


@contextmanager
def recording(top: Any) -> Iterator[Callable[..., Run]]:
    """Let `top` call a `Run` in place of its attentions, in evaluation mode. Yields a function that
    calls it, or a part of it, with ids and, where it takes them, further arguments."""
    parts: list[Any] = [*top.modules()]
    configs = [(part, part.config) for part in parts if hasattr(part, "config")]
    modes = [(part, part.training) for part in parts]

    def run(part: Any, ids: Tensor, *, keep: bool = False, **arguments: Tensor) -> Run:
        record = Run(ids.shape[1], keep)
        for each in parts:
            vars(each)[NAME] = record
        known = inspect.signature(part.forward).parameters
        given = {"use_cache": False, **arguments}
        try:
            out = part(input_ids=ids, **{name: x for name, x in given.items() if name in known})
        except Exception as error:
            if not record.calls and not getattr(top, "_supports_attention_backend", True):
                raise no_interface(top) from error
            raise ShapeshiftError(
                f"use_position tries a model with a few tokens, and {type(top).__name__} fails:"
                f" {reason(error)}"
            ) from error
        values = (out,) if isinstance(out, Tensor) else out
        values = values if isinstance(values, tuple) else values.values()
        result = next((x for x in values if _is_by_token(x, ids)), None)
        record.result = None if result is None else result[:, places(record.length)]
        return record

    register(NAME, attention)
    copies: dict[int, Any] = {}
    try:
        for part, config in configs:
            part.config = copies.setdefault(id(config), copy(config))
            part.config._attn_implementation_internal = NAME
        with ExitStack() as hooks, torch.no_grad():
            for part in parts:
                part.training = False
                hooks.enter_context(part.register_forward_hook(_see, with_kwargs=True))
            yield run
    finally:
        for part, config in configs:
            part.config = config
        for part, mode in modes:
            part.training = mode
            vars(part).pop(NAME, None)


def _is_by_token(x: object, ids: Tensor) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.shape[:2] == ids.shape


def same(x: Tensor, y: Tensor, share: float = 1.0) -> bool:
    """Return whether two tensors are equal but for this share of `rounding`."""
    if not x.numel():
        return True
    allowed = share * rounding(x) * y.float().abs().max()
    return bool((x.float() - y.float()).abs().max() <= allowed)


def rounding(x: Tensor) -> float:
    """Return the relative error that counts as rounding."""
    return 1e-3 if x.dtype in (torch.float32, torch.float64) else 0.05
