"""Keys and values that incremental decoding keeps."""

from __future__ import annotations

from torch import Tensor


class KeyValues:
    """Projected keys and values of the tokens seen so far, `(N, H, K, E)` each.

    The buffers double when they are full, so appending costs constant time a token on average.
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add `keys, values (N, H, new, E)`; return everything kept, views that hold until the
        next call."""
        end = self.length + keys.shape[2]
        if self._keys is None or self._values is None:
            self._keys, self._values = keys, values
        elif end > self.length:
            if end > self._keys.shape[2]:
                self._keys = _widen(self._keys, self.length, 2 * end)
                self._values = _widen(self._values, self.length, 2 * end)
            self._keys[:, :, self.length : end] = keys
            self._values[:, :, self.length : end] = values
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Let row i continue what was row `rows[i]`."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


def _widen(old: Tensor, length: int, capacity: int) -> Tensor:
    new = old.new_empty(old.shape[0], old.shape[1], capacity, old.shape[3])
    new[:, :, :length] = old[:, :, :length]
    return new
