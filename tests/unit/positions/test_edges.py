"""Edges: how they are given, added up, turned round and refused."""

from __future__ import annotations

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Edges

Row = tuple[int, int, int, int]


def rows(edges: Edges) -> list[Row]:
    """(graph, query, key, label) of each edge, sorted."""
    return sorted(zip(*(getattr(edges, name).tolist() for name in FIELDS), strict=True))


FIELDS = ("graph", "query", "key", "label")
TWO = [[(0, 1, 2), (1, 0, 0)], [(2, 0, 1)]]


def test_lists_and_tensors_name_the_same_edges() -> None:
    expected = [(0, 0, 1, 2), (0, 1, 0, 0), (1, 2, 0, 1)]
    tensors = [torch.tensor(graph, dtype=torch.int32) for graph in TWO]
    for given in (TWO, tensors):
        edges = Edges.from_lists(given, num_nodes=[2, 4])
        assert rows(edges) == expected
        assert (len(edges), edges.num_graphs, edges.length, edges.num_labels) == (3, 2, 4, 3)


def test_graphs_without_edges_and_batches_without_any() -> None:
    edges = Edges.from_lists([[], [(0, 0, 5)], []], num_nodes=[1, 1, 0])
    assert rows(edges) == [(1, 0, 0, 5)]
    none = Edges.from_lists([[], torch.empty(0, 3, dtype=torch.long)], num_nodes=[2, 1])
    assert (rows(none), none.num_labels, none.num_graphs) == ([], 0, 2)
    assert rows(none.with_reverse(3)) == []


def test_a_matrix_names_the_edges_that_lists_name() -> None:
    labels = torch.full((2, 4, 4), -1)
    for graph, edges in enumerate(TWO):
        for query, key, label in edges:
            labels[graph, query, key] = label
    expected = rows(Edges.from_lists(TWO, num_nodes=[2, 4]))
    made = Edges.from_matrix(labels, num_nodes=[2, 4])
    assert rows(made) == expected
    assert made.num_nodes == (2, 4)
    assert rows(Edges.from_matrix(labels + 1, no_edge=0)) == [
        (graph, query, key, label + 1) for graph, query, key, label in expected
    ]
    assert Edges.from_matrix(labels).num_nodes == (4, 4)


def test_reverse_edges_have_labels_of_their_own_or_the_same() -> None:
    edges = Edges.from_lists(TWO, num_nodes=[2, 3])
    there = rows(edges)
    assert rows(edges.with_reverse(3)) == sorted([*there, (0, 1, 0, 5), (0, 0, 1, 3), (1, 0, 2, 4)])
    assert rows(edges.with_reverse(0)) == sorted([*there, (0, 1, 0, 2), (0, 0, 1, 0), (1, 0, 2, 1)])
    with pytest.raises(ShapeshiftError, match=r"at least 3, .* up to 2.*got 2"):
        edges.with_reverse(2)


def test_self_loops_are_for_nodes_and_not_for_padding() -> None:
    edges = Edges.from_lists(TWO, num_nodes=[2, 3]).with_self_loops(7)
    loops = [(0, 0, 0, 7), (0, 1, 1, 7), *((1, node, node, 7) for node in range(3))]
    assert rows(edges) == sorted([(0, 0, 1, 2), (0, 1, 0, 0), (1, 2, 0, 1), *loops])
    assert edges.num_labels == 8


def test_sums_keep_weights_and_give_1_to_the_others() -> None:
    plain = Edges.from_lists(TWO, num_nodes=[2, 3])
    fields = (plain.graph, plain.query, plain.key, plain.label, plain.num_nodes)
    heavy = Edges(*fields, weight=torch.tensor([2.0, 3.0, 4.0]))
    assert (plain + plain).weight is None
    assert (plain + heavy).weight.tolist() == [1, 1, 1, 2, 3, 4]
    assert heavy.with_reverse(3).weight.tolist() == [2, 3, 4, 2, 3, 4]
    with pytest.raises(ShapeshiftError, match="the same graphs"):
        plain + Edges.from_lists([[]], num_nodes=[2])


def test_padding_is_what_is_beyond_each_graph() -> None:
    edges = Edges.from_lists([[], [], []], num_nodes=[1, 3, 0])
    expected = [[False, True, True], [False, False, False], [True, True, True]]
    assert edges.padding_mask().tolist() == expected


def test_moving_moves_every_tensor() -> None:
    weight = torch.ones(3)
    edges = Edges.from_lists(TWO, num_nodes=[2, 3])
    edges = Edges(edges.graph, edges.query, edges.key, edges.label, edges.num_nodes, weight)
    moved = edges.to("meta")
    assert {getattr(moved, name).device.type for name in (*FIELDS, "weight")} == {"meta"}
    assert (moved.num_nodes, moved.num_labels) == (edges.num_nodes, edges.num_labels)
    assert edges.graph.device.type == "cpu"


def test_integers_of_any_width_are_indices() -> None:
    fields = [
        torch.tensor(column, dtype=torch.uint8) for column in ([1, 0], [2, 0], [1, 0], [3, 4])
    ]
    edges = Edges(*fields, num_nodes=(1, 3))  # as they are, bytes would index as a mask
    assert rows(edges) == [(0, 0, 0, 4), (1, 2, 1, 3)]
    assert {getattr(edges, name).dtype for name in FIELDS} == {torch.long}


def test_edges_stay_as_they_were_checked() -> None:
    edges = Edges.from_lists(TWO, num_nodes=[2, 3])
    with pytest.raises(AttributeError):
        edges.num_nodes = (9, 9)


def direct(**changes: object) -> Edges:
    fields = {name: torch.zeros(2, dtype=torch.long) for name in FIELDS}
    return Edges(**{**fields, "num_nodes": (1, 1), **changes})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Edges.from_lists([[(0, 1, 0)], [(0, 3, 1)]], [2, 3]),
            r"key .* a node of its graph, see num_nodes, got 3 in edge 1: node 0 to 3 of graph 1",
        ),
        (lambda: Edges.from_lists([[(-1, 0, 0)]], [2]), "query .* got -1"),
        (lambda: Edges.from_lists([[(0, 1, -2)]], [2]), "label .* 0 or more, got -2"),
        (lambda: Edges.from_lists([[]], [2, 3]), "got 2 for 1 lists"),
        (lambda: Edges.from_lists([], []), "num_nodes must give each graph's size"),
        (lambda: Edges.from_lists([[]], [-1]), "num_nodes must give each graph's size"),
        (lambda: Edges.from_lists([[(0, 1)]], [2]), r"graph 0 must be rows of three.*\(1, 2\)"),
        (lambda: Edges.from_lists([[], [(0, 1, 0), (0,)]], [2, 2]), "graph 1 must be rows of"),
        (lambda: Edges.from_lists([[(0, 1, 0.5)]], [2]), "three integers.*float"),
        (lambda: Edges.from_matrix(torch.zeros(3, 3)), r"\(B, n, n\), got \(3, 3\)"),
        (lambda: Edges.from_matrix(torch.zeros(1, 3, 2)), r"\(B, n, n\), got \(1, 3, 2\)"),
        (lambda: Edges.from_matrix(torch.zeros(1, 3, 3)), "label must hold integers.*float32"),
        (lambda: Edges.from_matrix(torch.zeros(1, 3, 3).long(), [2]), "a node of its graph"),
        (lambda: direct(graph=torch.tensor([0, 2])), r"graph of an edge must be 0 … 1, got 2"),
        (lambda: direct(label=torch.zeros(3).long()), r"label must be \(2,\).*got \(3,\)"),
        (lambda: direct(query=torch.zeros(2, 1).long()), r"query must be \(2,\).*got \(2, 1\)"),
        (lambda: direct(weight=torch.ones(2).long()), "weight must hold floating-point"),
        (lambda: direct(weight=torch.ones(2, 1)), r"weight must be \(2,\)"),
        (lambda: direct(key=torch.ones(2).bool()), "key must hold integers, got torch.bool"),
        (lambda: direct(key=torch.zeros(2, dtype=int, device="meta")), "on one device.*meta"),
    ],
)
def test_edges_that_cannot_be(make, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)
