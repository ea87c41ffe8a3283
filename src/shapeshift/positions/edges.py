"""Labelled, directed edges of a batch of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError

_FIELDS = ("graph", "query", "key", "label")


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of B graphs, N together; edge number e leads from node `query[e]` to node `key[e]`
    of graph `graph[e]`, and is what the first sees of the second: a_ij for i = query, j = key.

    Edges are directed: `with_reverse` lets both ends see them. Several edges of one pair add up. An
    edge may have a weight, so that edges with a vector of F features, instead of a label, are F
    edges each, with the labels 0 … F − 1 and the features as weights: a_ij is then a trained linear
    map of the features.

        Edges.from_lists([[(0, 1, 2), (1, 0, 0)], [(2, 0, 1)]], num_nodes=[2, 3])

    Attributes:
        graph, query, key, label: integers `(N,)`.
        num_nodes: of each graph, B numbers. Padding has no edges.
        weight: `(N,)`, floating; None is 1 for every edge.
        num_graphs: B.
        length: nodes of the largest graph.

    Raises:
        ShapeshiftError: if shapes or types do not fit, or an edge names a graph, a node or a label
            that cannot be; the latter is not looked at in what `torch.compile` and `torch.export`
            trace.
    """

    graph: Tensor
    query: Tensor
    key: Tensor
    label: Tensor
    num_nodes: tuple[int, ...]
    weight: Tensor | None = None
    num_graphs: int = field(init=False)
    length: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = tuple(int(size) for size in self.num_nodes)
        if not sizes or min(sizes) < 0:
            raise ShapeshiftError(f"num_nodes must give each graph's size from 0, got {sizes}")
        object.__setattr__(self, "num_nodes", sizes)
        object.__setattr__(self, "num_graphs", len(sizes))
        object.__setattr__(self, "length", max(sizes))
        self._check_tensors()
        for name in _FIELDS:  # which index tensors, and are multiplied
            object.__setattr__(self, name, getattr(self, name).long())
        if not torch.compiler.is_compiling():  # a graph cannot ask what its numbers are
            self._check_ranges()

    @cached_property
    def num_labels(self) -> int:
        """The least number of labels that these edges need: 1 + the largest of them."""
        return int(self.label.max()) + 1 if len(self) else 0

    def _check_tensors(self) -> None:
        for name in (*_FIELDS, "weight"):
            tensor = getattr(self, name)
            if tensor is None:
                continue
            if tensor.ndim != 1 or tensor.shape != self.graph.shape:
                raise ShapeshiftError(
                    f"{name} must be ({len(self)},), one number for each edge as in graph,"
                    f" got {tuple(tensor.shape)}"
                )
            if _is_integer(tensor) != (name != "weight"):
                wanted = "floating-point numbers" if name == "weight" else "integers"
                raise ShapeshiftError(f"{name} must hold {wanted}, got {tensor.dtype}")
            if tensor.device != self.graph.device:
                raise ShapeshiftError(
                    f"edges must be on one device, got {name} on {tensor.device} and graph on"
                    f" {self.graph.device}"
                )

    def _check_ranges(self) -> None:
        last = self.num_graphs - 1
        self._refuse("graph", (self.graph < 0) | (self.graph > last), f"0 … {last}")
        sizes = torch.tensor(self.num_nodes, device=self.graph.device)[self.graph]  # (N,)
        for name in ("query", "key"):
            node = getattr(self, name)
            self._refuse(name, (node < 0) | (node >= sizes), "a node of its graph, see num_nodes")
        self._refuse("label", self.label < 0, "0 or more")

    def _refuse(self, name: str, wrong: Tensor, wanted: str) -> None:
        if wrong.any():
            e = int(wrong.nonzero()[0, 0])
            graph, query, key, label = (int(getattr(self, each)[e]) for each in _FIELDS)
            raise ShapeshiftError(
                f"{name} of an edge must be {wanted}, got {getattr(self, name)[e]} in edge {e}:"
                f" node {query} to {key} of graph {graph}, label {label}"
            )

    def __len__(self) -> int:
        """N."""
        return self.graph.shape[0] if self.graph.ndim else 0

    @classmethod
    def from_lists(
        cls, edges: Sequence[Tensor | Sequence[Sequence[int]]], num_nodes: Sequence[int]
    ) -> Edges:
        """Return the edges that B lists name, one list a graph.

        Args:
            edges: for each graph a tensor `(N_b, 3)` or a list of (query, key, label).
            num_nodes: of each graph, for some may have no edge.

        Raises:
            ShapeshiftError: if a list is no table of three columns, or there are not B numbers.
        """
        if len(edges) != len(num_nodes):
            raise ShapeshiftError(
                f"num_nodes must give one number for each graph, got {len(num_nodes)} for"
                f" {len(edges)} lists of edges"
            )
        tables = [_table(b, rows) for b, rows in enumerate(edges)]
        counts = [len(table) for table in tables]
        together = torch.cat([torch.empty(0, 3, dtype=torch.long), *tables])  # (N, 3)
        graph = torch.arange(len(edges)).repeat_interleave(torch.tensor(counts, dtype=torch.long))
        query, key, label = together.unbind(1)
        return cls(graph.to(together.device), query, key, label, tuple(num_nodes))

    @classmethod
    def from_matrix(
        cls, labels: Tensor, num_nodes: Sequence[int] | None = None, *, no_edge: int = -1
    ) -> Edges:
        """Return the edges that a matrix for each graph gives: at row i, column j stands the label
        of the edge from i to j.

        Args:
            labels: integers `(B, n, n)`.
            num_nodes: of each graph; None means n for all.
            no_edge: stands where there is none, as wherever there is padding.

        Raises:
            ShapeshiftError: if the matrices are not square, or padding has edges.
        """
        if labels.ndim != 3 or labels.shape[1] != labels.shape[2]:
            raise ShapeshiftError(f"labels must be (B, n, n), got {tuple(labels.shape)}")
        graph, query, key = (labels != no_edge).nonzero().unbind(1)
        sizes = [labels.shape[1]] * labels.shape[0] if num_nodes is None else num_nodes
        return cls(graph, query, key, labels[graph, query, key], tuple(sizes))

    def __add__(self, other: Edges) -> Edges:
        """Return the edges of both, of the same graphs; where both have one, it counts twice."""
        if self.num_nodes != other.num_nodes:
            raise ShapeshiftError(
                f"edges add up over the same graphs, got num_nodes {self.num_nodes} and"
                f" {other.num_nodes}"
            )
        graph, query, key, label = (
            torch.cat((getattr(self, name), getattr(other, name))) for name in _FIELDS
        )
        weight = None
        if self.weight is not None or other.weight is not None:
            weight = torch.cat((self._weights(), other._weights()))
        return Edges(graph, query, key, label, self.num_nodes, weight)

    def _weights(self) -> Tensor:
        return (
            torch.ones(len(self), device=self.graph.device) if self.weight is None else self.weight
        )

    def with_reverse(self, num_labels: int) -> Edges:
        """Return these edges and the reverse of each, whose label is `num_labels` more.

        Args:
            num_labels: R of these edges, so that a `Graph` of 2R labels tells both directions
                apart; 0 keeps the label, which makes the graph undirected.

        Raises:
            ShapeshiftError: if some edge's label would be some other's in reverse.
        """
        if num_labels and num_labels < self.num_labels:
            raise ShapeshiftError(
                f"num_labels must be at least {self.num_labels}, as these edges have labels up to"
                f" {self.num_labels - 1}, or 0 for an undirected graph, got {num_labels}"
            )
        label = self.label + num_labels
        return self + replace(self, query=self.key, key=self.query, label=label)

    def with_self_loops(self, label: int) -> Edges:
        """Return these edges and one with `label` from each node to itself, padding apart."""
        device = self.graph.device
        sizes = torch.tensor(self.num_nodes, device=device)
        graph = torch.arange(self.num_graphs, device=device).repeat_interleave(sizes)
        node = torch.cat([torch.arange(size, device=device) for size in self.num_nodes])
        return self + Edges(graph, node, node, torch.full_like(node, label), self.num_nodes)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Edges:
        """Return the same edges on `device`, as `Tensor.to`."""
        moved = copy(self)  # not checked again, which would wait for a GPU
        object.__setattr__(moved, "num_labels", self.num_labels)
        for name in (*_FIELDS, "weight"):
            if (tensor := getattr(self, name)) is not None:
                object.__setattr__(moved, name, tensor.to(device, non_blocking=non_blocking))
        return moved

    def padding_mask(self) -> Tensor:
        """Return `(B, n)`, n the largest graph's nodes: true where there is no node, which is what
        torch.nn calls `key_padding_mask`."""
        sizes = torch.tensor(self.num_nodes, device=self.graph.device)
        return torch.arange(self.length, device=sizes.device) >= sizes.unsqueeze(1)


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _table(b: int, rows: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """Return the edges of graph `b` as `(N_b, 3)`."""
    wanted = f"edges of graph {b} must be rows of three integers (query, key, label)"
    try:
        table = torch.as_tensor(rows)
    except (TypeError, ValueError) as error:
        raise ShapeshiftError(f"{wanted}, got rows that differ: {error}") from error
    if table.numel() == 0:
        return torch.empty(0, 3, dtype=torch.long, device=table.device)
    if table.ndim != 2 or table.shape[1] != 3:
        raise ShapeshiftError(f"{wanted}, got {tuple(table.shape)}")
    if not _is_integer(table):
        raise ShapeshiftError(f"{wanted}, got {table.dtype}")
    return table.long()
