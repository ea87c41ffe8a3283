"""Base class of the kinds with a vector for each pair of tokens, from a table."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .base import Representation, age, inherits
from .pairs import by_table

AddTo = Literal["both", "keys", "values"]
"""Which vectors a pair has: a^K, a^V or both."""


class PairVectors(Representation):
    """A kind with vectors a^K, a^V for each pair of tokens (Shaw et al. 2018, section 3.1).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)

    A subclass defines `rows`, the row of the tables for each pair. Overriding it or `lookup_table`
    counts as overriding the hooks, see `Representation`. The n × n × E tensor a_ij is never built:
    queries are multiplied with the R rows of the table once and the products are added to their
    pairs; probabilities are summed by row before the product with the value table.

    Args:
        num_heads: H.
        head_dim: E.
        num_rows: R.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: use one table for a^K and a^V.
        per_head: use a table for each head, or one for all heads of a layer.

    Raises:
        ShapeshiftError: if `share_tables` is true without both tables.
    """

    places = ("self",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        for hook in ("query_bias", "value_bias"):  # what they call is new, and so are they
            if age(cls, "rows", "lookup_table") < age(cls, hook):
                setattr(cls, hook, getattr(cls, hook))
        super().__init_subclass__(**kwargs)

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        num_rows: int,
        add_to: AddTo,
        share_tables: bool = False,
        per_head: bool = False,
    ):
        super().__init__()
        if share_tables and add_to != "both":
            raise ShapeshiftError(
                f"share_tables has no meaning with add_to={add_to!r}, which has one table; leave it"
                " out, or use add_to='both'"
            )
        self.num_heads, self.head_dim = num_heads, head_dim

        def table() -> nn.Parameter:
            empty = torch.empty(num_heads if per_head else 1, num_rows, head_dim)
            self.initialize(empty)
            return nn.Parameter(empty)

        self.keys = None if add_to == "values" else table()  # (H|1, R, E)
        self.values = None if add_to == "keys" else self.keys if share_tables else table()

    def initialize(self, table: Tensor) -> None:
        """Draw a new table `(H|1, R, E)`: Xavier-uniform, each head separately."""
        limit = (6 / sum(table.shape[1:])) ** 0.5
        table.uniform_(-limit, limit)

    def rows(self, num_sentences: int, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, `(B|1, 1, Q, K)`, for all heads; B is `num_sentences`."""
        raise NotImplementedError

    def lookup_table(self, table: Tensor) -> Tensor:
        """Return the table `(H|1, R, E)` that `rows` indexes; by default `keys` or `values`."""
        return table

    def overrides(self, hook: str) -> bool:
        tables = {"query_bias": self.keys, "value_bias": self.values}
        if hook in tables and inherits(type(self), hook, PairVectors):
            return tables[hook] is not None
        return super().overrides(hook)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        rows = self.rows(q.shape[0], pos_q, pos_k)
        by_row = by_table(q, self.lookup_table(self.keys).transpose(-1, -2))  # (B, H, Q, R)
        return by_row.gather(-1, rows.expand(*by_row.shape[:3], -1))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        rows, table = self.rows(probs.shape[0], pos_q, pos_k), self.lookup_table(self.values)
        # In float32 at least: thousands of small numbers may fall into one sum.
        wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
        sums = wide.new_zeros(*wide.shape[:3], table.shape[1])
        sums = sums.scatter_add(-1, rows.expand_as(wide), wide)
        return by_table(sums.to(probs.dtype), table)
