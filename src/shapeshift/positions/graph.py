"""Relation-aware attention on labelled, directed graphs (Shaw et al. 2018, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .base import Representation, inherits, temporarily_set
from .checks import describe, is_integer
from .pairs import by_table
from .shaw import AddTo, tables


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of B graphs, N together; edge number e leads from node `query[e]` to node `key[e]`
    of graph `graph[e]`, and is what the first sees of the second: a_ij for i = query, j = key.

        Edges.from_lists([[(0, 1, 2), (1, 0, 0)], [(2, 0, 1)]], num_nodes=[2, 3])

    Edges are directed; give a pair its edge in the other direction, too, if both ends see it.
    Several edges of one pair add up. An edge may have a weight, so that edges with a vector of F
    features, instead of a label, are F edges each, with the labels 0 … F − 1 and the features as
    weights: a_ij is then a trained linear map of the features.

    Args:
        graph, query, key, label: integers `(N,)`.
        num_nodes: of each graph, B numbers. Padding has no edges.
        weight: `(N,)`, floating; None is 1 for every edge.

    Raises:
        ShapeshiftError: if shapes or types do not fit, or an edge names a graph, a node or a label
            that cannot be; the latter is not looked at in what `torch.compile` and `torch.export`
            trace, nor on another device than the CPU.
    """

    graph: Tensor
    query: Tensor
    key: Tensor
    label: Tensor
    num_nodes: tuple[int, ...]
    weight: Tensor | None = None

    def __post_init__(self) -> None:
        if not self.num_nodes or min(self.num_nodes) < 0:
            raise ShapeshiftError(
                f"num_nodes must give each graph's size from 0, got {self.num_nodes}"
            )
        for name in ("graph", "query", "key", "label"):
            tensor = getattr(self, name)
            if not is_integer(tensor) or tensor.ndim != 1 or tensor.shape != self.graph.shape:
                raise ShapeshiftError(
                    f"{name} must be integers, one number for each edge as in graph, got"
                    f" {describe(tensor)}"
                )
            object.__setattr__(self, name, tensor.long())  # which index tensors
        weight = self.weight
        if weight is not None and not (
            weight.is_floating_point() and weight.shape == self.graph.shape
        ):
            raise ShapeshiftError(
                f"weight must be floating-point numbers, one for each edge, got {describe(weight)}"
            )
        # A compiled graph cannot ask what its numbers are, and asking a GPU would wait for it.
        if not torch.compiler.is_compiling() and self.graph.device.type == "cpu":
            self._check_ranges()

    def _check_ranges(self) -> None:
        columns = graph, query, key, label = self.graph, self.query, self.key, self.label
        wrong = (graph < 0) | (graph >= self.num_graphs)
        sizes = torch.tensor(self.num_nodes)[graph.masked_fill(wrong, 0)]  # (N,)
        wrong |= (
            (torch.minimum(query, key) < 0) | (torch.maximum(query, key) >= sizes) | (label < 0)
        )
        if wrong.any():
            e = int(wrong.nonzero()[0, 0])
            b, i, j, number = (int(column[e]) for column in columns)
            raise ShapeshiftError(
                f"edge {e}, from node {i} to {j} of graph {b} with label {number}, cannot be:"
                f" there are {self.num_graphs} graphs, nodes from 0, labels from 0"
            )

    @property
    def num_graphs(self) -> int:
        """B."""
        return len(self.num_nodes)

    @property
    def length(self) -> int:
        """The nodes of the largest graph."""
        return max(self.num_nodes)

    @classmethod
    def from_lists(
        cls, edges: Sequence[Sequence[Sequence[int]]], num_nodes: Sequence[int]
    ) -> Edges:
        """Return the edges that B lists name, one list a graph.

        Args:
            edges: for each graph a list of (query, key, label).
            num_nodes: of each graph, for some may have no edge.

        Raises:
            ShapeshiftError: if a list has another row, or there are not B numbers.
        """
        if len(edges) != len(num_nodes):
            raise ShapeshiftError(
                f"num_nodes must give one number for each graph, got {len(num_nodes)} for"
                f" {len(edges)} lists of edges"
            )
        rows = [(b, *row) for b, each in enumerate(edges) for row in each]
        for row in rows:
            if len(row) != 4 or not all(isinstance(number, int) for number in row):
                raise ShapeshiftError(
                    f"edges of graph {row[0]} must be rows of three integers (query, key, label),"
                    f" got {row[1:]}"
                )
        graph, query, key, label = torch.tensor(rows, dtype=torch.long).view(-1, 4).unbind(1)
        return cls(graph, query, key, label, tuple(num_nodes))

    def to(self, device: torch.device | str) -> Edges:
        """Return the same edges on `device`, as `Tensor.to`."""
        names = ("graph", "query", "key", "label", "weight")
        given = {name: getattr(self, name) for name in names}
        moved = {name: each.to(device) for name, each in given.items() if each is not None}
        return replace(self, **moved)

    def padding_mask(self) -> Tensor:
        """Return `(B, n)`, n the largest graph's nodes: true where there is no node, which is what
        torch.nn calls `key_padding_mask`."""
        sizes = torch.tensor(self.num_nodes, device=self.graph.device)
        return torch.arange(self.length, device=sizes.device) >= sizes.unsqueeze(1)


class Graph(Representation):
    """Vectors a^K, a^V for the label of the edge between two nodes (Shaw et al. 2018, section 3.1).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{label of the edge i -> j}, or 0 where there is none

    Several edges of one pair add up, each times its weight if it has one. Every node still attends
    to every other, as in the paper; a mask restricts it to its neighbours.

    Queries and keys are the nodes, all of them (no cross-attention, no cache); their positions are
    not read. `use_edges` gives the edges of a batch:

        graph = Graph(num_heads=num_heads, head_dim=head_dim, num_labels=5)
        with use_edges(model, edges):
            model(x)

    The n × n × E tensor a_ij is never built. Queries meet the R rows of the table once, and the
    products are added to the scores of the pairs that have an edge; probabilities are summed by
    label before they meet the value table: O(B H (Q (K + R) + N)) memory for N edges.

    Args:
        num_heads: H.
        head_dim: E.
        num_labels: R, labels are 0 … R − 1.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: one table serves as a^K and a^V; the paper has two.
        per_head: a table for each head; the paper shares one between the heads of a layer.

    Raises:
        ShapeshiftError: if `num_labels`, `add_to` or `share_tables` has no meaning; in the hooks,
            if there are no edges, or they are not those of the batch.
    """

    places = ("self",)
    shift_invariant = True

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        num_labels: int,
        add_to: AddTo = "both",
        share_tables: bool = False,
        per_head: bool = False,
    ):
        super().__init__()
        if num_labels < 1:
            raise ShapeshiftError(f"num_labels must be at least 1, got {num_labels}")
        self.num_heads, self.head_dim = num_heads, head_dim
        self.num_labels = num_labels
        self.edges: Edges | None = None  # set by `use_edges`
        shape = (num_heads if per_head else 1, num_labels, head_dim)
        self.keys, self.values = tables(shape, add_to, share_tables)

    def overrides(self, hook: str) -> bool:
        tables = {"query_bias": self.keys, "value_bias": self.values}
        if hook in tables and inherits(self, hook, Graph):
            return tables[hook] is not None
        return super().overrides(hook)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        (B, _, Q, _), K = q.shape, pos_k.shape[1]
        rows, pairs, weights = self._find(B, Q, K, q.device)
        products = by_table(q, self.keys.transpose(-1, -2))  # (B, H, Q, R)
        return _carry(products, rows, pairs, weights, width=K)  # (B, H, Q, K)

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        B, _, Q, K = probs.shape
        rows, pairs, weights = self._find(B, Q, K, probs.device)
        by_label = _carry(probs, pairs, rows, weights, width=self.num_labels)  # (B, H, Q, R)
        return by_table(by_label, self.values)  # (B, H, Q, E)

    def _find(
        self, B: int, Q: int, K: int, device: torch.device
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return where each edge stands among the B · Q · R rows and the B · Q · K pairs, and its
        weight; all `(N,)`, or `(B · N,)` if the batch has one graph in common."""
        edges = self.edges
        if edges is None:
            raise ShapeshiftError(
                "a Graph needs edges: run the model, and the backward pass if that"
                " runs it again, in `with use_edges(model, edges):`"
            )
        if edges.num_graphs not in (1, B) or not edges.length <= Q == K:
            raise ShapeshiftError(
                f"the edges are those of {edges.num_graphs} graphs of up to {edges.length} nodes,"
                f" got a batch of {B} with {Q} queries and {K} keys; both must be all the nodes"
            )
        if edges.graph.device != device:
            raise ShapeshiftError(
                f"the edges are on {edges.graph.device} and the batch on {device};"
                " use edges.to(device)"
            )
        graph = edges.graph
        if edges.num_graphs != B:
            graph = torch.arange(B, device=device).unsqueeze(1)  # (B, 1), one graph for all
        node = graph * Q + edges.query  # (N,) or (B, N)
        rows, pairs = node * self.num_labels + edges.label, node * K + edges.key
        weights = None if edges.weight is None else edges.weight.expand_as(node).flatten()
        return rows.flatten(), pairs.flatten(), weights

    def extra_repr(self) -> str:
        tables = [name for name in ("keys", "values") if getattr(self, name) is not None]
        return f"num_labels={self.num_labels}, {'+'.join(tables)}"


@contextmanager
def use_edges(model: nn.Module, edges: Edges) -> Iterator[None]:
    """Give `edges` to every `Graph` in `model`, until the block ends.

        with use_edges(model, edges):
            loss = model(x).sum()
            loss.backward()  # here, if the backward pass recomputes layers (checkpointing)

    Blocks nest, and the inner one holds; parts of a model can be given different edges. What was
    there before comes back, also after an exception. Like weights, edges belong to the model: two
    threads that give it different ones need a copy of it each.

    Args:
        model: a `Graph`, or any module that holds some.
        edges: B graphs for a batch of B, or one for the whole batch, on the batch's device.

    Raises:
        ShapeshiftError: if `model` has no `Graph`, or one with too few labels (on a CPU).
    """
    graphs = [module for module in model.modules() if isinstance(module, Graph)]
    if not graphs:
        raise ShapeshiftError(
            f"{type(model).__name__} has no Graph; build it with position="
            "Graph(num_heads=…, head_dim=…, num_labels=…)"
        )
    fewest = min(graph.num_labels for graph in graphs)
    readable = not torch.compiler.is_compiling() and edges.label.device.type == "cpu"
    if readable and (edges.label >= fewest).any():
        raise ShapeshiftError(
            f"a label must be at most {fewest - 1} in a model with num_labels={fewest}, got an edge"
            f" with label {int(edges.label.max())}"
        )
    with temporarily_set(graphs, "edges", edges):
        yield


def _carry(
    x: Tensor, source: Tensor, target: Tensor, weights: Tensor | None, *, width: int
) -> Tensor:
    """Return `(B, H, Q, width)`, zeros to which `x (B, H, Q, …)` is added at N places.

    Args:
        x: where to take.
        source, target: `(N,)`, the places in x and in the result, counted through (B, Q, …).
        weights: `(N,)`, by which to multiply; None is 1.
        width: of the result.
    """
    B, H, Q, _ = x.shape
    # In float32 at least: thousands of small numbers may fall into one sum.
    dtype = torch.promote_types(x.dtype, torch.float32)
    taken = x.transpose(0, 1).flatten(1).index_select(1, source).to(dtype)  # (H, N)
    if weights is not None:
        taken = taken * weights.to(dtype)
    sums = taken.new_zeros(H, B * Q * width).index_add(1, target, taken)
    out: Tensor = sums.view(H, B, Q, width).transpose(0, 1).to(x.dtype)  # (B, H, Q, width)
    return out
