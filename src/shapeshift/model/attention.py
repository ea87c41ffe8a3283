"""Multi-head attention, which calls the hooks of a position representation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import Call, run
from shapeshift.attention.call import split_heads
from shapeshift.attention.masks import additive
from shapeshift.attention.packing import Packing
from shapeshift.positions import Representation
from shapeshift.positions.base import check_sizes
from shapeshift.positions.checks import check_positions, describe

from .cache import FixedKeyValues, KeyValues, SourceKeyValues
from .linear import apply_linear, linear


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(E)) V with H heads (Vaswani et al. 2017, section 3.2.2), and position
    wherever `position` puts it.

    Args:
        dim: D.
        num_heads: H; D must be a multiple.
        dropout: of the attention probabilities.
        position: see `shapeshift.positions.Representation`.

    Raises:
        ShapeshiftError: if D is not a multiple of H, or `position` was built for other sizes.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, position: Representation):
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ShapeshiftError(f"dim must be a multiple of num_heads, got {dim} and {num_heads}")
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        check_sizes(position, dim=dim, num_heads=num_heads, head_dim=self.head_dim)
        self.dropout = dropout
        self.position = position
        # One weight for the three projections: in self-attention they are one product.
        self.in_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out = nn.Linear(dim, dim)
        for weight in (*self.in_weight.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.out.bias)
        # In a copy for inference: projects `x (…, D)` with the weights `first` to `last` of those
        # of queries, keys and values -> `(…, (last - first) · D)`.
        self.projections: Callable[[Tensor, int, int], Tensor] | None = None

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        pos_q: Tensor,
        pos_k: Tensor,
        mask: Tensor | None,
        cache: KeyValues | FixedKeyValues | SourceKeyValues | None = None,
        *,
        causal: bool = False,
        packing: tuple[Packing, Packing] | None = None,
    ) -> Tensor:
        """Let `x (B, Q, D)` attend to `memory (B, K, D)`; in self-attention both are one tensor.

        Args:
            x, memory: inputs of the query, and of the key and value projections.
            pos_q, pos_k: positions of queries and of all keys, those in the cache first.
            mask: as of `attend`, broadcastable to `(B, 1, Q, K)`.
            cache: keys, values and state to continue, with which nothing is checked; `memory` then
                holds the new ones alone, and may be empty (K = 0) when all are there.
            causal: whether each query sees only the keys up to its own.
            packing: of queries and keys; `x` and `memory` are then `(N, D)`, and there is no cache.

        Returns:
            `(B, Q, D)`, packed if `x` is.
        """
        if cache is None:
            mask = mask if mask is None else additive(mask, x.dtype)
            if packing is None:
                num_axes = self.position.num_axes
                check_positions("pos_q", pos_q, x.shape[0], x.shape[1], num_axes)
                check_positions("pos_k", pos_k, x.shape[0], memory.shape[1], num_axes)
                if memory.shape[0] != x.shape[0]:
                    raise ShapeshiftError(
                        f"x and memory must have one B, got {x.shape[0]} and {memory.shape[0]}"
                    )
        packed = packing
        has_state = self.position.acts("state")
        if packing and (has_state or self.position.acts("inputs")):  # which see whole sentences
            alone, packed = memory is not x, None
            x = packing[0].unpack(x)
            memory = packing[1].unpack(memory) if alone else x
        # In self-attention the queries are the new keys: position need not be encoded twice.
        pos_new = pos_q
        if memory is not x:
            pos_new = pos_k if packed else pos_k[:, pos_k.shape[1] - memory.shape[1] :]
        state = self.position("state", memory, pos_new) if has_state else None
        call = Call(
            self._project(*self._inputs(x, memory, pos_q, pos_new)),
            self.position,
            pos_q,
            pos_k,
            mask,
            dropout_p=self.dropout if self.training else 0.0,
            causal=causal,
            num_heads=self.num_heads,
            packing=packed,
            cache=cache,
            state=state,
            pos_new=pos_new,
        )
        out = run(call).flatten(-2)  # (B, Q, D)
        return apply_linear(self.out, packing[0].pack(out) if packing and not packed else out)

    def keys_and_values(self, memory: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of `memory (B, K, D)`, `(B, H, K, E)` each, as `forward`
        caches them."""
        pos_q = pos_k[:, :1]
        inputs = self._inputs(memory[:, :1], memory, pos_q, pos_k)
        q, k, v = split_heads(self._project(*inputs), self.num_heads)
        return self.position("rotate", q, k, pos_q, pos_k)[1], v

    def _inputs(
        self, x: Tensor, memory: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs of the three projections."""
        if not self.position.acts("inputs"):
            return x, memory, memory
        # Copies, which `inputs` may change in place: `x` may be the residual, and `memory` is that
        # of all layers.
        alone, x = memory is not x, x.clone()
        memory = memory.clone() if alone else x
        given = x, memory, memory
        inputs: tuple[Tensor, Tensor, Tensor] = self.position("inputs", *given, pos_q, pos_k)
        if any(got.shape != wanted.shape for got, wanted in zip(inputs, given, strict=True)):
            raise ShapeshiftError(
                f"what inputs returns must be {', '.join(map(describe, given))}, as its arguments,"
                f" got {', '.join(map(describe, inputs))}"
            )
        return inputs

    def _project(self, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        """Return the projections of inputs `(…, D)`; projections of the same input are
        concatenated."""
        inputs = [q] if q is k and k is v else [q, k] if k is v else [q, k, v]
        sizes = ((3,), (1, 2), (1, 1, 1))[len(inputs) - 1]
        weights: Sequence[Tensor] = [self.in_weight]
        biases: Sequence[Tensor] = [self.in_bias]
        # The gradient of a split is one concatenation, of slices a sum.
        if len(sizes) > 1 and self.projections is None:
            widths = [size * q.shape[-1] for size in sizes]
            weights, biases = (torch.split(x, widths) for x in (self.in_weight, self.in_bias))
        projected: list[Tensor] = []
        for n, (x, size) in enumerate(zip(inputs, sizes, strict=True)):
            if n and not x.shape[-2]:  # all keys and values are in the cache
                projected.append(projected[0].new_empty(x.shape[0], 0, size * q.shape[-1]))
            elif self.projections is not None:
                projected.append(self.projections(x, n, n + size))
            else:
                projected.append(linear(x, weights[n], biases[n]))
        return projected
