"""Properties of positions in any model, one function each. A function takes a length and yields
cases: pairs of computations that must agree, or must differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import torch
from torch import Tensor

from shapeshift.positions import Coupled

from .adapter import Subject, UnsupportedError
from .choices import Choices
from .probe import Case, Probe, difference, line, pad

TESTABLE = 2048
"""The longest sequence that is run, to see what is beyond a limit."""

FOLLOWS_MASK = "its positions follow the mask, so that padding shifts nothing"
CAUSAL = (
    "a causal mask orders the tokens also without positions; whether there are any shows only with"
    " position_ids or padding"
)


class RefusedError(Exception):
    """The model refuses the input with an error of its own, as it should."""


def repeatable(probe: Probe, length: int) -> Iterator[Case]:
    """The same call gives the same logits in evaluation mode; nothing is random."""
    ids = probe.ids(length)
    out, again = probe.subject.logits(ids), probe.subject.logits(ids)
    # The tolerance of the other properties would include what is drawn.
    yield Case("the same call twice", difference(again, out), 1e-6, ids)


def cached(probe: Probe, length: int) -> Iterator[Case]:
    """Decoding with a cache gives the logits of one full pass, whatever the sizes of its pieces,
    also at long distances."""
    if not probe.subject.takes_cache:
        raise UnsupportedError("it has no cache")
    ids = probe.ids(length)
    full = probe.subject.logits(ids)
    half, tail = length // 2, min(3, length - 1)
    cuts = {(length - 1, 1), (half, length - half), (length - tail, *[1] * tail)}
    for sizes in sorted({*cuts, (1, length - 1)}):
        yield probe.same(f"with a cache, in pieces of {sizes}", probe.pieces(ids, sizes), full, ids)


def left_padding(probe: Probe, length: int) -> Iterator[Case]:
    """Padding on the left, as `generate` pads prompts, changes nothing, neither in one pass nor in
    decoding with a cache."""
    subject = probe.subject
    if subject.side == "encoder" and not subject.takes_position_ids:
        _require_claim(subject)
        if subject.claim == "absolute":
            raise UnsupportedError(
                "absolute positions count from the first column; pad on the right"
            )
    if subject.side == "decoder" and subject.is_seq2seq:
        raise UnsupportedError("targets of an encoder-decoder begin in the first column")
    yield from _padding(probe, length, left=True)
    if subject.takes_cache and probe.room(length) >= 2:
        ids = probe.ids(length)
        padded, mask = pad(ids, 2, 0)
        for sizes in ((length + 1, 1), (3, length - 1)):
            out = probe.pieces(padded, sizes, mask)[:, 2:]
            what = f"padding of 2 on the left, with a cache, in pieces of {sizes}"
            yield probe.same(what, out, subject.logits(ids), padded)


def right_padding(probe: Probe, length: int) -> Iterator[Case]:
    """Padding on the right changes nothing."""
    yield from _padding(probe, length, left=False)


def _padding(probe: Probe, length: int, left: bool) -> Iterator[Case]:
    ids = probe.ids(length)
    alone = probe.subject.logits(ids)
    for count in sorted({min(n, probe.room(length)) for n in (1, 3, length)} - {0}):
        padded, mask = pad(ids, count * left, count * (not left))
        out = probe.subject.logits(padded, mask)
        if probe.subject.aligned:
            out = out[:, count * left :][:, :length]
        what = f"padding of {count} on the {'left' if left else 'right'}"
        yield probe.same(what, out, alone, padded)


def packing(probe: Probe, length: int) -> Iterator[Case]:
    """Two sequences packed into one row, with position ids that restart, give the logits of each
    alone: with a mask that separates them, or without one in models that find sequences by their
    position ids."""
    subject = probe.subject
    if not (subject.takes_position_ids and subject.aligned):
        raise UnsupportedError("it takes no position_ids")
    parts = probe.ids(length), probe.ids(max(2, length // 2), seed=1)
    if parts[1].shape[1] > probe.room(length):
        return
    row = torch.cat(parts, dim=1)
    pos = torch.cat([torch.arange(part.shape[1]) for part in parts]).unsqueeze(0)
    alone = torch.cat([subject.logits(part) for part in parts], dim=1)
    try:
        out = _or_refused(partial(subject.logits, row, None, pos))
        by_ids = probe.same("position ids alone", out, alone, row)
        if not (by_ids.fails and subject.takes_mask):
            yield by_ids
            return
    except RefusedError:  # such as xPos, for which later positions may not be seen
        if not subject.takes_mask:
            raise

    def masked(ids: Tensor, pos: Tensor, allowed: Tensor) -> Tensor:
        allowed = allowed if probe.sees_ahead else allowed.tril()
        mask = torch.zeros(allowed.shape, dtype=alone.dtype)
        mask.masked_fill_(~allowed, torch.finfo(alone.dtype).min)
        return subject.logits(ids, mask[None, None], pos)

    # No row has this many tokens. A mask of 4 tokens may fit 4 heads by accident.
    other = min(11, subject.limit or 11)
    everything = torch.ones(other, other, dtype=torch.bool)
    is_second = torch.arange(row.shape[1]) >= length
    try:
        masked(probe.ids(other), torch.arange(other).unsqueeze(0), everything)
        out = masked(row, pos, is_second[:, None] == is_second)
    except Exception as error:
        raise UnsupportedError(
            "it does not find sequences by position_ids, and refuses a mask (1, 1, T, T):"
            f" {line(error)}"
        ) from error
    yield probe.same("position ids, and a mask that keeps the two apart", out, alone, row)


def batch_mates(probe: Probe, length: int) -> Iterator[Case]:
    """The other rows of a batch change nothing, whether they are equally long or longer."""
    subject, batch = probe.subject, probe.ids(length, rows=2)
    alone = subject.logits(batch[:1])
    yield probe.same("a neighbour as long", subject.logits(batch)[:1], alone, batch)
    if subject.takes_cache:
        out = probe.pieces(batch, (length - 1, 1))[:1]
        yield probe.same("a neighbour as long, with a cache", out, alone, batch)
    if subject.takes_mask and probe.room(length) >= 2:
        short, mask = pad(batch[:1], 0, 2)
        batch = torch.cat((short, probe.ids(length + 2, seed=2)))
        out = subject.logits(batch, torch.cat((mask, torch.ones_like(mask))))[:1]
        out = out[:, :length] if subject.aligned else out
        yield probe.same("a longer neighbour", out, alone, batch)


def bfloat16(probe: Probe, length: int) -> Iterator[Case]:
    """The error in bfloat16 is no larger than its rounding explains, with the experts that a
    mixture of experts chooses in float.

    bfloat16 has no odd numbers above 256. Positions that were rounded to it show in the direction
    of the error, even if the error is small: its cosine with the change that rounded positions
    cause.
    """
    subject, ids, choices = probe.subject, probe.ids(length), Choices()
    wanted = choices.run(subject.logits, ids)
    try:
        lower, allowed = probe.in_bf16
        out = choices.run(lower.logits, ids)
    except Exception as error:
        raise UnsupportedError(f"it does not run in bfloat16: {line(error)}") from error
    yield Case("bfloat16 and float", difference(out, wanted), allowed, ids)
    if length > 256 and subject.takes_position_ids and subject.aligned:
        try:
            pos = torch.arange(length).to(torch.bfloat16).long()
            rounded = choices.run(probe.at, ids, pos)
        except UnsupportedError:
            return
        off, change = (x.double()[:, 256:] - wanted[:, 256:] for x in (out, rounded))
        cosine = float((off * change).sum() / (off.norm() * change.norm()).clamp(min=1e-30))
        yield Case("error, and what positions in bfloat16 change: cosine", cosine, 0.25, ids)


def shift(probe: Probe, length: int) -> Iterator[Case]:
    """Adding one number to all positions changes nothing if the positions are relative, and
    something if they are absolute."""
    subject, ids, room = probe.subject, probe.ids(length), probe.room(length)
    _require_claim(subject)
    base = probe.shifted(ids, 0)
    is_absolute = subject.claim == "absolute"
    for by in (1, 5) if is_absolute or length > 34 else (1, 5, 64, 300, 1001):
        if by > room:
            return
        what, out = f"positions from {by} on", probe.shifted(ids, by)
        case = Case(what, difference(out, base), _allowed(probe, by), ids, must_differ=is_absolute)
        if not subject.takes_position_ids and subject.claim != "none":
            unmoved = case.fails if is_absolute else not _sees_gap(probe, ids)
            if unmoved:
                raise UnsupportedError(FOLLOWS_MASK)
        yield case


def beyond(probe: Probe, length: int) -> Iterator[Case]:
    """Beyond the table or the trained length, the model raises an error or works as before.

    This finds tables that are read modulo their length, and tables whose last row serves all
    further positions. Decoding with a cache must still equal one full pass.
    """
    subject, limit = probe.subject, probe.subject.limit
    if length != probe.lengths[0]:
        return
    if limit is None:
        raise UnsupportedError("neither a table nor a trained length is known")
    if limit > TESTABLE and not subject.takes_position_ids:
        raise UnsupportedError(f"{limit} positions are too many to test")
    if limit <= TESTABLE:
        ids = probe.ids(limit + 5)
        cuts = ((limit + 1, 1, 1, 2), (limit - 1, 1, 1, 1, 3)) if subject.takes_cache else ()
        full = _or_refused(partial(subject.logits, ids))
        yield probe.same("beyond the limit", full, full, ids)
        for sizes in cuts:
            out = probe.pieces(ids, sizes)
            yield probe.same(f"with a cache, in pieces of {sizes}", out, full, ids)
    # Positions beyond the table: other ones for a model that sees a shift, else the same.
    ids, start = probe.ids(4), limit + 1
    first, second = probe.shifted(ids, 0), probe.shifted(ids, 1)
    after, further = (_or_refused(partial(probe.shifted, ids, start + n)) for n in (0, 1))
    what = f"positions from {start}"
    if subject.claim in ("relative", "none"):
        yield Case(f"{what} and from 0 on", difference(after, first), _allowed(probe, start), ids)
        return
    if difference(first, second) <= probe.allowed:
        _require_claim(subject)
        no_effect = "its position_ids have no effect"
        raise UnsupportedError(no_effect if subject.takes_position_ids else FOLLOWS_MASK)
    yield probe.differ(f"{what} and from {start + 1} on", after, further, ids)
    yield probe.differ(f"{what} and from 1 on", after, second, ids)


def effect(probe: Probe, length: int) -> Iterator[Case]:
    """Positions have an effect: other position ids give other logits, or another order of the
    tokens does if the model takes no ids. A model that claims no positions must show none."""
    subject, ids = probe.subject, probe.ids(length)
    if length != max(n for n in probe.lengths if n <= 10):
        return
    if any(isinstance(part, Coupled) for part in subject.model.modules()):
        raise UnsupportedError("its position ids order some tokens only, which are not known")
    compare = probe.same if subject.claim == "none" else probe.differ
    plain = subject.logits(ids)[:, -1]
    if subject.takes_position_ids and probe.room(2 * length) >= 0:
        with suppress(UnsupportedError):
            out = probe.at(ids, 2 * torch.arange(length))[:, -1]
            yield compare("position ids twice as far apart", out, plain, ids)
            return
    if subject.claim == "none" and not probe.sees_ahead:
        raise UnsupportedError(CAUSAL)
    swapped = torch.cat((ids[:, 1:2], ids[:, :1], ids[:, 2:]), dim=1)
    yield compare("the first two tokens swapped", subject.logits(swapped)[:, -1], plain, ids)
    if probe.sees_ahead:
        return
    # A causal mask gives an order without positions, but then one token repeated gives the same
    # logits everywhere, and neither padding in a gap nor a shift changes anything.
    repeated = ids[:, :1].expand_as(ids)
    out = subject.logits(repeated)
    case = probe.differ("one token repeated, last and first", out[:, -1], out[:, 0], repeated)
    if not case.fails or _sees_gap(probe, ids):
        return
    is_shiftable = subject.takes_mask or subject.takes_position_ids
    if subject.claim != "absolute" or not is_shiftable:
        raise UnsupportedError(CAUSAL)
    if probe.room(ids.shape[1]) < 1:
        return
    yield probe.differ("positions from 1 on", probe.shifted(ids, 1), probe.shifted(ids, 0), ids)


def _sees_gap(probe: Probe, ids: Tensor) -> bool:
    """Return whether padding between tokens changes the logits. It does not if positions follow the
    mask, or if there are none."""
    subject = probe.subject
    if not subject.takes_mask:
        return False
    gap, half = min(3, probe.room(ids.shape[1])), ids.shape[1] // 2
    wide = torch.cat((ids[:, :half], ids[:, :1].repeat(1, gap), ids[:, half:]), dim=1)
    mask = torch.ones_like(wide)
    mask[:, half : half + gap] = 0
    return difference(subject.logits(wide, mask)[:, -1], subject.logits(ids)[:, -1]) > probe.allowed


def _allowed(probe: Probe, by: int) -> float:
    """Return what relative positions may differ after a shift: in float32, an angle at position p
    is off by p · 2^-24. Absolute ones must differ by more than is allowed elsewhere."""
    return probe.allowed * (1 if probe.subject.claim == "absolute" else max(1, by / 8))


def _require_claim(subject: Subject) -> None:
    if subject.claim is None:
        raise UnsupportedError(
            "its claim is not known; give --positions absolute, relative or none"
        )


def _or_refused(compute: Callable[[], Tensor]) -> Tensor:
    try:
        return compute()
    except UnsupportedError:
        raise
    except Exception as error:
        raise RefusedError(line(error)) from error
