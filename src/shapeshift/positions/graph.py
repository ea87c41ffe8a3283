"""Relation-aware attention on labelled, directed graphs (Shaw et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError

from . import pairs
from .base import Representation, temporarily_set
from .checks import describe, is_integer, whole_number
from .shaw import xavier_uniform


class Graph(Representation):
    """Vectors a^K, a^V for the label of the edge between two nodes (Shaw et al. 2018, section 3.1).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{label of the edge i -> j}, or 0 if there is no edge

    As in the paper, every node attends to every other node; use a mask to restrict it to its
    neighbours. Edges are directed: label an undirected edge in both directions.

    Queries and keys are all nodes of the graph (no cross-attention, no cache); their positions are
    not used. `use_edges` sets the labels of a batch:

        graph = Graph(num_heads=num_heads, head_dim=head_dim, num_labels=5)
        with use_edges(model, labels):
            model(x)

    The n × n × E tensor a_ij is never built: queries are multiplied with the R rows of the table
    once, and probabilities are summed by label before the product with the value table.

    Args:
        num_heads: H.
        head_dim: E.
        num_labels: R, labels are 0 … R − 1.

    Raises:
        ShapeshiftError: if `num_labels` is below 1; in the hooks, if edges are missing or their
            shape does not match the batch.
    """

    places = ("self",)
    shift_invariant = True

    def __init__(self, *, num_heads: int, head_dim: int, num_labels: int):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.num_labels = whole_number("num_labels", num_labels, 1)
        self.keys = nn.Parameter(xavier_uniform(torch.empty(1, num_labels, head_dim)))
        self.values = nn.Parameter(xavier_uniform(torch.empty(1, num_labels, head_dim)))
        self.labels: Tensor | None = None  # (B|1, n, n), set by `use_edges`

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return pairs.query_bias(q, _with_none(self.keys), self._rows(q.shape[0], pos_q, pos_k))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        rows = self._rows(probs.shape[0], pos_q, pos_k)
        return pairs.value_bias(probs, _with_none(self.values), rows)

    def _rows(self, num_sentences: int, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return each pair's row `(B|1, n, n)` in the table that `_with_none` returns."""
        labels = self.labels
        if labels is None:
            raise ShapeshiftError(
                "a Graph needs edges: run the model, and the backward pass if that"
                " runs it again, in `with use_edges(model, labels):`"
            )
        sizes = pos_q.shape[1], pos_k.shape[1]
        if labels.shape[0] not in (1, num_sentences) or labels.shape[1:] != sizes:
            raise ShapeshiftError(
                f"labels must be (B|1, n, n) for a batch of {num_sentences} with {sizes[0]} queries"
                f" and {sizes[1]} keys, all the nodes, got {describe(labels)}"
            )
        return labels + 1


def _with_none(table: Tensor) -> Tensor:
    return F.pad(table, (0, 0, 1, 0))  # row 0 is for pairs without an edge


@contextmanager
def use_edges(model: nn.Module, labels: Tensor) -> Iterator[None]:
    """Set the edge labels of every `Graph` in `model` until the block ends.

        with use_edges(model, labels):
            loss = model(x).sum()
            loss.backward()  # here, if the backward pass recomputes layers (checkpointing)

    Blocks can be nested: the inner one applies. Parts of a model can have different edges. The
    previous edges are restored at the end, also after an exception. Like weights, edges belong to
    the model: two threads that use different edges each need a copy of it.

    Args:
        model: a `Graph`, or any module that contains one.
        labels: integers `(B, n, n)`, or `(1, n, n)` for one graph in the whole batch, on the
            batch's device: row i, column j is the label of the edge from node i to node j, used
            when i attends to j, or −1 if there is no edge, as for padding.

    Raises:
        ShapeshiftError: if `model` has no `Graph`, or if labels are not integers `(B, n, n)`. For a
            label that is not in the table, PyTorch's look-up raises the error.
    """
    graphs = [module for module in model.modules() if isinstance(module, Graph)]
    if not graphs:
        raise ShapeshiftError(
            f"{type(model).__name__} has no Graph; build it with position="
            "Graph(num_heads=…, head_dim=…, num_labels=…)"
        )
    if not is_integer(labels) or labels.ndim != 3 or labels.shape[1] != labels.shape[2]:
        raise ShapeshiftError(f"labels must be integers (B, n, n), got {describe(labels)}")
    labels = labels.long()  # of another type they would not index
    with temporarily_set(graphs, "labels", labels):
        yield
