"""How well a causal language model reads texts longer than those it was trained on, with each
method that changes its rotary positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift.interop.extend import METHODS, extended
from shapeshift.positions.checks import whole_number

from .adapter import FIXED_LENGTH, UnsupportedError, subjects
from .probe import difference

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where the passkey stands in its context: 0 at the beginning, 1 just before the question."""

TASK = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I"
    " will quiz you about the important information there."
)
FILLER = (
    " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)
QUESTION = " What is the pass key? The pass key is"

Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Extension:
    """What was measured of a model with one method.

    Attributes:
        method: its name; `unchanged` without one.
        trained, length: T, and tokens of the longest sequence that was read.
        parameters: the `rope_parameters` of the method, by type of layers if these differ; None
            without a method or positions.
        perplexity: `(from, to, perplexity)` of the tokens at these positions, `to` excluded.
        passkey: `(context, depth, share)`: which share of passkeys the model found.
        cache: how far the last token's logits with a cache are from those without, as a fraction of
            their spread over the vocabulary; None if the model has no cache.
        is_consistent: whether `cache` is no more than rounding.
        refused: why the method cannot be applied, and nothing was measured; else empty.
    """

    method: str
    trained: int
    length: int
    parameters: Any = None
    perplexity: tuple[tuple[int, int, float], ...] = ()
    passkey: tuple[tuple[int, float, float], ...] = ()
    cache: float | None = None
    is_consistent: bool | None = None
    refused: str = ""


def context(
    model: nn.Module,
    methods: Sequence[str] = METHODS,
    *,
    rope_parameters: Mapping[str, Mapping[str, Any]] | None = None,
    length: int | None = None,
    text: Tensor | None = None,
    encode: Encode | None = None,
    num_windows: int = 16,
    num_passkeys: int = 4,
    longest_passkey: int = 4096,
) -> Iterator[Extension]:
    """Measure how a causal model of Hugging Face reads texts longer than its trained length T: as
    it is, and with each method of `shapeshift.interop.extend.extended`. Nothing is trained.

        for row in context(model, ["linear", "yarn"], length=8192, text=ids):
            print(row.method, row.perplexity, row.passkey, row.cache)

    - Perplexity by position, over windows of `length` tokens of the text: of the tokens at 0 to
      T/2, T/2 to T, and then in two halves of each doubling.
    - Passkey (Mohtashami and Jaggi 2023, section 4.2): a number of five digits stands somewhere in
      filler, and the last sentence asks for it. It is found if greedy decoding gives it. Without
      `encode`, five random ids stand behind three others in random ids, and these three come again
      as the question.
    - Cache: T - 1 tokens of a sequence of `length` are read at once, one alone, the others at once
      but for the last, which comes alone. Its logits must be those of a pass without a cache.

    Args:
        model: such as `LlamaForCausalLM`, on any device; is in evaluation mode afterwards, and
            otherwise unchanged.
        methods: names of methods.
        rope_parameters: further methods by name, with the names of transformers 5; `rope_theta`
            and `partial_rotary_factor` are the model's unless given.
        length: tokens of the longest sequence; 4 T by default.
        text: ids `(N,)`; None measures no perplexity.
        encode: returns the ids of a text, without special ones.
        num_windows: the most windows to read.
        num_passkeys: for each of five depths in contexts of T, 2 T, … and `length` tokens.
        longest_passkey: longer contexts are left out.

    Yields:
        The model as it is, then each method. A model with a table of positions is measured up to T.

    Raises:
        ShapeshiftError: a method is unknown; the model is not causal, or its configuration has no
            trained length; `length` is not above it; the text is shorter than `length`; a passkey
            and its question are longer than T, or `encode` returns no ids.
    """
    known: dict[str, Any] = {**{name: name for name in METHODS}, **(rope_parameters or {})}
    for name in methods:
        if name not in known:
            raise ShapeshiftError(unknown("unknown method", name, known))
    bench = _Bench(model, length, text, num_windows)
    bench.prompts = [
        (size, depth, passkey(size, depth, encode or bench.subject.usable_ids, seed))
        for size in bench.contexts()
        if size <= longest_passkey
        for depth in DEPTHS
        for seed in range(whole_number("num_passkeys", num_passkeys, 0))
    ]
    yield bench.measure("unchanged", None)
    for name in methods:
        try:
            with extended(model, known[name], bench.trained, bench.length) as parameters:
                row = bench.measure(name, parameters)
        except ShapeshiftError as error:
            row = Extension(name, bench.trained, bench.reach, refused=str(error))
        yield row


class _Bench:
    """A model and what it is measured with.

    Attributes:
        prompts: context length, depth, and what `passkey` returns.
    """

    prompts: list[tuple[int, float, tuple[Tensor, int]]]

    def __init__(self, model: nn.Module, length: int | None, text: Tensor | None, num_windows: int):
        name = type(model).__name__
        self.subject, *_ = subjects(model.eval())
        if self.subject.is_seq2seq or self.subject.limit is None:
            raise ShapeshiftError(
                f"{name} is no causal model whose configuration has max_position_embeddings, the"
                " length that it was trained with; give one such as LlamaForCausalLM"
            )
        self.trained = self.subject.limit
        if self._sees_later_tokens():
            raise ShapeshiftError(
                f"{name} is not causal: the logits of a token change with later tokens; give a"
                " causal model such as LlamaForCausalLM"
            )
        self.length = 4 * self.trained if length is None else whole_number("length", length, 1)
        if self.length <= self.trained:
            raise ShapeshiftError(
                f"length={length} is not above {self.trained}, the length that {name} was trained"
                f" with; give a larger one, such as {4 * self.trained}"
            )
        generator = torch.Generator().manual_seed(0)
        usable = self.subject.usable_ids
        random = torch.randint(len(usable), (self.length,), generator=generator)
        self.windows, self.ids = torch.zeros(0, self.length, dtype=torch.int64), usable[random]
        if text is not None:
            if len(text) < self.length:
                raise ShapeshiftError(
                    f"the text has {len(text)} tokens, fewer than the length of {self.length}; give"
                    " a longer text or a smaller length"
                )
            num = min(whole_number("num_windows", num_windows, 1), len(text) // self.length)
            self.windows = text[: num * self.length].view(num, self.length)
            self.ids = self.windows[0]
        # A table has no vectors beyond its end.
        self.reach = self.trained if self.subject.claim == "absolute" else self.length

    @torch.no_grad()
    def _sees_later_tokens(self) -> bool:
        """Return whether the first token's logits change with the tokens after it."""
        first, other = self.subject.usable_ids[:2]
        rows = (torch.stack([first, *[x] * (FIXED_LENGTH - 1)]) for x in (first, other))
        before, after = (self._logits(row)[:1] for row in rows)
        return _rounding(before) < difference(after, before) < float("inf")  # inf: not finite

    def contexts(self) -> list[int]:
        """Return the context lengths T, 2 T, … and `length` that the model can read."""
        doublings = [self.trained * 2**n for n in range(64) if self.trained * 2**n < self.length]
        return [size for size in (*doublings, self.length) if size <= self.reach]

    @torch.no_grad()
    def measure(self, method: str, parameters: Any) -> Extension:
        """Measure the model as it is now. Contexts grow: `dynamic` of transformers forgets that it
        has read a longer one only when one is below T."""
        cache, passkey, perplexity = self._cache(), self._passkeys(), self._perplexity()
        sizes = self.trained, self.reach
        return Extension(method, *sizes, parameters, perplexity, passkey, *cache)

    def _logits(self, ids: Tensor, cache: list[Any] | None = None) -> Tensor:
        device = next(self.subject.model.parameters()).device
        return self.subject.logits(ids[None].to(device), cache=cache)[0]

    def _perplexity(self) -> tuple[tuple[int, int, float], ...]:
        if not len(self.windows):
            return ()
        loss = torch.zeros(self.reach - 1, dtype=torch.float64)  # of the tokens from 1 on
        for window in self.windows[:, : self.reach]:
            logits = self._logits(window)[:-1]
            target = window[1:].to(logits.device)
            parts = zip(torch.split(logits, 1024), torch.split(target, 1024), strict=True)
            losses = [F.cross_entropy(x.float(), y, reduction="none") for x, y in parts]
            loss += torch.cat(losses).double().cpu()
        loss /= len(self.windows)
        return tuple(
            (start, end, float(loss[max(start - 1, 0) : end - 1].mean().exp()))
            for start, end in spans(self.trained, self.reach)
        )

    def _passkeys(self) -> tuple[tuple[int, float, float], ...]:
        found: dict[tuple[int, float], list[bool]] = {}
        for size, depth, (ids, num_answer) in self.prompts:
            likeliest = self._logits(ids[:-1])[-num_answer:].argmax(-1).cpu()
            found.setdefault((size, depth), []).append(torch.equal(likeliest, ids[-num_answer:]))
        return tuple((*case, sum(each) / len(each)) for case, each in found.items())

    def _cache(self) -> tuple[float, bool] | tuple[None, None]:
        if not self.subject.takes_cache or self.reach < self.length:
            return None, None
        rest = self.length - self.trained - 1
        cache: list[Any] = []
        try:
            for part in torch.split(self.ids, [self.trained - 1, 1, *[rest] * (rest > 0), 1]):
                last = self._logits(part, cache)[-1:]
        except UnsupportedError:  # it takes a cache and returns none
            return None, None
        full = self._logits(self.ids)[-1:]
        off = difference(last, full)
        return off, off <= _rounding(full)


def _rounding(logits: Tensor) -> float:
    """Return the difference that counts as rounding, as a fraction of the logits' spread. A trained
    model of bfloat16 was off by 0.08 with a right cache, by 0.27 with a wrong one."""
    return max(1e-3, 16 * torch.finfo(logits.dtype).eps)


def spans(trained: int, length: int) -> list[tuple[int, int]]:
    """Return the positions from 0 to `length` in parts: two up to `trained`, then two for each
    doubling."""
    ends = [0, max(1, trained // 2), trained]
    while ends[-1] < length:
        ends += [ends[-1] * 3 // 2, ends[-1] * 2]
    ends = sorted({min(end, length) for end in ends})
    return list(pairwise(ends))


def passkey(size: int, depth: float, source: Encode | Tensor, seed: int) -> tuple[Tensor, int]:
    """Return a prompt with its answer, ids `(size,)`, and the number of ids of the answer.

    Args:
        size: tokens of both.
        depth: where the passkey stands, 0 to 1.
        source: text → ids; or ids to draw from, see `context`.
        seed: of the passkey.

    Raises:
        ShapeshiftError: there is no room for it, or `source` returns no ids.
    """
    generator = torch.Generator().manual_seed(seed)
    if isinstance(source, Tensor):
        draws = torch.randint(len(source), (size + 8,), generator=generator)
        mark, answer, filler = torch.split(source[draws], [3, 5, size])
        task, fact, question = filler[:0], torch.cat((mark, answer)), mark
    else:
        key = int(torch.randint(10000, 100000, (), generator=generator))
        fact = torch.tensor(source(f" The pass key is {key}. Remember it. {key} is the pass key."))
        asked, whole = source(QUESTION), torch.tensor(source(f"{QUESTION} {key}"))
        shared = next(
            (n for n, (x, y) in enumerate(zip(asked, whole, strict=False)) if x != y), len(asked)
        )
        question, answer, task = whole[:shared], whole[shared:], torch.tensor(source(TASK))
        once = torch.tensor(source(FILLER))
        if not len(once):
            raise ShapeshiftError(
                "encode returns no ids for a text; leave it out for passkeys of random ids"
            )
        filler = once.repeat(1 + size // len(once))
    room = size - sum(map(len, (task, fact, question, answer)))
    if room < 0:
        raise ShapeshiftError(
            f"a passkey with its question takes {size - room} tokens, more than the {size} that the"
            " model was trained with; measure none (num_passkeys=0)"
        )
    at = round(room * depth)
    parts = task, filler[:at], fact, filler[at:room], question, answer
    return torch.cat(parts), len(answer)
