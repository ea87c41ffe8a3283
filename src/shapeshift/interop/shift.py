"""SHAPE in somebody else's model: its own position embeddings, looked up k positions further on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.positions import Shifted
from shapeshift.seeds import derive

from .draw import draw_offsets, new_stream
from .families import Family, family_of, find

_HANDLES = "_shapeshift_handles"


def shift_positions(
    model: nn.Module,
    max_offset: int = 500,
    *,
    modules: str | Iterable[str] | None = None,
    max_length: int | None = None,
    seed: int = 0,
) -> list[str]:
    """Give a model shifted absolute positions, SHAPE (Kiyono et al. 2021, section 2.3).

        shift_positions(model, max_offset=100)

    While training, every sequence of every forward pass gets its own offset k ~ U{0, …, K}, and the
    encoder's and the decoder's are drawn apart. The offsets are draws of their own (for each
    position embedding and process), so they do not disturb dropout. In evaluation the model
    computes what it did. Nothing of the model changes but hooks: `unshift` removes them. A compiled
    model (`torch.compile`, `fullgraph=True` too) draws in each call, and the same as uncompiled.

    A learned table must have a row for K + T positions, T being the longest sequence. A sinusoidal
    one is continued by its formula, outside the model: what is saved stays what it was.

    Known: the position embeddings of BERT, ELECTRA, RoBERTa, XLM-R, GPT-2, OPT, BART, mBART,
    PLBART, Marian, Pegasus, M2M100, NLLB and the decoder of Whisper.

    Args:
        model: the module that is called in training; wrap it first (PEFT, DDP), shift it last.
        max_offset: K, included.
        modules: names, as in `model.named_modules()`, of position embeddings; None takes all that
            are known. One that is not known must be a module which is called with position numbers,
            such as an `nn.Embedding`, in a model whose inputs are batch-first.
        max_length: T, for which a learned table is checked now. Without it, sequences may have as
            many tokens as K leaves, and longer ones are refused when they come.
        seed: of the offsets.

    Returns:
        The names of the modules whose positions are shifted.

    Raises:
        ShapeshiftError: if K is negative; nothing is found, or a name of `modules` is wrong; the
            model is shifted already; a learned table is too short (here, or in a forward pass).
    """
    if any(hasattr(part, _HANDLES) for part in model.modules()):
        raise ShapeshiftError(
            f"the positions of this {type(model).__name__} are shifted already; unshift it first"
        )
    every = dict(model.named_modules(remove_duplicate=False))
    names = _chosen(model, every, modules)
    Shifted(max_offset)  # refuses a negative K
    shifts = [_Shift(name, every[name], max_offset, derive(seed, name)) for name in names]
    for shift, name in zip(shifts, names, strict=True):
        shift.check(every[name], 1 if max_length is None else max_length)
    handles: list[RemovableHandle] = []
    for shift, name in zip(shifts, names, strict=True):
        target = every[name]
        handles.append(target.register_forward_hook(shift.shift, with_kwargs=True))
        for owner in _owners(every, target):
            handles.append(owner.register_forward_pre_hook(shift.begin, with_kwargs=True))
    setattr(model, _HANDLES, handles)
    return names


def unshift(model: nn.Module) -> None:
    """Take SHAPE out of a model: it is what it was before `shift_positions`.

    Raises:
        ShapeshiftError: if its positions are not shifted.
    """
    if not hasattr(model, _HANDLES):
        raise ShapeshiftError(
            f"the positions of this {type(model).__name__} are not shifted; call unshift with the"
            " module that was given to shift_positions"
        )
    for handle in getattr(model, _HANDLES):
        handle.remove()
    delattr(model, _HANDLES)


class _Shift:
    """The offsets of one position embedding, and the two hooks that use them.

    `begin` runs before each module around the embedding and tells that new sequences come and how
    many; `shift` runs after the embedding and replaces what it returned.
    """

    def __init__(self, name: str, module: nn.Module, max_offset: int, seed: int):
        self._name = name
        self._family: Family = family_of(module)
        self._max_offset = max_offset
        self._stream = new_stream(seed)
        self._num_sequences: int | None = None
        self._offsets: Tensor | None = None  # (B,) of these sequences, once drawn
        self._is_sinusoidal = self._family.is_sinusoidal(module)
        self._longer: Tensor | None = None  # (rows + K, D), if sinusoidal
        table = self._family.table_of(module)
        if self._is_sinusoidal and table is not None:
            self._continued(table)  # now, so that compiled code finds it there

    def begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A forward pre-hook: new sequences, new offsets."""
        self._offsets = None
        found = _num_sequences(args, kwargs)
        if found is not None:
            self._num_sequences = found

    def shift(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Tensor
    ) -> Tensor | None:
        """A forward hook: the embeddings of shifted positions while training."""
        if not module.training:
            return None
        rows = self._family.rows(module, *args, **kwargs)
        rows = rows if rows.ndim > 1 else rows.unsqueeze(0)  # (B|1, T)
        self.check(module, rows.shape[-1])
        shifted = rows + self._offsets_of(rows).to(rows.device).unsqueeze(1)  # (B, T)
        padding = self._family.padding(module)
        if padding is not None:
            shifted = torch.where(rows == padding, rows, shifted)
        return self._look_up(module, shifted)

    def check(self, module: nn.Module, length: int) -> None:
        """Raise an error if a learned table has no row for a sequence of `length` tokens."""
        table = self._family.table_of(module)
        if table is None or self._is_sinusoidal:
            return
        room = table.shape[0] - self._family.first(module)
        largest = self._max_offset
        if length + largest <= room:
            return
        remedies = []
        if length <= room:
            remedies.append(f"max_offset={room - length} or less")
        if largest < room:
            remedies.append(f"sequences of {room - largest} tokens or fewer")
        raise ShapeshiftError(
            f"{self._name}: its learned table has {room} positions, but sequences of up to"
            f" max_length={length} tokens with max_offset={largest} need {length + largest};"
            f" use {' or '.join(remedies) or 'shorter sequences and a smaller max_offset'}"
        )

    def _offsets_of(self, rows: Tensor) -> Tensor:
        count = rows.shape[0] if rows.shape[0] > 1 else self._num_sequences
        if count is None:
            raise ShapeshiftError(
                f"{self._name}: cannot tell how many sequences there are; call the model that was"
                " given to shift_positions, not its forward method, with batch-first tensors"
            )
        if self._offsets is None or self._offsets.shape[0] != count:
            self._offsets = draw_offsets(self._stream, count, self._max_offset)
        return self._offsets

    def _look_up(self, module: nn.Module, rows: Tensor) -> Tensor:
        if self._family.table is None:
            embedded: Tensor = module.forward(rows)  # no hooks this time
            return embedded
        table = self._family.table_of(module)
        assert table is not None, "known families have tables"
        return F.embedding(rows, self._continued(table) if self._is_sinusoidal else table)

    def _continued(self, table: Tensor) -> Tensor:
        # Kept from pass to pass, unless the model moved, or lengthened its table as M2M100 does.
        num_rows = table.shape[0] + self._max_offset
        longer = self._longer
        if longer is None or (longer.shape[0], longer.dtype, longer.device) != (
            num_rows,
            table.dtype,
            table.device,
        ):
            beyond = torch.arange(table.shape[0], num_rows, device=table.device)
            longer = torch.cat((table.detach(), self._family.formula(table, beyond)))
        self._longer = longer
        return longer


def _chosen(
    model: nn.Module, every: Mapping[str, nn.Module], modules: str | Iterable[str] | None
) -> list[str]:
    if modules is None:
        names = list(find(model))
    else:
        names = [modules] if isinstance(modules, str) else list(dict.fromkeys(modules))
    for name in names:
        if name not in every:
            raise ShapeshiftError(
                f"{type(model).__name__} has no module {name!r}{nearest(name, every)}"
            )
    if not names:
        likely = [name for name in every if "pos" in name.rpartition(".")[2] or "wpe" in name]
        hint = f", such as {likely[0]!r}" if likely else ""
        raise ShapeshiftError(
            f"no absolute position embedding is known in {type(model).__name__}; give its name"
            f" as modules=[…]{hint} (a model with rotary or relative positions has none)"
        )
    return names


def _owners(every: Mapping[str, nn.Module], target: nn.Module) -> list[nn.Module]:
    """Return the modules around `target` under each name that it has, the model first."""
    owners: dict[str, nn.Module] = {}
    for name in [name for name, module in every.items() if module is target]:
        steps = name.split(".")
        for depth in range(len(steps)):
            prefix = ".".join(steps[:depth])
            owners[prefix] = every[prefix]
    return list(dict.fromkeys(owners.values()))


def _num_sequences(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int | None:
    """Return the B of a call: of its ids or embeddings, else of its first batch-first tensor."""
    preferred = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"))
    for value in (*preferred, *args, *kwargs.values()):
        if isinstance(value, Tensor) and value.ndim > 1:
            # Ids may come as (B, choices, T), which models flatten.
            return value.shape[0] if value.is_floating_point() else math.prod(value.shape[:-1])
    return None
