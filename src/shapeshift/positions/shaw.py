"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .base import Representation, ScoreMod, inherits
from .pairs import Rows, by_table, common_lag, distance_between

AddTo = Literal["both", "keys", "values"]
"""Which vectors of a pair there are: a^K and a^V, or one of them."""


class Clip(NamedTuple):
    """clip(x, k) = max(−k, min(k, x)) of the distances x = j − i (Shaw et al. 2018, section 3.2).

    Attributes:
        max_distance: k.
        causal: keys never stand right of the query, so that the rows for j > i are left out.
    """

    max_distance: int
    causal: bool

    @property
    def num_rows(self) -> int:
        """R: 2k + 1, or k + 1 if causal."""
        return self.max_distance + 1 if self.causal else 2 * self.max_distance + 1

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest distance."""
        return -self.max_distance, 0 if self.causal else self.max_distance

    def rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, clip(j − i) + k: `(B|1, 1, Q, K)`, for all heads."""
        distances = pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)  # (B|1, Q, K)
        return (distances.clamp(*self.limits) + self.max_distance).unsqueeze(1)

    def layout(
        self, table: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Rows, Tensor, Tensor] | None:
        """Return a faster way than `rows`, None on other devices than a CPU, where positions have
        gaps, and for a table of a single row.

        The vector a_-k of all keys further left is subtracted from the others, so that these keys
        cost nothing.

        Returns:
            The layout; the table without its first row and less that, `(H|1, R − 1, E)`, or fewer
            rows if no pair is as far apart; and what was subtracted, `(H|1, E)`.
        """
        lag = common_lag(pos_q, pos_k)
        if lag is None or self.max_distance == 0:
            return None
        furthest = max(pos_q.shape[1] + lag, pos_k.shape[1] - lag, 2) - 1
        k = min(self.max_distance, furthest)
        far_left = table[:, self.max_distance - k]
        table = table[:, self.max_distance - k + 1 : self.max_distance + k + 1]
        return Rows(1 - k, table.shape[1], lag), table - far_left.unsqueeze(1), far_left


class Shaw(Representation):
    """Vectors a^K, a^V for the clipped distance between two tokens (Shaw et al. 2018, section 3).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{clip(j - i, k)},  clip(x, k) = max(-k, min(k, x))

    The n × n × E tensor a_ij is never built: queries meet the 2k + 1 rows of the table once and the
    products are gathered (the paper's section 3.3 reshapes instead); probabilities are summed by
    distance before they meet the value table.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, which says nothing of position.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: one table serves as a^K and a^V (the SHAPE authors' code); the paper has two.
        per_head: a table for each head; the paper shares one between the heads of a layer.
        std: of normal initial values; None is Xavier-uniform, each head's table by itself.
        causal: keys never stand right of the query, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative, `add_to` none of the three, or `share_tables` true
            without both tables.
    """

    places = ("self",)
    shift_invariant = splits = True

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 16,
        add_to: AddTo = "both",
        share_tables: bool = False,
        per_head: bool = False,
        std: float | None = None,
        causal: bool = False,
    ):
        super().__init__()
        if max_distance < 0:
            raise ShapeshiftError(f"max_distance must not be negative, got {max_distance}")
        self.num_heads, self.head_dim = num_heads, head_dim
        self.clip = Clip(max_distance, causal)
        self.causal_only = causal
        shape = (num_heads if per_head else 1, self.clip.num_rows, head_dim)
        self.keys, self.values = tables(shape, add_to, share_tables, std)

    def overrides(self, hook: str) -> bool:
        tables = {"query_bias": self.keys, "value_bias": self.values}
        if hook in tables and inherits(type(self), hook, Shaw):
            return tables[hook] is not None
        return super().overrides(hook)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        return key_bias(q, self.keys, self.clip.rows(pos_q, pos_k))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        return value_mix(probs, self.values, self.clip.rows(pos_q, pos_k))

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod | None:
        if self.keys is None:
            return None
        # In float32 at least: the gradients of many pairs add up in one row.
        by_row = by_table(q, self.keys.transpose(-1, -2))  # (B, H, Q, R)
        by_row = by_row.to(torch.promote_types(q.dtype, torch.float32))
        row = distance_between(pos_q, pos_k, len(q), self.clip.limits)
        return lambda score, b, h, i, j: score + by_row[b, h, i, row(b, i, j)]

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        faster = None if self.keys is None else self.clip.layout(self.keys, pos_q, pos_k)
        if faster is None:
            return super().scores(q, k, pos_q, pos_k)
        layout, table, _ = faster  # without a constant for each query, q_i a_-k
        return layout.add(q @ k.transpose(-1, -2), by_table(q, table.transpose(-1, -2)))

    def outputs(self, probs: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        faster = None if self.values is None else self.clip.layout(self.values, pos_q, pos_k)
        if faster is None:
            return super().outputs(probs, v, pos_q, pos_k)
        layout, table, far_left = faster
        out, by_row = layout.outputs(probs, v + far_left.to(v.dtype).unsqueeze(-2))
        return out + by_table(by_row, table)

    def extra_repr(self) -> str:
        tables = [name for name in ("keys", "values") if getattr(self, name) is not None]
        max_distance, causal = self.clip
        return f"max_distance={max_distance}, {'+'.join(tables)}, causal={causal}"


def tables(
    shape: tuple[int, int, int], add_to: AddTo, share: bool, std: float | None = None
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Return the tables a^K and a^V, None where there is none (Shaw et al. 2018, section 3.2).

    Args:
        shape: `(H|1, R, E)`; each head's (R, E) is Xavier-uniform by itself.
        add_to: which of the two there are.
        share: whether one serves as both.
        std: of normal initial values instead.

    Raises:
        ShapeshiftError: if `add_to` is none of the three, or there is one table and so nothing to
            share.
    """
    if add_to not in get_args(AddTo):
        raise ShapeshiftError(f"add_to must be 'both', 'keys' or 'values', got {add_to!r}")
    if share and add_to != "both":
        raise ShapeshiftError(
            f"share_tables has no meaning with add_to={add_to!r}, which has one table; leave it"
            " out, or use add_to='both'"
        )

    def table() -> nn.Parameter:
        if std is not None:
            return nn.Parameter(torch.empty(shape).normal_(std=std))
        limit = (6 / (shape[1] + shape[2])) ** 0.5
        return nn.Parameter(torch.empty(shape).uniform_(-limit, limit))

    keys = table() if add_to != "values" else None
    if add_to == "keys":
        return keys, None
    return keys, keys if share else table()


def key_bias(q: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
    """Return q_i a_ij^T, `(B, H, Q, K)`, without the n × n × E tensor a_ij.

    Args:
        q: `(B, H, Q, E)`.
        keys: the table, `(H|1, R, E)`.
        rows: of each pair, `(B|1, 1, Q, K)`.
    """
    by_row = by_table(q, keys.transpose(-1, -2))  # (B, H, Q, R)
    return by_row.gather(-1, rows.expand(*by_row.shape[:3], -1))


def value_mix(probs: Tensor, values: Tensor, rows: Tensor) -> Tensor:
    """Return sum_j p_ij a_ij, `(B, H, Q, E)`, without the n × n × E tensor a_ij; `probs` are
    `(B, H, Q, K)`, see `key_bias`."""
    # In float32 at least: thousands of small numbers may fall into one sum.
    wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
    sums = wide.new_zeros(*wide.shape[:3], values.shape[1])  # (B, H, Q, R)
    sums = sums.scatter_add(-1, rows.expand_as(wide), wide)
    return by_table(sums.to(probs.dtype), values)
