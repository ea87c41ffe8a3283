"""Where two models with the same weights part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions.checks import whole_number

from .adapter import Subject, subjects
from .comparison import Reading, grouped
from .declared import read
from .engines import SINGLE, Engine
from .probe import LENGTHS, Probe, difference, line


@dataclass(frozen=True)
class Parting:
    """The smallest input for which two models differ, and what differs.

    Attributes:
        side: `decoder` or `encoder`.
        ids: of the shortest sequence.
        position: the first token with other logits, from 0.
        difference: of these, as a fraction of their spread over the vocabulary.
        readings: what the positions of layers measure; `declared` is the other model. If one is an
            `Engine`, of which nothing is measured: those of the module that may be the reason, as
            they act at this position.
    """

    side: str
    ids: tuple[int, ...]
    position: int
    difference: float
    readings: tuple[Reading, ...]


def against(
    model: nn.Module | Engine, other: nn.Module | Engine, *, max_length: int = LENGTHS[-1]
) -> list[Parting]:
    """Return where two models with the same weights part, one for each side that does.

        for parting in against(mine(), AutoModelForCausalLM.from_pretrained("gpt2")):
            print(parting.ids, parting.position, *parting.readings)

    The log-probabilities of both are compared for sequences of random tokens, from short to long.
    If they differ by more than rounding does (see `check`), the properties of `declared` that
    differ are the readings, first layers first; none if none of these is the reason.

    Args:
        model: as for `check`.
        other: with the same vocabulary; one of the two may be from `open_engine`.
        max_length: the longest sequence to try; 4 or more.

    Raises:
        ShapeshiftError: as for `check`; if one is an encoder-decoder and the other is not, logits
            have other shapes, a model fails, or both are from `open_engine`.
    """
    whole_number("max_length", max_length, 4)
    if isinstance(model, Engine):
        model, other = other, model
    if isinstance(model, Engine):
        raise ShapeshiftError(
            "one of the two models must be a module, whose vocabulary and rounding are known;"
            " compare each of them with it"
        )
    sides = subjects(model)
    others: Sequence[Engine | Subject]
    others = [other] * (1 + other.is_seq2seq) if isinstance(other, Engine) else subjects(other)
    if len(sides) != len(others):
        raise ShapeshiftError("one of the two models is an encoder-decoder, and the other is not")
    partings = []
    with torch.inference_mode():
        for side, second in zip(sides, others, strict=True):
            other_side = second if isinstance(second, Engine) else Probe(second, max_length)
            found = _shortest(Probe(side, max_length), other_side, max_length)
            if found is not None:
                partings.append(found)
    return partings


def _shortest(first: Probe, second: Probe | Engine, max_length: int) -> Parting | None:
    """Return the shortest sequence for which the models part, or None."""
    limits = [first.subject.limit or max_length]
    allowed = first.allowed
    if isinstance(second, Probe):
        limits.append(second.subject.limit or max_length)
        allowed = max(allowed, second.allowed)
    elif second.precision > SINGLE:
        allowed = first.noise(second.precision)

    def logits(side: Probe | Engine, ids: Tensor) -> Tensor:
        if isinstance(side, Engine):
            return side.logits(*(first.subject.pair(ids) if side.is_seq2seq else [ids]))
        try:
            return side.subject.logits(ids)
        except Exception as error:
            raise ShapeshiftError(
                f"a model fails for {ids.shape[1]} tokens ({line(error)}), so that two cannot be"
                " compared there; wrap it in a module that takes them"
            ) from error

    def parts(ids: Tensor) -> tuple[tuple[int, ...], int, float] | None:
        ours, theirs = (logits(side, ids) for side in (first, second))
        if ours.shape != theirs.shape:
            raise ShapeshiftError(
                f"the models return logits of other shapes, {tuple(ours.shape)} and"
                f" {tuple(theirs.shape)}; compare two with the same weights"
            )
        ours, theirs = (x.double().log_softmax(-1) for x in (ours, theirs))
        off = [difference(ours[:, n], theirs[:, n]) for n in range(ours.shape[1])]
        place = next((n for n, x in enumerate(off) if not x <= allowed), None)
        return None if place is None else (tuple(ids[0].tolist()), place, off[place])

    longest, passed, lengths = min(max_length, *limits), 0, [1, *first.lengths]
    lengths = [n for n in lengths if n <= longest]
    while lengths[-1] < longest:
        lengths.append(min(2 * lengths[-1], longest))
    for length in lengths:
        ids = first.ids(length)
        found = parts(ids)
        if found is None:
            passed = length
            continue
        # Without later tokens, the first position that differs is the last one of the shortest.
        sizes = range(passed + 1, length) if first.sees_ahead else [found[1] + 1]
        shorter = (parts(ids[:, :size]) for size in sizes)
        found = next((x for x in shorter if x is not None), found)
        if isinstance(second, Probe):
            readings = _differences(first, second, len(found[0]))
        else:
            readings = _acting(first, len(found[0]))
        return Parting(first.subject.side, *found, tuple(readings))
    return None


def _measured(probe: Probe, length: int) -> list[Reading]:
    return read(probe.subject, None, max(length + 2, 70))


def _acting(probe: Probe, length: int) -> list[Reading]:
    """Return what is measured in a model and acts in sequences of `length` tokens: a token alone
    sees itself, whatever its rotation, window or bias."""
    readings = [replace(each, outcome="not measured") for each in _measured(probe, length)]
    return grouped([each for each in readings if length > 1 or not each.layers])


def _first_difference(ours: Reading, theirs: Reading) -> tuple[str, str]:
    """Return what two readings that have the same text say of the first of their numbers that
    differs; the same if none does."""
    for n, (one, two) in enumerate(zip(ours.values, theirs.values, strict=False)):
        if not math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-6):
            start = f"{ours.measured}; number {n} is"
            return f"{start} {one:.4g}", f"{start} {two:.4g}"
    return ours.measured, theirs.measured


def _differences(first: Probe, second: Probe, length: int) -> list[Reading]:
    """Return what is measured in one model and not in the other, and acts in sequences of `length`
    tokens; see `_acting`."""
    ours, theirs = (
        {
            (reading.property, layer): reading
            for reading in _measured(probe, length)
            for layer in reading.layers or (-1,)
        }
        for probe in (first, second)
    )
    found = []
    for key in sorted(dict.fromkeys([*ours, *theirs]), key=lambda key: key[1]):
        name, layer = key
        if length == 1 and layer >= 0:
            continue
        if (key in ours) != (key in theirs) and {("θ", layer)} <= ours.keys() & theirs.keys():
            continue  # it was not measured in one of them
        known = ours.get(key) or theirs[key]
        one, two = (side[key].measured if key in side else "none" for side in (ours, theirs))
        if one == two and key in ours and key in theirs:
            one, two = _first_difference(ours[key], theirs[key])
        if one != two:
            layers = () if layer < 0 else (layer,)
            found.append(Reading(name, known.side, layers, one, two, "DIFFERS"))
    return grouped(found)
