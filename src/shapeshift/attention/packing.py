"""The real tokens of a padded batch, one after the other, so that nothing is computed for padding.

Projections, feed-forward layers, norms and dropout take `(N, D)` for the N real tokens of `(B, T)`,
and so do two backends of attention: `cpu`, and `packed` on a GPU. The others need one sentence a
row.

In half precision on a CPU N is rounded up to a multiple of 64 by rows without a token: oneDNN
compiles a matrix product for each number of rows, which would take an eighth of a step on a CPU
with AMX (dev/log.md).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Spans(NamedTuple):
    """Sentences in packed tokens: the first row and the number of rows of each, `(B,)` int64."""

    first: Tensor
    size: Tensor


class Packing:
    """Positions of the real tokens (not padding) of one side of a batch.

    Args:
        real: places of the tokens in the flattened `(B, T)` ids, ascending, `(N,)`; N ≥ 1.
        shape: B and T.
        multiple: N is rounded up to a multiple of it. The rows without a token repeat another;
            nothing may depend on them, and no gradient comes from them.

    Attributes:
        bounds: the first row of each sentence, and that after the last, `(B + 1,)` int32: for a
            GPU, without waiting for it.
        longest: no sentence has more tokens; from 1 to N.
    """

    def __init__(self, real: Tensor, shape: tuple[int, int], multiple: int = 1):
        self.real = real
        self.num_sentences, self.width = shape
        self.num_rows = len(real) + -len(real) % multiple
        # Neither padding nor rows without a token: packed or not, the rows are the same.
        self.is_full = len(real) == self.num_rows == shape[0] * shape[1]
        # Not when it is asked for: compiled layers can keep nothing.
        begins = torch.arange(self.num_sentences + 1, device=real.device) * self.width
        self.bounds = torch.searchsorted(real, begins, out_int32=True)
        self.longest = min(self.width, len(real))

    @cached_property
    def rows(self) -> Tensor:
        """Packed row of each of the B · T places. Padding gets row 0, arbitrarily: attention masks
        its keys, and nothing reads its outputs."""
        rows = self.real.new_zeros(self.num_sentences * self.width)
        rows[self.real] = torch.arange(len(self.real), device=rows.device)
        return rows

    def pack(self, x: Tensor) -> Tensor:
        """Return `x (B, T, D)` as `(N, D)`."""
        if self.is_full:
            return x.flatten(0, 1)
        packed: Tensor = _Pack.apply(  # type: ignore[no-untyped-call]
            x.flatten(0, 1), self.real, self.num_rows
        )
        return packed

    def unpack(self, x: Tensor) -> Tensor:
        """Return `x (N, D)` as `(B, T, D)`; padding has no meaning."""
        rows = x
        if not self.is_full:
            rows = _Unpack.apply(x, self.rows, self.real)  # type: ignore[no-untyped-call]
        return rows.view(self.num_sentences, self.width, -1)

    @cached_property
    def spans(self) -> Spans:
        """The sentences' places among the N rows, for a CPU."""
        size = torch.bincount(self.real // self.width, minlength=self.num_sentences)
        return Spans(size.cumsum(0) - size, size)


class _Pack(torch.autograd.Function):
    """Selects rows of a matrix, repeating the first up to `num_rows`.

    The gradient is a copy, not a sum as in `index_select`: each row is selected once, and the
    repeated ones have gradient zero.
    """

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
        return zeros.index_copy_(0, rows, grad[: len(rows)]), None, None


class _Unpack(torch.autograd.Function):
    """Distributes rows of a matrix to places. The gradient is a copy; padding contributes none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, real: Tensor) -> Tensor:
        ctx.save_for_backward(real)
        ctx.num_rows = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (real,) = ctx.saved_tensors
        picked = grad.index_select(0, real)
        if ctx.num_rows > len(real):
            picked = torch.cat((picked, picked.new_zeros(ctx.num_rows - len(real), grad.shape[1])))
        return picked, None, None
