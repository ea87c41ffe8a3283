"""What a model does with positions, layer by layer, and what its configuration says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.families import family_of, find
from shapeshift.interop.swap import ENTRY
from shapeshift.positions import T5, ALiBi, Rotary
from shapeshift.positions.released import BY_LENGTH
from shapeshift.positions.rope_config import NoPositionsError

from .adapter import Side, Subject, UnsupportedError, subjects
from .probe import in_double, line
from .rotation import Rotation, measure_rotation, pairing
from .watch import MASKED, Watch, silent

FURTHEST = 8191
"""The furthest position that is measured."""

LONGEST = 4100
"""Tokens of the longest sequence, for windows."""

UNREAD = "which layers of this model_type rotate is not known here"

UNKNOWN = -1
"""A window that is not read here."""

BIAS_PRECISION = 2.0**-7
"""Part of a bias by which it may be off: Falcon computes its slopes in bfloat16."""

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
        parts: list[list[int]] = []
        for n in self.layers:
            if parts and parts[-1][-1] == n - 1:
                parts[-1].append(n)
            else:
                parts.append([n])
        spans = [f"{x[0]}-{x[-1]}" if len(x) > 1 else str(x[0]) for x in parts]
        return f"{self.side} {', '.join(spans)}".strip()


def declared(model: nn.Module, config: Any = None) -> list[Reading]:
    """Measure what a model does with positions, and compare it with its configuration.

        for reading in declared(AutoModelForCausalLM.from_pretrained("gpt2")):
            print(reading.property, reading.layers, reading.measured, reading.outcome)

    A copy of the model runs on the CPU, in float64 if it can, with rows of one repeated token, of
    which only positions differ. Queries and keys are recorded where PyTorch multiplies them, scores
    and masks where they reach a softmax, and no token attends to another one. θ comes from the
    angles at positions 1, 2, 4, 8, …, the attention factor from a second pass in which the rotary
    embeddings rotate by zero. Beyond position 8,191, and beyond the model's own limit, nothing is
    measured.

    The declared rotation is that of `Rotary.from_config`.

    Args:
        model: as for `check`.
        config: a configuration of transformers or its dictionary; by default that of the model.
            A model without one is measured only.

    Returns:
        Readings; layers with the same result share one.

    Raises:
        ShapeshiftError: as for `check`.
    """
    given = getattr(model, "config", None) if config is None else config
    if not (given is None or isinstance(given, Mapping) or hasattr(given, "to_dict")):
        raise ShapeshiftError(
            "config must be a configuration of transformers or its dictionary, got"
            f" {type(given).__name__}"
        )
    text = getattr(given, "get_text_config", None)
    given = text() if callable(text) else given
    with torch.inference_mode():
        sides = [read(in_double(subject), given) for subject in subjects(model)]
    return grouped([reading for side in sides for reading in side])


def read(subject: Subject, config: Any, num_tokens: int = 70) -> list[Reading]:
    """Return readings of each layer of one side.

    Args:
        config: as for `declared`, or None: there is none.
        num_tokens: in which windows show, besides that of the configuration.
    """
    found: list[Reading] = []
    why = "neither its attention nor a known table is reached"
    try:
        found.extend(_Comparison(subject, config, num_tokens).read())
    except UnsupportedError as error:  # the model fails for such an input
        why = str(error)
    return found or [Reading("positions", subject.side, (), why, "", "not measured")]


@dataclass
class _Declared:
    """What a configuration says of the rotation of a layer; `rotary` is None if it does not rotate
    or, with a reason `why`, if that is not known. `knows_pairs` is false for a `model_type` whose
    pairs and layers without positions are not known."""

    rotary: Rotary | None = None
    why: str = ""
    knows_pairs: bool = True


class _Comparison:
    """A subject and a configuration; `read` yields what they say."""

    def __init__(self, subject: Subject, config: Any, num_tokens: int):
        self.subject, self.model, self.config = subject, subject.model, config
        as_dict = getattr(config, "to_dict", None)
        self.given: dict[str, Any] = as_dict() if as_dict else dict(config or {})
        if ENTRY in self.given:  # `use_position` has replaced what the rest of it declares
            self.config, self.given = None, {}
        self.tables = [*find(self.model)]
        self.scores = self._watch(torch.arange(self._length(num_tokens)), 2, with_ids=False).calls
        self.side = subject.side
        for call in self.scores.values():
            if call.scores is not None and call.scores[0, 0, 0, -1] > MASKED:
                self.side = "encoder"

    def _length(self, num_tokens: int) -> int:
        """Return an odd number of tokens in which a window shows."""
        window = self.given.get("sliding_window") or self.given.get("window_size") or 0
        length = min(
            max(window + 2, num_tokens) if isinstance(window, int) else num_tokens, LONGEST
        )
        room = self.subject.limit if self.tables else None
        length += 1 - length % 2
        return length if room is None or length <= room else room - 1 + room % 2

    def read(self) -> Iterator[Reading]:
        rotations = [*self._rotations()]
        yield from rotations
        if self.side != self.subject.side and self._is_causal():
            yield self._agree("mask", None, "tokens see later ones", "causal", False)
        rotates = any(reading.property == "θ" for reading in rotations)
        for layer, call in sorted(self.scores.items()):
            if call.scores is None:
                continue
            scores = call.scores.double()
            seen = scores[0, 0] > MASKED  # (2, T)
            window = self._window(layer)
            if self.side == "decoder" and window != UNKNOWN:
                yield self._read_window(layer, seen[1], window)
            if not self.tables and (call.is_mask or not rotates):
                yield from self._bias(layer, scores, seen)
        if self.subject.side == "decoder":
            yield from self._read_tables()

    # Rotations

    def _rotations(self) -> Iterator[Reading]:
        """Yield what the rotations of all layers are; nothing if no layer rotates or should."""
        limit = self.subject.limit
        last = min((limit or FURTHEST + 1) - 1, FURTHEST)
        rotaries = [self._rotary(layer, None).rotary for layer in self.scores]
        stated = [x.rope_parameters or {} for x in rotaries if x is not None]
        by_length = [x for x in stated if x["rope_type"] in BY_LENGTH]
        if not by_length:
            yield from self._pass("", last, None)
            return
        original = min(x["original_max_position_embeddings"] for x in by_length)
        yield from self._pass("", min(last, original - 1), None)
        if (limit or 0) > original and by_length[0]["rope_type"] == "longrope":
            yield from self._pass(f", beyond {original} tokens", max(last, original), original + 1)

    def _pass(self, where: str, last: int, length: int | None) -> Iterator[Reading]:
        pos = _positions(self.subject, last)
        first = self._watch(pos, 1)
        shapes = [call.query.shape for call in first.calls.values() if call.query is not None]
        rows = max((2 * shape[3] // shape[1] + 2 for shape in shapes), default=1)
        turning = self._watch(pos, rows)
        still: Watch | None = None
        if turning.rotary:
            with silent(turning.rotary):
                still = self._watch(pos, rows)
        for layer, call in sorted(turning.calls.items()):
            said = self._rotary(layer, length)
            if call.query is not None and not call.query.isfinite().all():
                yield self._agree("θ" + where, layer, "heads that are not finite", "", False)
                continue
            try:
                rotation = measure_rotation(call, still.calls.get(layer) if still else None, pos)
            except UnsupportedError as why:
                if turning.rotary or said.rotary is not None:
                    yield self._reading("θ" + where, layer, str(why), "", "not measured")
                continue
            for reading in self._compare(layer, rotation, said):
                yield replace(reading, property=reading.property + where)

    def _compare(self, layer: int, rotation: Rotation, said: _Declared) -> Iterator[Reading]:
        num, rotary = len(rotation.pairs), said.rotary
        uneven = rotation.differs(rotation.theta)
        angles = "position · θ"
        if uneven is not None:
            angles = f"off by {uneven[1]:.2g} from position {uneven[0]}"
        if said.why:
            values = {
                "rotated channels": str(2 * num),
                "θ": spell(rotation.theta),
                "angles": angles,
                "pairing": rotation.pairing if num else "",
                "attention factor": "" if rotation.factor is None else f"{rotation.factor:.6g}",
            }
            for name, value in values.items():
                if num and value:
                    why = said.why if name == "θ" else ""
                    found = self._reading(name, layer, value, why, "not declared")
                    numbers = rotation.theta.flatten().tolist() if name == "θ" else ()
                    yield replace(found, values=tuple(numbers))
            return
        theta = torch.zeros(0) if rotary is None else rotary.frequencies().cpu()
        theta = theta[theta != 0].double()
        visible = int((theta * rotation.pos.max() > 20 * rotation.noise).sum())
        same = visible <= num <= len(theta)
        measured, stated = str(2 * num), str(2 * len(theta))
        if same and num < len(theta):
            measured += ", others are too slow to see"
        if not num and rotary is not None and not said.knows_pairs:
            yield self._reading("rotated channels", layer, measured, UNREAD, "not declared")
            return
        yield self._agree("rotated channels", layer, measured, stated, same)
        if not num or rotary is None:
            return
        theta = theta[:num] if same else theta
        wrong = rotation.differs(theta) if same else None
        measured = spell(rotation.theta)
        if wrong is not None:
            measured += f"; from position {wrong[0]}"
        yield self._agree("θ", layer, measured, spell(theta), same and wrong is None)
        yield self._agree("angles", layer, angles, "position · θ", uneven is None)
        if rotation.keys_differ is not None:
            measured = f"other than queries from position {rotation.keys_differ}"
            yield self._agree("keys", layer, measured, "as queries", False)
        if not said.knows_pairs:
            yield self._reading("pairing", layer, rotation.pairing, "", "not declared")
        else:
            pairs = pairing(1 if rotary.pairs == "interleaved" else rotary.width // 2)
            yield self._agree("pairing", layer, rotation.pairing, pairs, rotation.pairing == pairs)
        name, stated = "attention factor", f"{rotary.attention_factor:.6g}"
        if rotation.factor is None:
            why = "no module returns cosines and sines"
            yield self._reading(name, layer, why, stated, "not measured")
        else:
            near = math.isclose(rotation.factor, rotary.attention_factor, rel_tol=rotation.noise)
            yield self._agree(name, layer, f"{rotation.factor:.6g}", stated, near)

    def _rotary(self, layer: int, length: int | None) -> _Declared:
        """Return the rotation that the configuration declares, for sequences up to `length`
        tokens, by default those in training."""
        if self.config is None:
            return _Declared(why="there is no configuration")
        counts = {"num_hidden_layers", "n_layer", "layer_types"}
        number = layer if self.given.keys() & counts else None
        errors: list[ShapeshiftError] = []
        # A type whose θ depends on the length needs one, others refuse it.
        if length is None:
            parameters = self.given.get("rope_parameters") or self.given.get("rope_scaling") or {}
            sources = (parameters, "original_"), (self.given, "original_"), (self.given, "")
            named = [x.get(f"{start}max_position_embeddings") for x, start in sources]
            length = next((n for n in named if n), None)
        for pairs in (None, "halves"):
            for tokens in (None, length):
                try:
                    rotary = Rotary.from_config(self.config, number, length=tokens, pairs=pairs)
                except NoPositionsError:
                    return _Declared()
                except ShapeshiftError as error:
                    errors.append(error)
                else:
                    return _Declared(rotary, knows_pairs=pairs is None)
        return _Declared(why=str(errors[0]))

    def _is_causal(self) -> bool:
        """Return whether the class and the configuration say that no token sees later ones."""
        switches = self.given.get("is_decoder", True), self.given.get("is_causal", True)
        is_causal = all(switches) and not self.given.get("use_bidirectional_attention")
        return is_causal and type(self.model).__name__.endswith("ForCausalLM")

    # Windows and biases

    def _read_window(self, layer: int, seen: Tensor, window: int | None) -> Reading:
        first, length = int(seen.int().argmax()), len(seen)
        measured = f"{length - first} tokens" if first else "none"
        if self.given and not first:
            measured += f" in {length} tokens"
        stated = "none" if window is None else f"{window} tokens"
        if window is not None and window >= length:
            why = f"it is longer than the {length} tokens of the test"
            return self._reading("window", layer, why, stated, "not measured")
        if not self.given:
            return self._reading("window", layer, measured, "", "not declared")
        size = length - first if first else None
        return self._agree("window", layer, measured, stated, size == window)

    def _window(self, layer: int) -> int | None:
        """Return how many tokens a query sees, itself included; None for all."""
        given = self.given
        types = given.get("layer_types") or given.get("attention_layers")
        kind = types[layer] if types and layer < len(types) else None
        size = given.get("sliding_window") if kind != "local" else given.get("window_size")
        if kind in ("full_attention", "global") or given.get("use_sliding_window") is False:
            return None
        if kind not in (None, "sliding_attention", "local"):
            return UNKNOWN
        return size if isinstance(size, int) else None

    def _bias(self, layer: int, scores: Tensor, seen: Tensor) -> Iterator[Reading]:
        """Yield what is added to scores at each distance from the middle and the last token."""
        length = scores.shape[-1]
        which, at = (0, length // 2) if self.side == "encoder" else (1, length - 1)
        row, visible = scores[:, :, which], seen[which]
        distances = (torch.arange(length) - at)[visible]
        bias = row[..., visible] - row[..., [at]]  # (B, H, visible)
        if not torch.allclose(bias[:1], bias, atol=max(1e-5, 1e-4 * float(bias.abs().max()))):
            yield self._reading("bias", layer, "it depends on tokens", "", "not measured")
            return
        bias = bias[0]
        stated = self._stated_bias(distances)
        if stated is None:
            if bias.abs().max() > 1e-4:
                spelled = _spell_bias(bias, distances)
                found = self._reading("bias", layer, spelled, "", "not declared")
                yield replace(found, values=tuple(bias.flatten().tolist()))
            return
        stated = (stated - stated[:, distances == 0]).expand(max(len(stated), len(bias)), -1)
        off = (bias - stated).abs() > 1e-5 + BIAS_PRECISION * stated.abs()
        wrong = distances[off.any(0)]
        measured = _spell_bias(bias, distances)
        if len(wrong):
            measured += f"; from distance {int(wrong.abs().min())}"
        yield self._agree("bias", layer, measured, _spell_bias(stated, distances), not len(wrong))

    def _stated_bias(self, distances: Tensor) -> Tensor | None:
        """Return the declared numbers `(H, distances)`: of ALiBi, or of the buckets of T5."""
        given, attn = self.given, self.given.get("attn_config") or {}
        model_type = given.get("model_type")
        if model_type == "bloom" or given.get("alibi") or attn.get("alibi"):
            names = ("num_attention_heads", "n_head", "n_heads")
            num_heads = next(given[name] for name in names if given.get(name))
            bias = ALiBi(num_heads=num_heads).distance_bias(distances, torch.float64)
            if model_type == "falcon":  # multiplies them with the scores by 1 / sqrt(E)
                bias = bias * (given["hidden_size"] // num_heads) ** -0.5
            return bias
        side = f"{self.side}."
        weights = [
            part.weight
            for name, part in self.model.named_modules()
            if name.endswith("relative_attention_bias") and side in name
        ]
        if not weights or "relative_attention_max_distance" not in given:
            return None
        t5 = T5(
            dim=1,
            num_heads=weights[0].shape[1],
            num_buckets=given["relative_attention_num_buckets"],
            max_distance=given["relative_attention_max_distance"],
            causal=self.side == "decoder",
        )
        t5.weight.data = weights[0].detach().double()
        return t5.distance_bias(distances, torch.float64)

    # Tables

    def _read_tables(self) -> Iterator[Reading]:
        rows: dict[str, Tensor] = {}
        handles = []
        for name in self.tables:

            def hook(part: nn.Module, args: Any, out: Tensor, name: str = name) -> None:
                rows.setdefault(name, out.reshape(-1, out.shape[-1])[0])

            handles.append(self.model.get_submodule(name).register_forward_hook(hook))
        try:
            self.subject.logits(self.subject.usable_ids[None, :2])
        finally:
            for handle in handles:
                handle.remove()
        for name in self.tables:
            part = self.model.get_submodule(name)
            family, what = family_of(part), f"row of the first token, {name}"
            table = family.table_of(part)
            if name not in rows or table is None:
                why = "no table is read" if name in rows else "it is not used"
                yield self._reading(what, None, why, "", "not measured")
                continue
            off = (table.double() - rows[name].double()).abs().amax(1)
            row = str(int(off.argmin())) if off.min() < 1e-6 else "none of the table's"
            stated = str(family.first(part))
            yield self._agree(what, None, row, stated, row == stated)

    # What both need

    def _watch(self, pos: Tensor, rows: int, with_ids: bool = True) -> Watch:
        usable = self.subject.usable_ids
        ids = usable[:rows, None].expand(-1, len(pos))
        at = pos.expand_as(ids) if with_ids and _can_jump(self.subject) else None
        try:
            return Watch(len(pos)).run(self.model, lambda: self.subject.logits(ids, None, at))
        except ShapeshiftError:
            raise
        except Exception as error:
            raise UnsupportedError(line(error)) from error

    def _reading(
        self, name: str, layer: int | None, measured: str, stated: str, outcome: Outcome
    ) -> Reading:
        layers = () if layer is None else (layer,)
        return Reading(name, self.side, layers, measured, stated, outcome)

    def _agree(
        self, name: str, layer: int | None, measured: str, stated: str, agrees: bool
    ) -> Reading:
        return self._reading(name, layer, measured, stated, "agrees" if agrees else "DIFFERS")


def _can_jump(subject: Subject) -> bool:
    """Return whether a model takes any `position_ids`; ours count, from any start."""
    return subject.takes_position_ids and not isinstance(subject.model, Side)


def _positions(subject: Subject, last: int) -> Tensor:
    """Return the positions to measure, `(T,)`, T odd: 0 to 3, powers of two, and some others, as
    powers of two are exact in every type. All up to 64 if the model counts by itself."""
    if not _can_jump(subject):
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
    shown = [f"{x:.4g}" for x in theta.tolist()]
    return ", ".join(shown if num <= 4 else [*shown[:3], "…", shown[-1]])


def _spell_bias(bias: Tensor, distances: Tensor) -> str:
    """Return the slopes of a bias `(H, distances)` if it has slopes, else the first numbers of its
    first head."""
    near = distances.abs().argsort(stable=True)
    slopes = -bias[:, near[1]]
    if torch.allclose(bias, -slopes[:, None] * distances.abs(), rtol=2e-2, atol=1e-5):
        shown = [f"{x:.4g}" for x in slopes.tolist()]
        return "slopes " + ", ".join(shown if len(shown) <= 4 else [*shown[:3], "…", shown[-1]])
    shown = [f"{float(bias[0, n]):.3g} at {int(distances[n])}" for n in near[1:4]]
    return f"head 0: {', '.join(shown)}, …"


def grouped(readings: list[Reading]) -> list[Reading]:
    """Join readings of the same property that differ in their layers alone."""
    groups: dict[Reading, list[int]] = {}
    for reading in readings:
        groups.setdefault(replace(reading, layers=()), []).extend(reading.layers)
    joined = [replace(reading, layers=tuple(sorted(layers))) for reading, layers in groups.items()]
    order = list(dict.fromkeys((x.side, x.property) for x in joined))
    return sorted(joined, key=lambda x: order.index((x.side, x.property)))
