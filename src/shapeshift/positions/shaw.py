"""Relative position representations (Shaw et al. 2018; Huang et al. 2019)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from . import pairs
from .base import Representation, check_heads, inherits
from .checks import check_positions, whole_number
from .relative import distances


def xavier_uniform(table: Tensor) -> Tensor:
    """Draw a table `(H|1, R, E)`, each head separately."""
    limit = (6 / sum(table.shape[1:])) ** 0.5
    return table.uniform_(-limit, limit)


class Shaw(Representation):
    """Vectors a^K, a^V for the clipped distance between two tokens (Shaw et al. 2018, section 3).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{clip(j - i, k)},  clip(x, k) = max(-k, min(k, x))

    The n × n × E tensor a_ij is never built: queries are multiplied with the 2k + 1 rows of the
    table once and the products are gathered (the paper's section 3.3 reshapes instead);
    probabilities are summed by distance before the product with the value table.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, without position information.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: use one table for a^K and a^V (the SHAPE authors' code); the paper has two.
        per_head: use a table for each head; in the paper the heads of a layer share one.
        causal: attention is causal, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative, or `share_tables` is true without both tables.
    """

    places = ("self",)
    shift_invariant = splits = True

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 16,
        add_to: Literal["both", "keys", "values"] = "both",
        share_tables: bool = False,
        per_head: bool = False,
        causal: bool = False,
    ):
        super().__init__()
        if share_tables and add_to != "both":
            raise ShapeshiftError(
                f"share_tables has no meaning with add_to={add_to!r}, which has one table; leave it"
                " out, or use add_to='both'"
            )
        self.num_heads, self.head_dim = num_heads, head_dim
        self.max_distance = whole_number("max_distance", max_distance, 0)
        self.causal_only = causal
        self.limits = -max_distance, 0 if causal else max_distance
        num_rows = 1 + self.limits[1] + max_distance

        def table() -> nn.Parameter:
            empty = torch.empty(num_heads if per_head else 1, num_rows, head_dim)
            return nn.Parameter(self.initialize(empty))

        self.keys = None if add_to == "values" else table()  # (H|1, R, E)
        self.values = None if add_to == "keys" else self.keys if share_tables else table()
        if share_tables:  # a model from the meta device gets a tensor for each name
            self.register_load_state_dict_post_hook(_share_tables)  # type: ignore[no-untyped-call]

    initialize = staticmethod(xavier_uniform)

    def overrides(self, hook: str) -> bool:
        tables = {"query_bias": self.keys, "value_bias": self.values}
        if hook in tables and inherits(self, hook, Shaw):
            return tables[hook] is not None
        return super().overrides(hook)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        check_positions("pos_q", pos_q, q.shape[0], q.shape[2])
        return pairs.query_bias(q, self.keys, self._rows(pos_q, pos_k))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        check_heads(probs, probs.mT, pos_q, pos_k)
        return pairs.value_bias(probs, self.values, self._rows(pos_q, pos_k))

    def _rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, `(B|1, Q, K)`."""
        return distances(pos_q, pos_k).clamp(*self.limits) + self.max_distance

    def tables(self) -> tuple[pairs.Table | None, pairs.Table | None]:
        first, last = (limit + self.max_distance for limit in self.limits)  # as `_rows`

        def of(x: Tensor | None) -> pairs.Table | None:
            if x is not None and (first, last) != (0, x.shape[1] - 1):  # a subclass set `limits`
                x = x[:, first : last + 1] if 0 <= first <= last < x.shape[1] else None
            return None if x is None else pairs.Table(x, self.limits[0])

        return of(self.keys), of(self.values)


def _share_tables(shaw: Shaw, _: object) -> None:
    shaw.values = shaw.keys


class Skew(Shaw):
    """Vectors r for the clipped distance between two tokens, on the key side only (Huang et al.
    2019, sections 3.3 and 3.4).

        e_ij = (q_i k_j^T + S_ij) / sqrt(E),  S_ij = q_i r_ij^T,  r_ij = E_r[clip(j - i, k)]
        clip(x, k) = max(-k, min(k, x))

    This is `Shaw` without a^V, with a table for each head that starts as N(0, 1 / E).

    Differs from the paper in the gathering: the paper skews the (Q, R) products by padding and
    reshaping, which needs positions without gaps; here the products are gathered by position. The
    result is the same. The paper's model has only a decoder; an encoder's table also has rows for
    keys on the right.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, without position information.
            The paper chooses it by the length of its sequences, so that few pairs are clipped.
        per_head: use a table for each head, as in the paper, or one for all heads of a layer.
        causal: attention is causal, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative.
    """

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 64,
        per_head: bool = True,
        causal: bool = False,
    ):
        super().__init__(
            num_heads=num_heads,
            head_dim=head_dim,
            max_distance=max_distance,
            add_to="keys",
            per_head=per_head,
            causal=causal,
        )

    @staticmethod
    def initialize(table: Tensor) -> Tensor:
        return table.normal_(std=table.shape[-1] ** -0.5)  # |r| is near 1 for any R
