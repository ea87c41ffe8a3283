"""The position number of each token: counted, shifted (SHAPE), randomized, or given by tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from typing import ClassVar

import torch
from torch import Tensor, distributed, nn

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError

from .checks import check_offset, checked, describe, is_integer, shown, whole_number


class Absolute(nn.Module):
    """Positions 0, 1, 2, …: the same for every sequence. Choose it unless you need one of the
    others: it is the usual one.

    Attributes:
        per_rank: the numbers that a subclass draws differ between the processes of
            torch.distributed, even if all of them have the same seed. Set it to False if processes
            hold parts of one batch (tensor parallelism) and have the same seed.
    """

    per_rank = True

    reads_tokens: ClassVar[bool] = False
    """Whether the ids depend on the tokens, which `forward` then needs."""

    def forward(
        self,
        num_sequences: int,
        length: int,
        *,
        start: int = 0,
        offset: int | Tensor | None = None,
        device: torch.device | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Return the positions of tokens `start … start + length − 1` of each sequence.

        Args:
            num_sequences: B.
            length: T, the number of tokens.
            start: number of tokens before these (incremental decoding).
            offset: added to all positions, at least 0: a number, or an integer tensor `()`,
                `(1,)` or `(B,)`. With None, it is drawn in training, and is the paper's value in
                evaluation.
            device: device of the result; None is that of the tokens, or the default.
            tokens: token ids `(B, start + T)`, for ids that depend on them; see `reads_tokens`.

        Returns:
            `(1, T)` if all sequences share their positions, else `(B, T)`; int64.

        Raises:
            ShapeshiftError: for an argument of the wrong type, shape or sign. A tensor's values are
                checked only on the CPU.
        """
        sizes = {"num_sequences": num_sequences, "length": length, "start": start}
        for name, size in sizes.items():
            whole_number(name, size, 0)
        if device is None and isinstance(tokens, Tensor):
            device = tokens.device
        is_drawn = self.training and offset is None
        if offset is None:
            offset = self.choose_offset(num_sequences, device)
        else:
            check_offset(offset, num_sequences)
        if self.reads_tokens:
            if not is_integer(tokens) or tokens.shape != (num_sequences, start + length):
                raise ShapeshiftError(
                    f"ids of {type(self).__name__} depend on the tokens: tokens must be integers"
                    f" ({num_sequences}, {start + length}), those before start included, got"
                    f" {describe(tokens)}"
                )
            pos = self.count(tokens)[:, start:]
        else:
            pos = torch.arange(start, start + length, device=device).unsqueeze(0)
            pos = self.numbers(pos, start + length, num_sequences if is_drawn else None)
        if isinstance(offset, Tensor):
            offset = offset.to(pos.device).reshape(-1, 1)  # (B|1, 1)
        elif offset == 0:
            return pos
        return self.shift(pos, offset)  # (B|1, T)

    extra_repr = shown

    def count(self, tokens: Tensor) -> Tensor:
        """Return the position ids `(B, T)` of `tokens (B, T)`, int64, from 0, if the class
        `reads_tokens`. The id of a token may depend on it and on those before it: a decoder
        computes it before it has the others."""
        raise NotImplementedError

    def shift(self, pos: Tensor, offset: int | Tensor) -> Tensor:
        """Return position ids with an offset added."""
        return pos + offset

    def choose_offset(self, num_sequences: int, device: torch.device | None) -> int | Tensor:
        """Return the offset to use if the caller gives none."""
        return 0

    def numbers(self, pos: Tensor, end: int, num_drawn: int | None) -> Tensor:
        """Return the positions `(B|1, T)` before an offset is added. `pos (1, T)` counts the tokens
        from 0, up to `end` − 1. In training, unless the caller gives an offset, `num_drawn` is
        B."""
        return pos


class Shifted(Absolute):
    """SHAPE: PE(i) becomes PE(i + k) with k ~ U{0, …, K} (Kiyono et al. 2021, section 2.3).

    In training, each sequence of each call gets its own k, drawn from PyTorch's generator on the
    device of the result. In evaluation k = 0.

    In training, each sequence begins at a random number (SHAPE), so that the model learns to
    compare positions. Choose it if you must keep absolute positions: inference does not change.

    Args:
        max_offset: K, the largest offset (inclusive).
        authors: draw and decode as in the released code, which differs from the paper: U{0, …,
            K − 1} in training and k = K in evaluation.

    Raises:
        ShapeshiftError: if K is not a whole number, or is negative (or zero with `authors`, where
            the range would be empty).
    """

    @checked
    def __init__(self, *, max_offset: int = 500, authors: bool = False):
        super().__init__()
        what = "max_offset with authors=True" if authors else "max_offset"
        self.max_offset = whole_number(what, max_offset, 1 if authors else 0)
        self.authors = authors

    def choose_offset(self, num_sequences: int, device: torch.device | None) -> int | Tensor:
        if not self.training:
            return self.max_offset if self.authors else 0
        upper = self.max_offset if self.authors else self.max_offset + 1
        return draw_offsets(num_sequences, upper, device, per_rank=self.per_rank)


class Randomized(Absolute):
    """Positions with gaps: T numbers drawn from 0 … L − 1 without replacement, in order (Ruoss et
    al. 2023, section 3). In training the model sees all the numbers, and many of the distances, of
    sequences of up to L tokens, even if its own sequences are short.

    In training, each sequence of each call draws its own numbers from PyTorch's generator on the
    device of the result. T is the length of the padded batch: if lengths differ, shorter sentences
    get the lowest of the T numbers.

    Differs from the paper in evaluation, where the paper draws again for the whole sequence. That
    needs T in advance, which is unknown when a decoder writes token by token, and the numbers would
    depend on the other sentences of the batch. Here token t of any sequence has the number
    floor(t · L / `max_length`). If an offset is given, also in training, nothing is drawn: the
    offset is added to the numbers of evaluation. (The released code draws once per batch in
    training, too.)

    In training, tokens have random increasing numbers, so that the model also sees large ones.
    Choose it for algorithmic tasks with long training.

    Args:
        max_position: L; 2048 in the paper.
        max_length: longest sequence in evaluation, from 1 to L (500 in the paper). The smaller it
            is, the closer the gaps are to the gaps of short sentences in training.

    Raises:
        ShapeshiftError: if L is not a whole number, or `max_length` is not one from 1 to L; in
            `forward`, if a sequence has more than L tokens in training or more than `max_length`
            in evaluation.
    """

    @checked
    def __init__(self, *, max_position: int = 2048, max_length: int = 500):
        super().__init__()
        self.max_position = whole_number("max_position", max_position, 1)
        self.max_length = whole_number("max_length", max_length, 1)
        if max_length > max_position:
            raise ShapeshiftError(
                f"max_length must lie between 1 and max_position={max_position}, got {max_length}"
            )

    def numbers(self, pos: Tensor, end: int, num_drawn: int | None) -> Tensor:
        name = "max_length" if num_drawn is None else "max_position"
        limit = getattr(self, name)
        if end > limit:
            raise ShapeshiftError(
                f"randomized positions have {name}={limit} numbers for a sequence, got one of"
                f" {end} tokens; give a larger {name} or shorter sequences"
            )
        if num_drawn is None:
            return pos * self.max_position // self.max_length  # (1, T)
        rank, world_size = _ranks(self.per_rank)
        size = (num_drawn, world_size, self.max_position)
        keys = torch.rand(size, dtype=torch.float32, device=pos.device)[:, rank]  # (B, L)
        # The places of the largest keys, in order: each subset has the same probability.
        chosen = keys.topk(end, dim=1).indices.sort(dim=1).values
        return chosen[:, end - pos.shape[1] :]  # (B, T)


class Packed(Absolute):
    """Several texts in one sequence: ids begin at 0 again after each separator, which is the last
    token of its own text.

    Only the ids change: a text is attended to from those after it unless the mask forbids it.

    Position ids begin at 0 again after each separator token. Choose it if a sequence holds several
    texts.

    Args:
        separator: token id.

    Raises:
        ShapeshiftError: if it is not a whole number from 0.
    """

    reads_tokens = True

    @checked
    def __init__(self, *, separator: int):
        super().__init__()
        self.separator = whole_number("separator", separator, 0)

    def count(self, tokens: Tensor) -> Tensor:
        index = torch.arange(tokens.shape[1], device=tokens.device)
        ends = torch.where(tokens == self.separator, index + 1, 0).roll(1, dims=1)
        return index - torch.where(index > 0, ends, 0).cummax(dim=1).values  # (B, T)


FUNCTION = "function of position ids"


class Coupled(Absolute):
    """Position coupling: tokens with the same role in a task have the same id (Cho et al. 2024,
    section 3), such as digits of the same significance. A function of the tokens gives the ids.

        def ids(tokens):  # (B, T) -> (B, T), integers from 0
            ...

        Coupled(function=ids, max_offset=20)

    In training, each sequence of each call adds its own k ~ U{0, …, K} to its ids, so that the
    model is trained on ids that only longer sequences have without it; k = 0 in evaluation. An id
    of 0 stays 0: it is for tokens without a role. (The paper draws the first id so that the
    largest one is at most a given number.)

    The id of a token may depend on it and on those before it. A decoder has not got the others yet.

    A function of your own gives tokens with the same role the same id. Choose it for algorithmic
    tasks whose structure you know.

    Args:
        function: of token ids `(B, T)`, which returns integers `(B, T)`; in a configuration its
            name, `package.module:function`.
        max_offset: K.

    Raises:
        ShapeshiftError: if there is no such function or K is not a whole number from 0; in
            `forward`, if the function returns something else.
    """

    reads_tokens = True

    @checked
    def __init__(self, *, function: str | Callable[[Tensor], Tensor], max_offset: int = 0):
        super().__init__()
        found = own_modules.find(function, FUNCTION) if isinstance(function, str) else function
        if not callable(found):
            raise ShapeshiftError(f"function must be a function of token ids, got {function!r}")
        self.function = found
        self.max_offset = whole_number("max_offset", max_offset, 0)

    def choose_offset(self, num_sequences: int, device: torch.device | None) -> int | Tensor:
        if not self.training or not self.max_offset:
            return 0
        return draw_offsets(num_sequences, self.max_offset + 1, device, per_rank=self.per_rank)

    def count(self, tokens: Tensor) -> Tensor:
        try:
            ids = self.function(tokens)
        except (AttributeError, TypeError, ValueError) as error:
            name = getattr(self.function, "__name__", self.function)
            raise ShapeshiftError(
                f"the function of position ids, {name}, fails for token ids"
                f" {tuple(tokens.shape)}: {error}; let it take a tensor (B, T)"
            ) from error
        if not is_integer(ids) or ids.shape != tokens.shape:
            raise ShapeshiftError(
                f"the function of position ids must return integers {tuple(tokens.shape)}, one for"
                f" each token, got {describe(ids)}"
            )
        return ids.long()

    def shift(self, pos: Tensor, offset: int | Tensor) -> Tensor:
        return torch.where(pos > 0, pos + offset, pos)


class Abacus(Coupled):
    """Abacus: the digits of each number have the ids 1, 2, 3, …, other tokens 0 (McLeish et al.
    2024, section 3). If numbers are written with their lowest digit first, digits of the same
    significance have the same id.

    In training, k ~ U{0, …, K} is added to the ids of the digits, so that the model is trained on
    ids that only longer numbers have without it; k = 0 in evaluation.

    Differs from the released code, where one k serves a batch: each sequence has its own. A scheme
    has one kind of position ids, so that all its parts get these.

    The digits of each number have the ids 1, 2, 3, …, and other tokens 0. Choose it for arithmetic,
    with `learned` at the embedding.

    Args:
        digits: the token ids of the digits.
        max_offset: K; 99 in the released code.

    Raises:
        ShapeshiftError: if `digits` are not whole numbers from 0, or K is not one.
    """

    @checked
    def __init__(self, *, digits: Sequence[int], max_offset: int = 99):
        super().__init__(function=self.places, max_offset=max_offset)
        if not isinstance(digits, list | tuple | range) or not digits:
            raise ShapeshiftError(
                f"digits must be a list of the token ids of the digits, got {digits!r}"
            )
        self.digits = [whole_number("a token id in digits", digit, 0) for digit in digits]

    def places(self, tokens: Tensor) -> Tensor:
        """Return how many digits of its number stand up to each digit of `tokens (B, T)`, 0 for
        other tokens."""
        is_digit = reduce(or_, (tokens == digit for digit in self.digits))
        index = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        return index - index.where(~is_digit, 0).cummax(dim=1).values  # (B, T)


def draw_offsets(
    num_sequences: int, upper: int, device: torch.device | None, *, per_rank: bool = True
) -> Tensor:
    """Return `(B,)` numbers from U{0, …, upper − 1}, int64, from PyTorch's generator on `device`.

    So gradient checkpointing repeats them, `torch.compile` draws in every call, and
    `torch.manual_seed` makes them reproducible. With `per_rank`, each process of torch.distributed
    draws for all processes and takes its own part: parts differ even if the seeds are the same.
    """
    rank, world_size = _ranks(per_rank)
    return torch.randint(upper, (num_sequences, world_size), device=device)[:, rank]


def _ranks(per_rank: bool) -> tuple[int, int]:
    """Return the rank of this process and the number of processes."""
    if per_rank and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
