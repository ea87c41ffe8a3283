"""Keys and values that incremental decoding keeps."""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValues:
    """Projected keys and values of the tokens seen so far, `(N, H, K, E)` each.

    They lie token by token in memory, `(K, N, H, E)`: what is there is one piece, so that rows are
    reordered by copying no more than that, and matrix products need no copy. The buffers double
    when they are full, so appending costs constant time a token on average.
    """

    def __init__(self) -> None:
        self.length = 0
        self._buffers: tuple[Tensor, Tensor] | None = None  # (capacity, N, H, E) each

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add `keys, values (N, H, new, E)`; return everything kept, views that hold until the
        next call."""
        end = self.length + keys.shape[2]
        new = [x.permute(2, 0, 1, 3) for x in (keys, values)]  # (new, N, H, E)
        if self._buffers is None:
            self._buffers = new[0].contiguous(), new[1].contiguous()
        elif end > self.length:
            if end > self._buffers[0].shape[0]:
                self._buffers = self._copied(2 * end)
            for buffer, x in zip(self._buffers, new, strict=True):
                buffer[self.length : end] = x
        self.length = end
        kept_keys, kept_values = (x[:end].permute(1, 2, 0, 3) for x in self._buffers)
        return kept_keys, kept_values

    def select(self, rows: Tensor) -> None:
        """Let row i continue what was row `rows[i]`."""
        if self._buffers is not None:
            self._buffers = self._copied(self._buffers[0].shape[0], rows)

    def _copied(self, capacity: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return buffers of `capacity` with the tokens so far, of all rows or of `rows`."""
        assert self._buffers is not None
        keys, values = (
            old.new_empty(capacity, old.shape[1] if rows is None else len(rows), *old.shape[2:])
            for old in self._buffers
        )
        for old, new in zip(self._buffers, (keys, values), strict=True):
            if rows is None:
                new[: self.length] = old[: self.length]
            else:
                torch.index_select(old[: self.length], 1, rows, out=new[: self.length])
        return keys, values


class SourceKeyValues:
    """Projected keys and values of a source, `(B, H, K, E)` each: all there at once, they lie
    sentence by sentence, as the products of each step read them fastest."""

    def __init__(self) -> None:
        self.length = 0
        self._both: tuple[Tensor, Tensor] | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep `keys, values` at the first call, where later ones bring none; return them."""
        if self._both is None:
            self._both = keys.contiguous(), values.contiguous()
            self.length = keys.shape[2]
        return self._both

    def select(self, sentences: Tensor) -> None:
        """Let sentence i be what was `sentences[i]`."""
        if self._both is not None:
            keys, values = self._both
            self._both = keys.index_select(0, sentences), values.index_select(0, sentences)
