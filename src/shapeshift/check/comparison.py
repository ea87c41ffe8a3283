"""A model next to its configuration, and what is read of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.families import find
from shapeshift.interop.swap import ENTRY

from .adapter import Side, Subject, UnsupportedError
from .probe import line
from .watch import MASKED, Watch

LONGEST = 4100
"""Tokens of the longest sequence, for windows."""

Outcome = Literal["agrees", "DIFFERS", "not declared", "not measured"]


@dataclass(frozen=True)
class Reading:
    """One property of some layers.

    Attributes:
        property: its name.
        side: `decoder` or `encoder`.
        layers: their numbers; empty for a table of positions.
        measured: what these layers do, or why it was not measured.
        declared: what the configuration says, or why that is not known.
        outcome: `agrees`, `DIFFERS`, `not declared` or `not measured`.
        values: the numbers that were measured, if there are several.
    """

    property: str
    side: str
    layers: tuple[int, ...]
    measured: str
    declared: str
    outcome: Outcome
    values: tuple[float, ...] = field(default=(), compare=False, repr=False)

    def where(self) -> str:
        """The side and its layers, as `decoder 0-2, 4`."""
        return f"{self.side} {spans(self.layers)}".strip()


def spans(numbers: Iterable[int]) -> str:
    """Return increasing numbers in words, as `0-2, 4`."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][-1] == n - 1:
            parts[-1].append(n)
        else:
            parts.append([n])
    return ", ".join(f"{x[0]}-{x[-1]}" if len(x) > 1 else str(x[0]) for x in parts)


def shortened(numbers: Tensor) -> str:
    """Return numbers in words: of more than four, the first three and the last."""
    words = [f"{x:.4g}" for x in numbers.tolist()]
    return ", ".join(words if len(words) <= 4 else [*words[:3], "…", words[-1]])


def grouped(readings: list[Reading]) -> list[Reading]:
    """Join readings of the same property that differ in their layers alone."""
    groups: dict[Reading, list[int]] = {}
    for reading in readings:
        groups.setdefault(replace(reading, layers=()), []).extend(reading.layers)
    joined = [replace(reading, layers=tuple(sorted(layers))) for reading, layers in groups.items()]
    order = list(dict.fromkeys((x.side, x.property) for x in joined))
    return sorted(joined, key=lambda x: order.index((x.side, x.property)))


def _in_new_names(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as this version of transformers writes it, which gives names of older
    versions newer ones; unchanged if it cannot."""
    try:
        from transformers import CONFIG_MAPPING

        read: dict[str, Any] = (
            CONFIG_MAPPING[config["model_type"]].from_dict(dict(config)).to_dict()
        )
    except Exception:
        return dict(config)
    return read


class Comparison:
    """One side of a model and what its configuration says of it.

    Args:
        subject: the side.
        config: as for `declared`, or None: there is none.
        num_tokens: in which windows show, besides that of the configuration.

    Attributes:
        given: the configuration as a dictionary.
        tables: names of the tables of positions.
        scores: number of a layer → its call, of two rows of one repeated token.
        side: `decoder` or `encoder`, as the masks say.
    """

    def __init__(self, subject: Subject, config: Any, num_tokens: int):
        self.subject, self.model, self.config = subject, subject.model, config
        as_dict = getattr(config, "to_dict", None)
        self.given: dict[str, Any] = as_dict() if as_dict else _in_new_names(config or {})
        if ENTRY in self.given:  # `use_position` has replaced what the rest of it declares
            self.config, self.given = None, {}
        self.tables = [*find(self.model)]
        self.scores = self.watch(torch.arange(self._length(num_tokens)), 2, with_ids=False).calls
        self.side = subject.side
        for call in self.scores.values():
            if call.scores is not None:
                of_middle = call.scores[0, 0, 0]
                if of_middle[len(of_middle) // 2 + 1] > MASKED:
                    self.side = "encoder"

    def _length(self, num_tokens: int) -> int:
        """Return an odd number of tokens in which a window shows."""
        names = "sliding_window", "attention_window_size", "window_size", "local_attention"
        window = next((self.given[name] for name in names if self.given.get(name)), 0)
        length = min(
            max(window + 2, num_tokens) if isinstance(window, int) else num_tokens, LONGEST
        )
        room = self.subject.limit if self.tables else None
        length += 1 - length % 2
        return length if room is None or length <= room else room - 1 + room % 2

    @property
    def can_jump(self) -> bool:
        """Whether the model takes any `position_ids`; ours count, from any start."""
        return self.subject.takes_position_ids and not isinstance(self.model, Side)

    def watch(self, pos: Tensor, rows: int, with_ids: bool = True) -> Watch:
        """Return what attentions compute for `rows` rows, each of one token at all of `pos (T,)`,
        or `(A, T)` with axes."""
        usable = self.subject.usable_ids
        ids = usable[:rows, None].expand(-1, pos.shape[-1])
        at = None
        if with_ids and self.can_jump:
            at = pos.unsqueeze(-2).expand(*pos.shape[:-1], *ids.shape)
        try:
            return Watch(pos.shape[-1]).run(self.model, lambda: self.subject.logits(ids, None, at))
        except ShapeshiftError:
            raise
        except Exception as error:
            raise UnsupportedError(line(error)) from error

    def reading(
        self, name: str, layer: int | None, measured: str, stated: str, outcome: Outcome
    ) -> Reading:
        """Return a reading of a layer, or of a table."""
        layers = () if layer is None else (layer,)
        return Reading(name, self.side, layers, measured, stated, outcome)

    def agree(
        self, name: str, layer: int | None, measured: str, stated: str, agrees: bool
    ) -> Reading:
        """Return a reading whose outcome is `agrees` or `DIFFERS`."""
        return self.reading(name, layer, measured, stated, "agrees" if agrees else "DIFFERS")
