"""SHAPE in an existing model: position embeddings are looked up k positions later."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions.checks import can_read, whole_number
from shapeshift.positions.position_ids import draw_offsets

from .changed import HANDLES, UNDO, refuse_changed
from .families import CALLED_WITH_ROWS, Family, family_of, find, relative_kind
from .swap import restore_position


def shift_positions(
    model: nn.Module,
    max_offset: int = 500,
    *,
    max_length: int | None = None,
) -> list[str]:
    """Give a model shifted absolute positions, SHAPE (Kiyono et al. 2021, section 2.3).

        shift_positions(model, max_offset=100)

    While training, every look-up of positions draws an offset k ~ U{0, …, K} for each sequence, by
    torch's generator: encoder and decoder, and the processes of torch.distributed, get different
    ones; `torch.manual_seed` makes them reproducible, gradient checkpointing repeats them, and
    compiled code draws in each call. In evaluation the model's output is unchanged. Only hooks are
    added to the model; `unshift` removes them. Code that this process has compiled already is
    compiled again.

    A learned table needs a row for K + T positions, where T is the longest sequence. A sinusoidal
    table is continued by its formula, outside the model, so that the state dict does not change. A
    table that is trained (`requires_grad`), or holds other values, counts as learned.

    Known are tables that stand next to the embedding of the tokens, as in BERT, GPT-2, CLIP's text
    model and more than fifty other classes of transformers, and the position embeddings of BART,
    BigBird-Pegasus, BioGPT, Blenderbot, FSMT, LED, M2M100, Marian, mBART, MVP, NLLB, OPT,
    Pegasus, PLBART, Speech2Text, TrOCR, Whisper (decoder) and XGLM.

    Args:
        model: the module that is called in training; wrap it first (PEFT, DDP), shift it last.
        max_offset: K, included.
        max_length: T, for which a learned table is checked now; None checks each forward pass.

    Returns:
        The names of the modules whose positions are shifted.

    Raises:
        ShapeshiftError: if K is negative or T smaller than 1; no position embedding is known in
            the model; the positions of the model, or of a part of it, are changed already (also by
            `use_position` and `restore_relative_positions`); or a learned table is too short.
    """
    refuse_changed(model)
    max_offset = whole_number("max_offset", max_offset, 0)
    if max_length is not None:
        max_length = whole_number("max_length", max_length, 1)
    every = dict(model.named_modules(remove_duplicate=False))
    targets = {every[name]: name for name in find(model)}  # one that two sides share, once
    if not targets:
        kind = relative_kind(every.values())
        why = f": its positions are {kind}, which see distances alone" if kind else ""
        raise ShapeshiftError(
            f"no absolute position embedding is known in {type(model).__name__}{why}; in a model of"
            " your own, number the tokens with shapeshift.positions.Shifted"
        )
    shifts = {target: _Shift(name, target, max_offset) for target, name in targets.items()}
    for target, shift in shifts.items():
        shift.check_room(target, (max_length or 1) - 1)
    for target, shift in shifts.items():
        handles = [target.register_forward_hook(shift.shift, with_kwargs=True)]
        for owner in _owners(every, target):
            handles.append(owner.register_forward_pre_hook(shift.begin, with_kwargs=True))
        if family_of(target) is CALLED_WITH_ROWS:  # other classes are known by themselves
            handles += [x.register_forward_hook(shift.end) for x in _parents(every, target)]
        setattr(target, HANDLES, handles)
    _forget_compiled()
    return list(targets.values())


def unshift(model: nn.Module) -> None:
    """Undo `shift_positions` or `use_position`.

    Other changes since then stay: weights, device and dtype, and other settings of a configuration.

    Raises:
        ShapeshiftError: if neither has changed its positions.
    """
    if any(hasattr(part, UNDO) for part in model.modules()):
        restore_position(model)
        return
    shifted = [part for part in model.modules() if hasattr(part, HANDLES)]
    if not shifted:
        raise ShapeshiftError(
            f"the positions of this {type(model).__name__} are not shifted or replaced; call"
            " unshift with the module that was given to shift_positions or use_position"
        )
    for part in shifted:
        for handle in getattr(part, HANDLES):
            handle.remove()
        delattr(part, HANDLES)
    _forget_compiled()


def _forget_compiled() -> None:
    # Code that was compiled without hooks does not run them.
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


class _Shift:
    """The offsets of one position embedding, and the hooks that use them.

    `begin` runs before each module around the embedding and notes how many sequences come; `shift`
    runs after the embedding and replaces what it returned.
    """

    def __init__(self, name: str, module: nn.Module, max_offset: int):
        self._name = name
        self._family: Family = family_of(module)
        self._max_offset = max_offset
        self._num_sequences: int | None = None
        self._num_lookups = 0
        self._is_sinusoidal = self._family.is_sinusoidal(module)
        self._reader: Any = copy(module)  # whose table has other numbers, see `_rows`
        vars(self._reader).update(_parameters={}, _buffers={})

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Forward pre-hook: notes the number of sequences."""
        self._num_lookups = 0
        preferred = kwargs.get("input_ids"), kwargs.get("inputs_embeds")
        tensors = (x for x in (*preferred, *args, *kwargs.values()) if isinstance(x, Tensor))
        batch = next((x for x in tensors if x.ndim > 1), None)
        if batch is not None:
            # Ids may come as (B, choices, T), which models flatten.
            ids = not batch.is_floating_point()
            self._num_sequences = math.prod(batch.shape[:-1]) if ids else batch.shape[0]

    def shift(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Tensor
    ) -> Tensor | None:
        """Forward hook: replaces the embeddings by those of shifted positions, in training."""
        if not module.training:
            return None
        self._num_lookups += 1
        rows = self._rows(module, args, kwargs)
        rows = rows if rows.ndim > 1 else rows.unsqueeze(0)  # (B|1, T)
        last = rows.shape[-1] - 1
        if can_read(rows) and rows.numel():
            last = max(last, int(rows.max()) - self._family.first(module))
        self.check_room(module, last)
        count = rows.shape[0] if rows.shape[0] > 1 else self._num_sequences
        if count is None:
            raise ShapeshiftError(
                f"{self._name}: cannot tell how many sequences there are; call the model that was"
                " given to shift_positions, not its forward method, with batch-first tensors"
            )
        offsets = draw_offsets(count, self._max_offset + 1, rows.device)
        shifted = rows + offsets.unsqueeze(1)  # (B, T)
        padding = self._family.padding(module)
        if padding is not None:
            shifted = torch.where(rows == padding, rows, shifted)
        if self._family.table is None:
            if args:
                args = (shifted, *args[1:])
            else:
                kwargs = {**kwargs, next(iter(kwargs)): shifted}
            embedded: Tensor = module.forward(*args, **kwargs)  # no hooks this time
            return embedded
        table = self._family.table_of(module)
        assert table is not None, "known families have tables"
        if self._is_sinusoidal:
            beyond = torch.arange(len(table), len(table) + self._max_offset, device=table.device)
            table = torch.cat((table, self._family.formula(table, beyond)))
        return F.embedding(shifted, table)

    def end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Forward hook of the module that has the table: it must have looked it up, once."""
        if module.training and self._num_lookups != 1:
            raise ShapeshiftError(
                f"{self._name}: {type(module).__name__} looks it up {self._num_lookups} times in a"
                " call, and shift_positions draws an offset for each; call unshift, and number the"
                " tokens with shapeshift.positions.Shifted"
            )

    def _rows(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
        """Return the rows that a call looks up, `(T,)`, `(1, T)` or `(B, T)`, by calling it with a
        table whose rows hold their own numbers."""
        name, table = self._family.table, self._family.table_of(module)
        if name is None or table is None:
            rows: Tensor = next(iter((*args, *kwargs.values())))
            return rows
        setattr(self._reader, name, torch.arange(len(table), device=table.device).unsqueeze(1))
        for key, other in module.named_buffers():
            if key != name:  # to which TrOCR of transformers 4 casts its table
                setattr(self._reader, key, other.float())
        # Of the class: accelerate replaces that of the module, which would read the module's table.
        rows = type(module).forward(self._reader, *args, **kwargs)  # (…, T, 1)
        return rows.squeeze(-1).long()

    def check_room(self, module: nn.Module, last: int) -> None:
        """Raise an error if a learned table has no row for position `last`, shifted by K."""
        table = self._family.table_of(module)
        if table is None or self._is_sinusoidal:
            return
        room = table.shape[0] - self._family.first(module)
        if last + self._max_offset < room:
            return
        remedy = f"use max_offset={room - last - 1} or less" if last < room else "shorten them"
        raise ShapeshiftError(
            f"{self._name}: its learned table has {room} positions, but {last + 1} tokens with"
            f" max_offset={self._max_offset} need {last + 1 + self._max_offset}; {remedy}"
        )


def _parents(every: Mapping[str, nn.Module], target: nn.Module) -> set[nn.Module]:
    """Return the modules that have `target` as a part of their own."""
    return {every[name.rpartition(".")[0]] for name, x in every.items() if x is target}


def _owners(every: Mapping[str, nn.Module], target: nn.Module) -> set[nn.Module]:
    """Return the modules that contain `target`, under any of its names; the model is one."""
    names = [name.split(".") for name, module in every.items() if module is target]
    return {every[".".join(steps[:n])] for steps in names for n in range(len(steps))}
