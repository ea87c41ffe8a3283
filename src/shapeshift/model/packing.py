"""The real tokens of a padded batch, one after the other, so that nothing is computed for padding.

Only attention needs one sentence per row. Projections, feed-forward layers, norms and dropout take
`(N, D)` for the N real tokens of `(B, T)`. Heads are copied once into the order that the matrix
products of attention need, as without packing; this copy also puts each token at its place.

In half precision N is rounded up to a multiple of 64 by rows without a token, because oneDNN
compiles a matrix product for each number of rows, which takes an eighth of a step on a CPU with AMX
(dev/log.md).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor


class Packing:
    """Where the real tokens of one side of a batch are.

    Args:
        real: places of the tokens in the flattened `(B, T)` ids, ascending, `(N,)`; N ≥ 1.
        shape: B and T.
        multiple: N is rounded up to a multiple of it. The rows without a token repeat another;
            nothing may depend on them, and no gradient comes from them.
    """

    def __init__(self, real: Tensor, shape: tuple[int, int], multiple: int = 1):
        self.real = real
        self.num_sentences, self.width = shape
        self.num_rows = len(real) + -len(real) % multiple
        self._indices: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def rows(self) -> Tensor:
        """The row of each of the B · T places. Padding has row 0; any row would do, because
        attention masks the keys of padding and nothing reads its outputs."""
        rows = self.real.new_zeros(self.num_sentences * self.width)
        rows[self.real] = torch.arange(len(self.real), device=rows.device)
        return rows

    def pack(self, x: Tensor) -> Tensor:
        """Return `x (B, T, D)` as `(N, D)`."""
        packed: Tensor = _Pack.apply(  # type: ignore[no-untyped-call]
            x.flatten(0, 1), self.real, self.num_rows
        )
        return packed

    def unpack(self, x: Tensor) -> Tensor:
        """Return `x (N, D)` as `(B, T, D)`; what stands at padding has no meaning."""
        return x.index_select(0, self.rows).view(self.num_sentences, self.width, -1)

    def split_heads(self, x: Tensor, num_heads: int, head_dim: int) -> tuple[Tensor, ...]:
        """Return `x (N, P · H · E)`, P projections side by side, as P tensors `(B, H, T, E)`; as
        with `unpack`, what stands at padding has no meaning."""
        shape = (self.num_sentences, num_heads, self.width, head_dim)
        parts = x.shape[1] // (num_heads * head_dim)
        heads: tuple[Tensor, ...] = _SplitHeads.apply(  # type: ignore[no-untyped-call]
            x, self._slots(parts, num_heads), self._places(num_heads), shape
        )
        return heads

    def join_heads(self, heads: Tensor) -> Tensor:
        """Return `heads (B, H, T, E)` as `(N, H · E)`."""
        _, num_heads, _, head_dim = heads.shape
        rows = heads.reshape(-1, head_dim)
        joined: Tensor = _Pack.apply(  # type: ignore[no-untyped-call]
            rows, self._places(num_heads), self.num_rows * num_heads
        )
        return joined.view(-1, num_heads * head_dim)

    def _places(self, num_heads: int) -> Tensor:
        """Return where the head `(n, h)` of `(N, H)` is in `(B, H, T)`."""
        if (0, num_heads) not in self._indices:
            sentence, token = self.real // self.width, self.real % self.width
            heads = torch.arange(num_heads, device=self.real.device)
            first = sentence * (num_heads * self.width) + token
            self._indices[0, num_heads] = (first[:, None] + heads * self.width).flatten()
        return self._indices[0, num_heads]

    def _slots(self, parts: int, num_heads: int) -> Tensor:
        """Return where what belongs at `(p, b, h, t)` of `(P, B, H, T)` is in `(N, P, H)`,
        a row for each p."""
        if (parts, num_heads) not in self._indices:
            each = torch.arange(parts * num_heads, device=self.real.device)
            rows = self.rows.view(1, self.num_sentences, 1, self.width) * (parts * num_heads)
            slots = rows + each.view(parts, 1, num_heads, 1)
            self._indices[parts, num_heads] = slots.flatten(1)
        return self._indices[parts, num_heads]


class _Pack(torch.autograd.Function):
    """Rows of a matrix, the first of them repeated up to `num_rows`. The gradient is a copy, not a
    sum as `index_select`'s is: each row is taken once, but for the repeated ones, whose gradient is
    zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, num_rows: int) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.num_inputs = len(x)
        if num_rows > len(rows):
            rows = torch.cat((rows, rows[:1].expand(num_rows - len(rows))))
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        zeros = grad.new_zeros(ctx.num_inputs, grad.shape[1])
        return zeros.index_copy(0, rows, grad[: len(rows)]), None, None


class _SplitHeads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, slots: Tensor, places: Tensor, shape: tuple[int, ...]
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(places)
        ctx.num_rows = len(x)
        head_dim = shape[-1]
        rows = x.reshape(-1, head_dim)
        # Not one tensor of all parts: the queries are not kept, but for a scaled copy.
        return tuple(rows.index_select(0, part).view(shape) for part in slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        num_tokens = len(places) // grads[0].shape[1]  # (B, H, T, E)
        total = grads[0].new_empty(ctx.num_rows, len(grads), grads[0].shape[1] * grads[0].shape[3])
        total[num_tokens:] = 0
        for part, grad in enumerate(grads):
            rows = grad.reshape(-1, grad.shape[-1]).index_select(0, places)
            total[:num_tokens, part] = rows.view(num_tokens, -1)
        return total.flatten(1), None, None, None
