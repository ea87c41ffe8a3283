"""By which angles the queries and keys of each layer rotate, and what the configuration says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.measure import rotate_by_zero
from shapeshift.positions import Rotary
from shapeshift.positions.released import BY_LENGTH
from shapeshift.positions.rope_config import NoPositionsError

from .adapter import UnsupportedError
from .comparison import Comparison, Reading, shortened, spans
from .rotation import MixedError, Rotation, measure_rotation, pairing
from .watch import Call, Watch

FURTHEST = 8191
"""The furthest position that is measured."""

UNREAD = "which layers of this model_type rotate is not known here"


@dataclass
class _Declared:
    """What a configuration says of the rotation of a layer; `rotary` is None if it does not rotate
    or, with a reason `why`, if that is not known. `knows_pairs` is false for a `model_type` whose
    pairs and layers without positions are not known."""

    rotary: Rotary | None = None
    why: str = ""
    knows_pairs: bool = True


def read_rotations(it: Comparison) -> Iterator[Reading]:
    """Yield what the rotations of all layers are; nothing if no layer rotates or should."""
    limit = it.subject.limit
    last = min((limit or FURTHEST + 1) - 1, FURTHEST)
    rotaries = [_declared(it, layer, None).rotary for layer in it.scores]
    stated = [x.rope_parameters or {} for x in rotaries if x is not None]
    by_length = [x for x in stated if x["rope_type"] in BY_LENGTH]
    if not by_length:
        yield from _pass(it, "", last, None)
        return
    original = min(x["original_max_position_embeddings"] for x in by_length)
    yield from _pass(it, "", min(last, original - 1), None)
    if (limit or 0) > original and by_length[0]["rope_type"] == "longrope":
        yield from _pass(it, f", beyond {original} tokens", max(last, original), original + 1)


def _pass(it: Comparison, where: str, last: int, length: int | None) -> Iterator[Reading]:
    pos = _positions(it, last)
    first = it.watch(pos, 1)
    shapes = [call.query.shape for call in first.calls.values() if call.query is not None]
    rows = max((2 * x[3] // x[1] + 2 for x in shapes), default=1)
    turning, still = _twice(it, pos, rows)
    by_head: tuple[Watch, Watch | None] | None = None
    axes: list[Watch] = []
    for layer, call in sorted(turning.calls.items()):
        said = _declared(it, layer, length)
        if call.query is not None and not call.query.isfinite().all():
            yield it.agree("θ" + where, layer, "heads that are not finite", "", False)
            continue
        rotates = bool(turning.rotary) or said.rotary is not None
        try:
            unmoved = still.calls.get(layer) if still else None
            rotation = measure_rotation(call, unmoved, pos)
            readings = [*_compare(it, layer, rotation, said)]
            if said.rotary is not None and said.rotary.num_axes > 1 and it.can_jump:
                if not axes:
                    alone = torch.eye(said.rotary.num_axes, dtype=pos.dtype)
                    axes = [it.watch(axis[:, None] * pos, rows) for axis in alone]
                readings.append(_compare_axes(it, layer, rotation, said.rotary, axes, unmoved))
        except UnsupportedError as why:
            readings = []
            if rotates and isinstance(why, MixedError):
                by_head = by_head or _twice(it, pos, max(x[3] for x in shapes) + 2)
                readings = _by_head(it, layer, pos, said, *by_head)
            if rotates and not readings:
                readings = [it.reading("θ", layer, str(why), "", "not measured")]
        yield from (replace(reading, property=reading.property + where) for reading in readings)


def _compare_axes(
    it: Comparison,
    layer: int,
    rotation: Rotation,
    rotary: Rotary,
    axes: list[Watch],
    still: Call | None,
) -> Reading:
    """Return which axis of the positions rotates which pairs of channels; `axes` is what attentions
    compute with these positions on one axis, and 0 on the others."""
    pairs = rotation.pairs.tolist()
    measured = []
    for turning in axes:
        turned = measure_rotation(turning.calls[layer], still, rotation.pos).pairs.tolist()
        measured.append([n for n, pair in enumerate(pairs) if pair in turned])
    theta = rotary.frequencies().cpu()
    seen = (theta != 0).nonzero().flatten()[: len(pairs)]
    stated = [row.nonzero().flatten().tolist() for row in rotary.by_axis(theta)[:, seen]]
    does, says = (
        "; ".join(f"{n}: {spans(x)}" for n, x in enumerate(by)) for by in (measured, stated)
    )
    return it.agree("pairs of each axis", layer, does, says, measured == stated)


def _twice(it: Comparison, pos: Tensor, rows: int) -> tuple[Watch, Watch | None]:
    """Return what attentions compute, and the same without rotations, if a module rotates."""
    turning = it.watch(pos, rows)
    if not turning.rotary:
        return turning, None
    with ExitStack() as hooks:
        for part in turning.rotary:
            hooks.enter_context(part.register_forward_hook(rotate_by_zero))
        return turning, it.watch(pos, rows)


def _by_head(
    it: Comparison, layer: int, pos: Tensor, said: _Declared, turning: Watch, still: Watch | None
) -> list[Reading]:
    """Return what the heads of a layer do, if these differ; nothing if some of them
    cannot be measured."""
    call = turning.calls[layer]
    assert call.query is not None
    before = None if still is None else still.calls.get(layer)
    groups: dict[tuple[Reading, ...], list[int]] = {}
    try:
        for head in range(call.query.shape[1]):
            rotation = measure_rotation(call, before, pos, head)
            groups.setdefault(tuple(_compare(it, layer, rotation, said)), []).append(head)
    except UnsupportedError:
        return []
    return [
        replace(reading, property=f"{reading.property}, heads {spans(heads)}")
        for readings, heads in groups.items()
        for reading in readings
    ]


def _compare(it: Comparison, layer: int, rotation: Rotation, said: _Declared) -> Iterator[Reading]:
    def compare(name: str, measured: str, stated: str, agrees: bool) -> Reading:
        if not said.why:
            return it.agree(name, layer, measured, stated, agrees)
        return it.reading(name, layer, measured, said.why * (name == "θ"), "not declared")

    num, rotary = len(rotation.pairs), said.rotary
    if rotation.keys_differ is not None:
        measured = f"other than queries from position {rotation.keys_differ}"
        yield compare("keys", measured, "as queries", False)
    theta = torch.zeros(0) if rotary is None else rotary.frequencies().cpu()
    theta = theta[theta != 0].double()
    visible = int((theta * rotation.pos.max() > 20 * rotation.noise).sum())
    same = visible <= num <= len(theta)
    measured = str(2 * num)
    if same and num < len(theta):
        measured += ", others are too slow to see"
    if not num and rotation.head is None and (said.why or not said.knows_pairs):
        if rotary is not None:
            yield it.reading("rotated channels", layer, measured, UNREAD, "not declared")
        return
    yield compare("rotated channels", measured, str(2 * len(theta)), same)
    if not num or (rotary is None and not said.why):
        return
    theta = theta[:num] if same else theta
    wrong = rotation.differs(theta) if same else None
    measured = spell(rotation.theta)
    if wrong is not None:
        measured += f"; from position {wrong[0]}"
    reading = compare("θ", measured, spell(theta), same and wrong is None)
    yield replace(reading, values=tuple(rotation.theta.tolist()) if said.why else ())
    uneven = rotation.differs(rotation.theta)
    angles = "position · θ"
    if uneven is not None:
        angles = f"off by {uneven[1]:.2g} from position {uneven[0]}"
    yield compare("angles", angles, "position · θ", uneven is None)
    if rotary is None or not said.knows_pairs:
        yield it.reading("pairing", layer, rotation.pairing, "", "not declared")
    else:
        pairs = pairing(1 if rotary.pairs == "interleaved" else rotary.width // 2)
        yield it.agree("pairing", layer, rotation.pairing, pairs, rotation.pairing == pairs)
    stated = 1.0 if rotary is None else rotary.attention_factor
    if rotation.factor is not None:
        near = math.isclose(rotation.factor, stated, rel_tol=rotation.noise)
        yield compare("attention factor", f"{rotation.factor:.6g}", f"{stated:.6g}", near)
    elif not said.why:
        why = "no module returns cosines and sines"
        yield it.reading("attention factor", layer, why, f"{stated:.6g}", "not measured")


def _declared(it: Comparison, layer: int, length: int | None) -> _Declared:
    """Return the rotation that the configuration declares, for sequences up to `length` tokens, by
    default those in training."""
    if it.config is None:
        return _Declared(why="there is no configuration")
    given = it.given
    number = layer if given.keys() & {"num_hidden_layers", "n_layer", "layer_types"} else None
    errors: list[ShapeshiftError] = []
    # A type whose θ depends on the length needs one, others refuse it.
    if length is None:
        parameters = given.get("rope_parameters") or given.get("rope_scaling") or {}
        sources = (parameters, "original_"), (given, "original_"), (given, "")
        named = [x.get(f"{start}max_position_embeddings") for x, start in sources]
        length = next((n for n in named if n), None)
    for pairs in (None, "halves"):
        for tokens in (None, length):
            try:
                rotary = Rotary.from_config(it.config, number, length=tokens, pairs=pairs)
            except NoPositionsError:
                return _Declared()
            except ShapeshiftError as error:
                errors.append(error)
            else:
                return _Declared(rotary, knows_pairs=pairs is None)
    return _Declared(why=str(errors[0]))


def _positions(it: Comparison, last: int) -> Tensor:
    """Return the positions to measure, `(T,)`, T odd: 0 to 3, powers of two, and some others, as
    powers of two are exact in every type. All up to 64 if the model counts by itself."""
    if not it.can_jump:
        return torch.arange(min(last, 64) // 2 * 2 + 1)
    some = {0, 1, 2, 3, 5, 257, 4001, last, *(2**n for n in range(14))}
    pos = sorted(n for n in some if n <= last)
    if len(pos) % 2 == 0 and last >= 7:
        pos = sorted({*pos, next(n for n in range(6, last) if n not in pos)})
    return torch.tensor(pos)


def spell(theta: Tensor) -> str:
    """Return θ in words: their base if they have one, else the first three and the last."""
    num = len(theta)
    if num > 1 and (theta > 0).all():
        base = float((theta[0] / theta[-1]) ** (num / (num - 1)))
        expected = base ** (-torch.arange(num, dtype=theta.dtype) / num)
        if torch.allclose(theta, expected, rtol=1e-3, atol=0):
            return f"base {float(f'{base:.5g}'):.6g}"  # float32 has hardly more digits
    return shortened(theta)
