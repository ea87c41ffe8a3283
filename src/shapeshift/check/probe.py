"""Inputs for a model, and the tolerance with which its logits are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .adapter import FIXED_LENGTH, WRAP, Subject, UnsupportedError, fixed
from .choices import Choices

LENGTHS = (2, 3, 4, 5, 7, 10, 18, 34, 70, 150, 300)
"""Of the sequences; beyond 256, bfloat16 has no odd numbers."""

SAFETY = 32
"""How many times the noise a difference may be: the computations differ in order and kernels."""

SAFETY_BF16 = 6
"""The same in bfloat16, where outputs of layers are rounded as well. Correct models, of up to 80
layers, need 4.2."""

DOUBLE_UP_TO = 200_000_000
"""Parameters of a model that is checked in float64."""


@dataclass(frozen=True)
class Case:
    """Two computations and how far apart their logits are, in units of the logits' spread.

    Attributes:
        difference: infinite if a logit is no finite number.
        must_differ: whether more than `allowed` is wanted.
    """

    what: str
    difference: float
    allowed: float
    ids: Tensor
    must_differ: bool = False

    @property
    def margin(self) -> float:
        """The difference relative to its limit; above 1, the case fails."""
        if not self.must_differ:
            return self.difference / self.allowed
        is_usable = 0 < self.difference < float("inf")
        return self.allowed / self.difference if is_usable else float("inf")

    @property
    def fails(self) -> bool:
        return not self.margin <= 1  # NaN as well

    def __str__(self) -> str:
        rows, length = self.ids.shape
        size = f"{length} tokens" + (f", {rows} rows" if rows > 1 else "")
        bound = "more than" if self.must_differ else "at most"
        found = f"differ by {self.difference:.1e}, wanted {bound} {self.allowed:.1e}"
        return f"{size}: {self.what}: {found}"


class Probe:
    """A subject with inputs to test it.

    What counts as equal comes from a control: how far logits move if every weight is rounded as
    float32 rounds, relatively at random by up to 2^-24. What counts as different, in float64, comes
    from one of 2^-34: a model that is barely trained hardly uses its positions. Not from one of
    2^-53, as some models compute in float32 between.

    Attributes:
        allowed: the largest difference that counts as equal.
        detectable: a difference above this is not from rounding.
        sees_ahead: whether outputs depend on later tokens, as those of an encoder do.

    Raises:
        ShapeshiftError: the model fails, or does not return logits for each token.
    """

    def __init__(self, subject: Subject, max_length: int):
        self.subject = in_double(subject)
        self.lengths = [n for n in LENGTHS if n <= min(max_length, subject.limit or max_length)]
        self.allowed = self.detectable = self.noise(2**-24)
        if next(self.subject.model.parameters()).dtype is torch.float64:
            self.detectable = self.noise(2**-34)
        self.sees_ahead = not self.subject.aligned or self._sees_ahead()
        if self.sees_ahead:
            self.subject.side = "encoder"
        if self.subject.takes_cache:
            try:
                self.subject.logits(self.ids(2), cache=[])
            except UnsupportedError:
                self.subject.takes_cache = False
            except Exception:  # which the properties report
                pass

    def noise(self, relative: float, safety: int = SAFETY) -> float:
        """Return how far rounding may move logits: `safety` times what they move if every weight is
        changed at random by up to `relative`, with the same choices of experts."""
        disturbed = self.subject.changed(partial(_disturb, relative=relative))
        noise = []
        for length in self.lengths[-3:]:
            ids, choices = self.ids(length), Choices()
            before, after = (choices.run(_logits, x, ids) for x in (self.subject, disturbed))
            noise.append(difference(after, before))
        return max(safety * max(noise), 1e-9)

    def _sees_ahead(self) -> bool:
        ids = self.ids(min(10, self.lengths[-1]))
        changed = torch.cat((ids[:, :-1], ids[:, -2:-1]), dim=1)
        before, again, after = (self.subject.logits(x)[:, :-1] for x in (ids, ids, changed))
        is_repeatable = difference(again, before) <= self.allowed
        return is_repeatable and difference(after, before) > self.allowed

    def room(self, length: int) -> int:
        """Return how many positions are left after `length` tokens."""
        return (self.subject.limit or 10**9) - length

    def ids(self, length: int, rows: int = 1, seed: int = 0) -> Tensor:
        """Return token ids `(rows, length)`, no two neighbours alike."""
        usable = self.subject.usable_ids
        generator = torch.Generator().manual_seed(length + 1000 * seed)
        order = torch.stack([torch.randperm(len(usable), generator=generator) for _ in range(rows)])
        return usable[order.repeat(1, 1 + length // len(usable))[:, :length]]

    def same(self, what: str, got: Tensor, wanted: Tensor, ids: Tensor) -> Case:
        """Return a case that fails unless `got` equals `wanted`."""
        return Case(what, difference(got, wanted), self.allowed, ids)

    def differ(self, what: str, got: Tensor, other: Tensor, ids: Tensor) -> Case:
        """Return a case that fails unless `got` differs from `other`."""
        return Case(what, difference(got, other), self.detectable, ids, must_differ=True)

    def pieces(self, ids: Tensor, sizes: Sequence[int], mask: Tensor | None = None) -> Tensor:
        """Return the logits of `ids` decoded in pieces of these sizes, with a cache."""
        cache: list[Any] = []
        end, out = 0, []
        for size in sizes:
            end += size
            seen = None if mask is None else mask[:, :end]
            out.append(self.subject.logits(ids[:, end - size : end], seen, cache=cache))
        return torch.cat(out, dim=1)

    def at(self, ids: Tensor, pos: Tensor) -> Tensor:
        """Return the logits of one sequence whose tokens have these positions `(T,)`."""
        subject = self.subject
        # A mask of ones: without one, models take a gap for the border of packed sequences.
        mask = torch.ones_like(ids) if subject.takes_mask and subject.aligned else None
        return subject.logits(ids, mask, pos.expand_as(ids))

    def shifted(self, ids: Tensor, by: int) -> Tensor:
        """Return the logits of `ids` whose positions begin at `by`: by position ids, else by as
        much padding on the left."""
        if self.subject.takes_position_ids:
            return self.at(ids, torch.arange(by, by + ids.shape[1]))
        padded, mask = pad(ids, by, 0)
        out = self.subject.logits(padded, mask)
        return out[:, by:] if self.subject.aligned else out

    @cached_property
    def in_bf16(self) -> tuple[Subject, float]:
        """The subject in bfloat16, and the largest difference from float that counts as equal.

        The control changes each weight at random. Rounding the weights to bfloat16 would change
        nothing in a model that was saved in bfloat16.
        """
        return self.subject.changed(_to_bf16), self.noise(2**-8, SAFETY_BF16)


def difference(got: Tensor, wanted: Tensor) -> float:
    """Return the largest difference, as a fraction of the logits' spread over the vocabulary."""
    spread = wanted.double().std(-1).mean().clamp(min=1e-30)
    largest = float((got.double() - wanted.double()).abs().max() / spread)
    return largest if largest == largest else float("inf")


def pad(ids: Tensor, left: int, right: int) -> tuple[Tensor, Tensor]:
    """Return ids with padding, which are tokens that the mask forbids, and the mask."""
    first = ids[:, :1]  # any token will do, as it must not be seen
    padded = torch.cat((first.repeat(1, left), ids, first.repeat(1, right)), dim=1)
    mask = torch.zeros_like(padded)
    mask[:, left : left + ids.shape[1]] = 1
    return padded, mask


def in_double(subject: Subject) -> Subject:
    """Return a copy on the CPU in evaluation mode, in float64 if the model is small and can."""
    in_float = subject.changed(lambda model: model.cpu().eval().requires_grad_(False).float())
    ids = fixed(subject.usable_ids, rows=2)
    out: object = _logits(in_float, ids)
    shape = tuple(out.shape) if isinstance(out, Tensor) else ()
    fits = len(shape) == 3 and shape[0] == 2 and shape[2] > 1
    if not fits or (in_float.aligned and shape[1] != ids.shape[1]):
        what = f"a tensor of shape {shape}" if shape else f"a {type(out).__name__} without logits"
        raise ShapeshiftError(
            f"forward of {type(subject.model).__name__} returned {what} for ids of shape"
            f" {tuple(ids.shape)}; `check` needs outputs for each token, (B, T, V), such as what a"
            " classifier has before it pools"
        )
    if sum(parameter.numel() for parameter in subject.model.parameters()) > DOUBLE_UP_TO:
        return in_float
    wide = in_float.changed(lambda model: model.double())
    padded = pad(subject.usable_ids[None, :2], 1, 0)
    outputs = []
    try:
        for given in (padded[:1], padded)[: 1 + subject.takes_mask]:
            outputs.append(wide.logits(*given))
    except UnsupportedError:
        pass
    except (RuntimeError, TypeError, ValueError):
        return in_float
    # A mask of float64's lowest number is -inf in a softmax that is computed in float32.
    works = all(x.dtype is torch.float64 and x[:, -1].isfinite().all() for x in outputs)
    return wide if works else in_float


def _logits(subject: Subject, ids: Tensor) -> Tensor:
    """Return the logits of ids that every model must take.

    Raises:
        ShapeshiftError: it fails.
    """
    try:
        return subject.logits(ids)
    except ShapeshiftError:
        raise
    except Exception as error:
        length = ids.shape[1]
        too_long = "if these are too many, set its attribute max_length to what it takes"
        raise ShapeshiftError(
            f"forward of {type(subject.model).__name__} fails for {length} token ids alone"
            f" ({line(error)}); {too_long if length > FIXED_LENGTH else WRAP}"
        ) from error


def line(error: Exception) -> str:
    """Return the first line of an error's message."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}"[:160]


def _disturb(model: nn.Module, relative: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        change = torch.rand(parameter.shape, generator=generator) * 2 - 1
        parameter.data *= 1 + change.to(parameter.dtype) * relative


def _to_bf16(model: nn.Module) -> None:
    """Cast all tensors that a checkpoint holds; other buffers, such as angles, stay in float32."""
    kept = set(model.state_dict(keep_vars=True).values())
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(torch.bfloat16 if tensor in kept else torch.float32)
