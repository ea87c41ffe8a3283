"""Relative position representations (Shaw et al. 2018; Huang et al. 2019)."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .checks import whole_number
from .pairs import Table


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

    Adds trained vectors for the distance between two tokens to keys and values. Choose it first for
    translation; it takes more time than absolute positions.

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
        self.add_to, self.share_tables, self.per_head = add_to, share_tables, per_head
        self.causal = self.causal_only = causal
        num_rows = 1 + max_distance + (0 if causal else max_distance)

        def table() -> nn.Parameter:
            empty = torch.empty(num_heads if per_head else 1, num_rows, head_dim)
            return nn.Parameter(self.initialize(empty))

        self.keys = None if add_to == "values" else table()  # (H|1, R, E)
        self.values = None if add_to == "keys" else self.keys if share_tables else table()
        if share_tables:
            self.register_load_state_dict_post_hook(_share_tables)  # type: ignore[no-untyped-call]

    initialize = staticmethod(xavier_uniform)

    def _apply(self, *args: Any, **kwargs: Any) -> Self:  # `to_empty`
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        if self.share_tables:
            _share_tables(self, None)
        return self

    def distance_vectors(self) -> tuple[Table | None, Table | None]:
        low = -self.max_distance
        keys, values = (None if x is None else Table(x, low) for x in (self.keys, self.values))
        return keys, values


def _share_tables(shaw: Shaw, _: object) -> None:
    """Make one table of two: on the way from the meta device, each name gets a tensor."""
    if {"keys", "values"} <= shaw._parameters.keys():
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

    Adds trained vectors for the distance between two tokens to the keys of each head. Choose it to
    compare with `shaw`, which also adds them to the values.

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
