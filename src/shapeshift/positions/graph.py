"""Relation-aware attention on labelled, directed graphs (Shaw et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift.errors import ShapeshiftError

from .base import temporarily_set
from .checks import can_read, describe, is_integer, whole_number
from .vectors import AddTo, PairVectors


class Graph(PairVectors):
    """Vectors a^K, a^V for the label of the edge between two nodes (Shaw et al. 2018, section 3.1).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{label of the edge i -> j}, or 0 where there is none

    Every node still attends to every other, as in the paper; a mask restricts it to its neighbours.
    Edges are directed: if both ends see an edge, give it a label in both directions.

    Queries and keys are the nodes, all of them (no cross-attention, no cache); their positions are
    not read. `use_edges` gives the labels of a batch:

        graph = Graph(num_heads=num_heads, head_dim=head_dim, num_labels=5)
        with use_edges(model, labels):
            model(x)

    The n × n × E tensor a_ij is never built: queries meet the R rows of the table once, and
    probabilities are summed by label before they meet the value table.

    Args:
        num_heads: H.
        head_dim: E.
        num_labels: R, labels are 0 … R − 1.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.

    Raises:
        ShapeshiftError: if there is no label; in the hooks, if there are no edges, or they are not
            those of the batch.
    """

    shift_invariant = True

    def __init__(self, *, num_heads: int, head_dim: int, num_labels: int, add_to: AddTo = "both"):
        whole_number("num_labels", num_labels, 1)
        super().__init__(num_heads=num_heads, head_dim=head_dim, num_rows=num_labels, add_to=add_to)
        self.num_labels = num_labels
        self.labels: Tensor | None = None  # (B|1, n, n), set by `use_edges`

    def lookup_table(self, table: Tensor) -> Tensor:
        return F.pad(table, (0, 0, 1, 0))  # row 0 is for pairs without an edge

    def rows(self, num_sentences: int, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        labels = self.labels
        if labels is None:
            raise ShapeshiftError(
                "a Graph needs edges: run the model, and the backward pass if that"
                " runs it again, in `with use_edges(model, labels):`"
            )
        pairs = pos_q.shape[1], pos_k.shape[1]
        if labels.shape[0] not in (1, num_sentences) or labels.shape[1:] != pairs:
            raise ShapeshiftError(
                f"labels must be (B|1, n, n) for a batch of {num_sentences} with {pairs[0]} queries"
                f" and {pairs[1]} keys, all the nodes, got {describe(labels)}"
            )
        return (labels + 1).unsqueeze(1)


@contextmanager
def use_edges(model: nn.Module, labels: Tensor) -> Iterator[None]:
    """Give the labels of edges to every `Graph` in `model`, until the block ends.

        with use_edges(model, labels):
            loss = model(x).sum()
            loss.backward()  # here, if the backward pass recomputes layers (checkpointing)

    Blocks nest, and the inner one holds; parts of a model can be given different edges. What was
    there before comes back, also after an exception. Like weights, edges belong to the model: two
    threads that give it different ones need a copy of it each.

    Args:
        model: a `Graph`, or any module that holds some.
        labels: integers `(B, n, n)`, or `(1, n, n)` for one graph in the whole batch, on the
            batch's device: at row i, column j the label of the edge from node i to node j, which is
            what i sees of j, or −1 where there is none, as wherever there is padding.

    Raises:
        ShapeshiftError: if `model` has no `Graph`, labels are no integers `(B, n, n)`, or, on a
            CPU, below −1 or above a graph's.
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
    if can_read(labels) and labels.numel():
        fewest = min(graph.num_labels for graph in graphs)
        lowest, highest = (int(end) for end in labels.aminmax())
        if lowest < -1 or highest >= fewest:
            raise ShapeshiftError(
                f"labels must be from −1 (no edge) to {fewest - 1} in a model with"
                f" num_labels={fewest}, got {lowest if lowest < -1 else highest}"
            )
    with temporarily_set(graphs, "labels", labels):
        yield
