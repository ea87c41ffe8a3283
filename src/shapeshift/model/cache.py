"""Caches of keys and values, and of what else a kind keeps with its keys, for incremental
decoding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shapeshift.kernels import decoding

ROOM = 32
"""Tokens for which a cache has room at first; it doubles."""


class KeyValues:
    """Projected keys and values of the tokens seen so far, `(N, H, K, E)` each, and the state of a
    kind that has one, `(N, 1, K, F)`.

    They lie token by token in memory, `(K, N, H, E)`, so that the part in use is contiguous:
    reordering rows copies only that part, and matrix products need no copy. Between calls of
    `attend`, an index of rows is reordered instead. The buffers double when they are full, so
    appending costs constant time a token on average.
    """

    mask: Tensor | None = None  # of places that are not taken: there are none

    def __init__(self) -> None:
        self.length = 0
        self._buffers: list[Tensor] | None = None  # (capacity, N or more, H, E) each
        self._spare: list[Tensor] | None = None  # those before, to be written next
        self._attends = False  # whether `attend` was called last, not `append`
        self._rows: Tensor | None = None  # (K, N) int32: where the tokens of row n are, if not in n

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append keys, values and any state `(N, H, new, E)`; return all cached ones, as views that
        are valid until the next call."""
        self._attends = False
        if self._rows is not None:
            self._move(self.length, self._rows)
            self._rows = None
        return self._add(*new)

    def attend(
        self, q: Tensor, keys: Tensor, values: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Append `keys, values (N, H, 1, E)`, and return `decoding.decode_step` for `q (N, H, 1,
        E)` over all cached ones, with `options`."""
        self._attends = True
        keys, values = self._add(keys, values)
        return decoding.decode_step(q, keys, values, rows=self._rows, **options)

    def select(self, rows: Tensor) -> None:
        """Let row i continue old row `rows[i]`; there may be more rows than before."""
        if self._buffers is None:
            return
        if self._rows is None:
            rows = rows.int().expand(self.length, -1)
        else:
            rows = self._rows.index_select(1, rows)
        capacity, num_rows = self._buffers[0].shape[:2]
        if self._attends and rows.shape[1] <= num_rows:
            self._rows = rows
        else:
            self._move(capacity, rows)
            self._rows = None

    def _add(self, *given: Tensor) -> tuple[Tensor, ...]:
        num_rows, end = given[0].shape[0], self.length + given[0].shape[2]
        new = [x.permute(2, 0, 1, 3) for x in given]  # (new, N, H, E)
        if self._buffers is None:
            capacity = max(end, ROOM)
            self._buffers = [x.new_empty(capacity, *x.shape[1:]) for x in new]
        elif end > self._buffers[0].shape[0]:
            self._move(2 * end)
        if end > self.length:
            for buffer, x in zip(self._buffers, new, strict=True):
                buffer[self.length : end, :num_rows] = x
        if self._rows is not None:
            own = torch.arange(num_rows, dtype=torch.int32, device=given[0].device)
            self._rows = torch.cat((self._rows, own.expand(end - self.length, -1)))
        self.length = end
        return tuple(x[:end].permute(1, 2, 0, 3) for x in self._buffers)

    def _move(self, capacity: int, rows: Tensor | None = None) -> None:
        """Copy the cached tokens to buffers of `capacity`; with `rows (K, N)`, token k of row n
        comes from row `rows[k, n]`."""
        old = self._buffers
        assert old is not None
        num_rows = old[0].shape[1]
        if rows is not None:
            first = torch.arange(self.length, device=rows.device)[:, None] * num_rows
            flat, num_rows = (first + rows).flatten(), rows.shape[1]
        new = self._spare  # memory that is new would cost more than the copy
        learned = any(x.requires_grad for x in old)
        if new is None or new[0].shape[:2] != (capacity, num_rows) or learned:
            new = [x.new_empty(capacity, num_rows, *x.shape[2:]) for x in old]
        for source, out in zip(old, new, strict=True):
            if rows is None:
                out[: self.length] = source[: self.length]
                continue
            kept, by_row = (x[: self.length].flatten(0, 1) for x in (source, out))
            if learned:
                by_row.copy_(kept.index_select(0, flat))
            else:
                torch.index_select(kept, 0, flat, out=by_row)
        self._buffers, self._spare = new, None if rows is None else old


class Slots:
    """Token places of N rows, shared by the caches of all layers; each step takes one place.

    The last place and the rows are updated in place, so that the work of a step can be recorded and
    repeated (`decoding.recording`).

    Args:
        pos: the positions of the tokens in all places, `(N|1, capacity)`.
        num_rows: N.
        moves: whether rows will be reordered.
        last: the place that was taken last, `(1,)`; by default none was.
    """

    def __init__(self, pos: Tensor, num_rows: int, moves: bool, last: Tensor | None = None):
        self.pos = pos
        self.last = pos.new_full((1,), -1) if last is None else last
        self.mask: Tensor | None = None  # (1, 1, 1, capacity)
        self._rows: Tensor | None = None  # (capacity, N): in which row each token is
        self._places: Tensor | None = None  # (capacity · N,): in which of all rows of a buffer
        self._stride = num_rows
        if moves:
            self.select(torch.arange(num_rows, device=pos.device))

    def take(self) -> Tensor:
        """Take the next place; return the positions `(N|1, 1)` of its tokens."""
        self.last += 1
        places = torch.arange(self.pos.shape[1], device=self.pos.device)
        unused = torch.zeros(len(places), device=self.pos.device)
        self.mask = unused.masked_fill_(places > self.last, float("-inf"))[None, None, None]
        if self._rows is not None:
            own = torch.arange(self._rows.shape[1], device=self.pos.device)
            self._rows.index_copy_(0, self.last, own[None])
        self._find()
        return self.pos.index_select(1, self.last)

    def select(self, rows: Tensor) -> None:
        """Let row i continue what was row `rows[i]`."""
        rows = rows.long()  # as `take` writes
        if len(rows) < len(self.pos) > 1:  # sentences are left out
            self.pos = self.pos[rows]
        if self._rows is None:
            self._rows = rows.repeat(self.pos.shape[1], 1)
        elif len(rows) == self._rows.shape[1]:
            self._rows.copy_(self._rows.index_select(1, rows))
        else:
            self._rows = self._rows.index_select(1, rows)

    def move(self, buffer: Tensor, capacity: int) -> Tensor:
        """Return a buffer `(capacity, N, H, E)` with all tokens, each in its own row."""
        self._find()
        tokens = self.tokens(buffer)
        moved = buffer.new_zeros(capacity, *tokens.shape[1:])
        moved[: len(tokens)] = tokens
        return moved

    def tokens(self, buffer: Tensor) -> Tensor:
        """Return, for each row of a buffer, the tokens that it continues: `(capacity, N, H, E)`."""
        if self._places is None:
            return buffer
        tokens = buffer.flatten(0, 1).index_select(0, self._places)
        return tokens.view(len(buffer), -1, *buffer.shape[2:])

    def _find(self) -> None:
        if self._rows is not None:
            first = torch.arange(len(self._rows), device=self._rows.device)[:, None] * self._stride
            self._places = (self._rows + first).flatten()


class FixedKeyValues:
    """Like `KeyValues`, with `Slots`: buffers have room for all tokens from the start, and free
    places are zero, and masked."""

    def __init__(self, slots: Slots, buffers: list[Tensor] | None = None):
        self._slots = slots
        self._buffers = buffers  # (capacity, N, H, E) each

    @property
    def mask(self) -> Tensor | None:
        """Mask to add to the scores, `(1, 1, 1, capacity)`."""
        return self._slots.mask

    def append(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Write keys, values and any state `(N, H, 1, E)` to the place taken last; return those of
        all places, `(N, H, capacity, E)`, which `mask` must mask."""
        slots = self._slots
        new = [x.permute(2, 0, 1, 3) for x in given]  # (1, N, H, E)
        if self._buffers is None:
            self._buffers = [x.new_zeros(slots.pos.shape[1], *x.shape[1:]) for x in new]
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[:, : x.shape[1]].index_copy_(0, slots.last, x)
        return tuple(slots.tokens(x).permute(1, 2, 0, 3) for x in self._buffers)

    def moved(self, slots: Slots) -> FixedKeyValues:
        """Return a copy with the places of larger `slots`."""
        if self._buffers is None:
            return FixedKeyValues(slots)
        moved = [self._slots.move(x, slots.pos.shape[1]) for x in self._buffers]
        return FixedKeyValues(slots, moved)


class SourceKeyValues:
    """Projected keys and values of a source, `(B, H, K, E)` each, and any state. They do not grow,
    and lie sentence by sentence in memory, which is fastest for the products of each step."""

    mask: Tensor | None = None

    def __init__(self) -> None:
        self.length = 0
        self._kept: tuple[Tensor, ...] = ()

    def append(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Store what the first call gives (later ones give nothing), and return it."""
        if not self._kept:
            self._kept = tuple(x.contiguous() for x in new)
            self.length = new[0].shape[2]
        return self._kept

    def attend(
        self, q: Tensor, keys: Tensor, values: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Like `append`, but return `decoding.decode_step` for `q (B, H, Q, E)`, with `options`."""
        keys, values = self.append(keys, values)
        return decoding.decode_step(q, keys, values, **options)

    def select(self, sentences: Tensor) -> None:
        """Let sentence i continue old sentence `sentences[i]`."""
        self._kept = tuple(x.index_select(0, sentences) for x in self._kept)
