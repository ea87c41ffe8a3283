"""Attention of whole sentences, forward and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError

from . import library
from .library import Argument, wrong_size

_BLOCK = 32  # of `products.h`: queries at a time, and keys are rounded up to it


class SentenceAttention:
    """Forward and backward pass of one attention of whole sentences.

    Args:
        heads: queries, keys and values, `(B, H, Q|K, E)`, or with `spans` `(1, H, N, E)`.
        tables: `(H|1, R, E)`, added to keys and to values by distance, or None.
        lows: query i and key j have row j − i − low of a table, clipped to the first or last row.
        bias: added to the scores, `(B|1, H|1, Q|1, K|1)`, or by distance, `(H|1, R)`, or None.
        mask: as a bias with a number for each pair; it has no gradient.
        spans: of queries and of keys: the first row and the number of rows of each sentence, `(B,)`
            int64; by default, sentences are the first dimension of `heads`.
        causal: query i of n does not see the last n − 1 − i keys.
        turns: of queries and of keys: cosines and sines `(B|1, T, r/2)` by which pairs of channels
            rotate, and whether a pair are channels m and m + r/2, in place of 2m and 2m + 1.
        origin: the column of a bias by distance of the first query and the first key.

    Raises:
        ShapeshiftError: if sizes do not fit each other.
    """

    def __init__(
        self,
        heads: Sequence[Tensor],
        tables: Sequence[Tensor | None],
        lows: Sequence[int],
        bias: Tensor | None,
        mask: Tensor | None,
        spans: Sequence[Sequence[Any]] | None,
        causal: bool,
        turns: Sequence[Sequence[Any]] | None = None,
        origin: int = 0,
    ):
        q = heads[0]
        shapes = [tuple(x.shape) for x in heads]
        if shapes[1] != shapes[2] or shapes[0] != (*shapes[1][:2], q.shape[2], shapes[1][3]):
            raise wrong_size("queries, keys and values", shapes, "(B, H, Q|K, E)")
        self._heads = [x if x.stride(-1) == 1 else x.contiguous() for x in heads]
        self._causal, self._origin = causal, origin
        self._sentences, self._is_packed = _sentences(heads, spans), spans is not None
        sizes = self._sentences[1], self._sentences[3]
        if causal and (blind := sizes[0] > sizes[1]).any():
            got = [int(x[blind][0]) for x in sizes]
            raise wrong_size("numbers of queries and of keys", got, "such that each query sees one")
        num_pairs = q.shape[1] * sizes[0] * sizes[1]
        self.num_pairs = int(num_pairs.sum())  # of queries and keys
        self._sentences.append(num_pairs.cumsum(0) - num_pairs)
        self._longest = [int(size.max()) for size in sizes]
        self.most_keys = self._longest[1]
        self._shape = len(sizes[0]), q.shape[1], *self._longest
        self._set_tables(tables, lows, q.shape[3])
        self._turns = [self._turn(x, n, q.shape[3]) for n, x in enumerate(turns or ())]
        self._by_distance = bias is not None and bias.ndim == 2
        if bias is not None:
            bias = self._diagonals(bias) if self._by_distance else self._expanded(bias)
        self._bias, self._mask = bias, None if mask is None else self._expanded(mask)

    def _set_tables(self, tables: Sequence[Tensor | None], lows: Sequence[int], E: int) -> None:
        H = self._shape[1]
        self._rows: list[int] = []
        for x, low in zip(tables, lows, strict=True):
            if x is not None and (x.ndim != 3 or x.shape[0] not in (1, H) or x.shape[2] != E):
                raise wrong_size("vectors of a table", x.shape, f"({H} or 1, distances, {E})")
            self._rows += [0, 0] if x is None else [x.shape[1], low]
        self._table_sizes = [() if x is None else tuple(x.shape) for x in tables]
        self._num_tables = max((len(x) for x in tables if x is not None), default=1)
        self._tables = [
            None if x is None else x.float().expand(self._num_tables, -1, -1).contiguous()
            for x in tables
        ]

    def _turn(self, turn: Sequence[Any], side: int, E: int) -> tuple[Tensor, Tensor, bool]:
        cos, sin, halves = turn[:3]
        B, longest, size = self._shape[0], self._longest[side], tuple(cos.shape)
        fits = size == sin.shape and len(size) == 3 and size[0] in (1, B)
        if not fits or size[1] < longest or 2 * size[2] > E:
            wanted = f"(B or 1, T, pairs) = {(B, longest, E // 2)}"
            raise wrong_size("cosines and sines of turns", size, wanted)
        return cos.float().contiguous(), sin.float().contiguous(), halves

    def _diagonals(self, bias: Tensor) -> Tensor:
        """Return a bias by distance, starting at the origin, padded so that a vector of 32 pairs
        may read beyond its end."""
        Q, K = self._longest
        if self._origin < Q - 1 or bias.shape[1] - self._origin < K:
            wanted = f"(H or 1, distances) for {Q} queries and {K} keys"
            raise wrong_size("a bias by distance", bias.shape, wanted)
        bias = bias.to(self._heads[0].dtype).expand(self._shape[1], -1)
        return F.pad(bias, (0, _BLOCK))[:, self._origin :]

    def _expanded(self, x: Tensor) -> Tensor:
        """Expand a bias or a mask to a number for each pair."""
        x = x if x.ndim > 1 else x[None]
        B, H, Q, K = self._shape
        # A batch of packed sentences may have more padding than it needs.
        larger = [
            max(w, n) if self._is_packed else n for w, n in zip(x.shape[-2:], (Q, K), strict=True)
        ]
        if not broadcasts(x.shape, (B, H, *larger)):
            raise wrong_size("a bias or mask", x.shape, f"(B, H, Q, K) = {self._shape}, or 1")
        x = x.to(self._heads[0].dtype).expand(B, H, *larger)
        return x if x.stride(-1) == 1 else x.contiguous()

    def forward(self, out: Tensor, drawn: tuple[int, int, float], saved: Tensor | None) -> None:
        """Write the attention to `out (B, H, Q, E)` or `(1, H, N, E)`.

        Args:
            drawn: seed, threshold and scale, what `shapeshift.attention.dropout.draw_seed` returns.
            saved: `(num_pairs,)`, what `backward` may read, written.
        """
        self._call(
            "attention_forward",
            2,
            *self._named(("queries", "keys", "values"), self._heads),
            self._batch(out),
            *self._inputs(drawn, saved),
            *self._named(("out",), (out,)),
        )

    def backward(
        self,
        grad: Tensor,
        drawn: tuple[int, int, float],
        saved: Tensor | None,
        grads: Sequence[Tensor],
        bias_shape: torch.Size | None,
    ) -> list[Tensor | None]:
        """Given the gradient of the result, write those of the heads to `grads`. Return the
        gradients of the bias, if it has a shape `(B|1, H|1, Q|1, K|1)` or `(H|1, R)`, and of the
        tables, in float32."""
        B, H, Q, K = self._shape
        threads = torch.get_num_threads()
        bias = sums = None
        if bias_shape is not None and self._by_distance:
            numbers = grad.new_zeros(threads, H, bias_shape[1] + _BLOCK, dtype=torch.float32)
            sums = numbers[..., self._origin :]
        elif bias_shape is not None and bias_shape[0] == B:
            bias = (grad.new_zeros if self._is_packed else grad.new_empty)(B, H, Q, K)
        elif bias_shape is not None:
            width = -(-K // _BLOCK) * _BLOCK
            sums = grad.new_zeros(threads, H, Q, width, dtype=torch.float32)
        tables = [
            None if x is None else x.new_zeros(threads, *x.shape, dtype=torch.float32)
            for x in self._tables
        ]
        self._call(
            "attention_backward",
            5,
            *self._named(("queries", "keys", "values", "grad"), (*self._heads, grad)),
            self._batch(grad, grads),
            *self._inputs(drawn, saved),
            *self._named(("gradients of queries", "of keys", "of values"), grads),
            Argument("gradients of a bias", bias, grad.dtype),
            Argument("sums of those", sums, torch.float32),
            *(Argument("gradients of a table", x, torch.float32) for x in tables),
        )
        if bias_shape is not None and self._by_distance:
            bias = numbers[..., : bias_shape[1]].sum(0).sum_to_size(bias_shape)
        elif bias_shape is not None:
            bias = bias if sums is None else sums[..., :K].sum(0, keepdim=True)
            assert bias is not None
            more = [w - n if w > 1 else 0 for w, n in zip(bias_shape[2:], (Q, K), strict=True)]
            bias = F.pad(bias, (0, more[1], 0, more[0])) if any(more) else bias
            bias = bias.sum_to_size(bias_shape)
        by_table = zip(tables, self._table_sizes, strict=True)
        return [bias, *(None if x is None else x.sum(0).sum_to_size(n) for x, n in by_table)]

    def _call(self, name: str, products: int, *arguments: Any) -> None:
        q = self._heads[0]
        work = products * self.num_pairs * q.shape[3]
        library.call(name, q.dtype, work, *arguments, torch.get_num_threads())

    def _named(self, names: Sequence[str], tensors: Sequence[Tensor]) -> list[Argument]:
        dtype = self._heads[0].dtype
        return [Argument(name, x, dtype) for name, x in zip(names, tensors, strict=True)]

    def _inputs(self, drawn: tuple[int, int, float], saved: Tensor | None) -> tuple[Any, ...]:
        dtype = self._heads[0].dtype
        return (
            Argument("a bias", self._bias, dtype),
            Argument("a mask", self._mask, dtype),
            *drawn,
            Argument("what is saved", saved, dtype, (self.num_pairs,)),
        )

    def _batch(self, out: Tensor, grads: Sequence[Tensor] = ()) -> Any:
        """Return `struct batch` of `attention.c`."""
        q = self._heads[0]
        tensors = *self._heads, out, *(grads or self._heads)
        for x, like in zip(tensors, (*self._heads, q, *self._heads), strict=True):
            if x.shape != like.shape:
                raise wrong_size("a result or a gradient", x.shape, str(tuple(like.shape)))
        tables = [(x, () if x is None else x.shape) for x in self._tables]
        numbers = [self._shape[0], q.shape[1], q.shape[3], self._causal, *self._longest]
        numbers += [_address("sentences", x, torch.int64, self._shape[:1]) for x in self._sentences]
        numbers += [x.stride(n) for x in tensors for n in (2 if self._is_packed else 0, 1, 2)]
        for added in (self._bias, self._mask):
            if added is not None and added.ndim == 2:  # the next query's begin one before
                numbers += 0, added.stride(0), -1
            else:
                numbers += (0, 0, 0) if added is None else added.stride()[:3]
        numbers += [_address("a table", x, torch.float32, n) for x, n in tables]
        numbers += [self._num_tables, *self._rows]
        for cos, sin, halves in self._turns:
            numbers += [_address("a turn", x, torch.float32, cos.shape) for x in (cos, sin)]
            numbers += [cos.shape[-1], halves, 0 if len(cos) == 1 else cos.stride(0)]
        numbers += [0] * (0 if self._turns else 10)
        return (ctypes.c_long * (len(numbers) + 1))(*numbers)  # and `stopped`


def _address(name: str, x: Tensor | None, dtype: torch.dtype, size: Sequence[int]) -> int:
    return Argument(name, x, dtype, size).address("attention")


def _sentences(heads: Sequence[Tensor], spans: Sequence[Sequence[Any]] | None) -> list[Tensor]:
    """Return the first row and the number of rows of each sentence, of queries and of keys.

    Raises:
        ShapeshiftError: if a sentence has rows that do not exist.
    """
    if spans is None:
        first = torch.arange(len(heads[0]), device="cpu")
        return [y for x in heads[:2] for y in (first, torch.full_like(first, x.shape[2]))]
    found = [x for span in spans for x in span[:2]]
    if len(found) != 4 or found[0].ndim != 1 or len({x.shape for x in found}) > 1:
        raise wrong_size("sentences", [tuple(x.shape) for x in found], "four tensors (B,)")
    for first, size, tokens in zip(found[::2], found[1::2], heads, strict=False):
        num_rows = tokens.shape[2]
        for begin, count in zip(first.tolist(), size.tolist(), strict=True):
            if not 0 <= begin <= begin + count <= num_rows:
                raise ShapeshiftError(
                    f"sentences must lie in the {num_rows} rows of tokens, got one of {count} from"
                    f" row {begin} on"
                )
    return found


def broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether a tensor of a shape can be expanded to the `wanted` one."""
    own = [1] * (len(wanted) - len(shape)) + list(shape)
    return len(own) == len(wanted) and all(w in (1, m) for w, m in zip(own, wanted, strict=True))
