"""Relation-aware attention on graphs (Shaw et al. 2018, section 3.1) against loops over nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from shapeshift.attention import causal_mask
from shapeshift.model.attention import Attention
from shapeshift.positions import Edges, Graph, Representation, Shaw, use_edges

Array = NDArray[np.float64]
Rows = list[tuple[int, int, int, float]]
"""(query, key, label, weight) of each edge of a graph."""

DIM, HEADS, WIDTH, LABELS = 8, 2, 4, 3
SIZES = (5, 3, 1)
LENGTH = max(SIZES)
LAYOUTS = [
    {"add_to": "keys"},
    {"add_to": "values"},
    {"add_to": "both"},
    {"add_to": "both", "share_tables": True},
    {"add_to": "both", "per_head": True},
]


def identify(options: dict) -> str:
    return "-".join(str(v) if k == "add_to" else k for k, v in options.items())


def make_layer(position: Representation) -> Attention:
    torch.manual_seed(0)
    layer = Attention(DIM, HEADS, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    return layer


def draw_edges(weighted: bool) -> list[Rows]:
    """Edges of each graph: some pairs have several, some nodes one to themselves, most none."""
    rng = np.random.default_rng(0)
    return [
        [
            (*rng.integers(size, size=2).tolist(), int(rng.integers(LABELS)), weight)
            for weight in (rng.standard_normal(2 * size) if weighted else np.ones(2 * size))
        ]
        for size in SIZES
    ]


def to_edges(graphs: list[Rows], weighted: bool) -> Edges:
    edges = Edges.from_lists([[row[:3] for row in rows] for rows in graphs], SIZES)
    if not weighted:
        return edges
    weight = torch.tensor([row[3] for rows in graphs for row in rows], dtype=torch.float64)
    return Edges(edges.graph, edges.query, edges.key, edges.label, SIZES, weight)


def copied(parameters: dict[str, Tensor]) -> dict[str, Array]:
    return {name: value.detach().numpy().copy() for name, value in parameters.items()}


def slow(weights: dict[str, Array], x: Array, rows: Rows, causal: bool) -> Array:
    """One graph's nodes `x (n, D)` through the layer, one pair of nodes at a time."""
    w_q, w_k, w_v = np.split(weights["in_weight"], 3)
    b_q, b_k, b_v = np.split(weights["in_bias"], 3)
    keys = weights.get("position.keys")
    values = weights.get("position.values")

    def relation(table: Array | None, h: int, i: int, j: int) -> Array:
        a = np.zeros(WIDTH)
        for query, key, label, weight in rows:
            if table is not None and (query, key) == (i, j):
                a = a + weight * table[h if len(table) > 1 else 0, label]
        return a

    z = np.zeros_like(x)
    for h in range(HEADS):
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        q, k, v = (x @ w[own].T + b[own] for w, b in ((w_q, b_q), (w_k, b_k), (w_v, b_v)))
        for i in range(len(x)):
            seen = range(i + 1) if causal else range(len(x))
            e = [q[i] @ (k[j] + relation(keys, h, i, j)) / np.sqrt(WIDTH) for j in seen]
            alpha = np.exp(e) / np.exp(e).sum()
            for j in seen:
                z[i, own] += alpha[j] * (v[j] + relation(values, h, i, j))
    return z @ weights["out.weight"].T + weights["out.bias"]


def run(layer: Attention, x: Tensor, edges: Edges, causal: bool) -> Tensor:
    pos = torch.arange(x.shape[1])[None]
    mask = torch.zeros(len(x), 1, 1, LENGTH, dtype=x.dtype)
    mask.masked_fill_(edges.padding_mask()[:, None, None], -torch.inf)
    if causal:
        mask = mask + causal_mask(LENGTH, LENGTH, x.dtype, x.device)
    with use_edges(layer, edges):
        return layer(x, x, pos, pos, mask)


def weights_of(layer: Attention) -> dict[str, Array]:
    weights = copied(dict(layer.named_parameters()))
    position = layer.position
    if position.values is not None:  # one table may have two names
        weights["position.values"] = position.values.detach().numpy().copy()
    return weights


@pytest.mark.parametrize("options", LAYOUTS, ids=identify)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("weighted", [False, True], ids=["labels", "weights"])
def test_layer_equals_the_papers_equations(options, causal, weighted) -> None:
    layer = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=LABELS, **options))
    x = torch.randn(len(SIZES), LENGTH, DIM, dtype=torch.float64)
    graphs = draw_edges(weighted)
    got = run(layer, x, to_edges(graphs, weighted), causal).detach().numpy()
    for b, (size, rows) in enumerate(zip(SIZES, graphs, strict=True)):
        expected = slow(weights_of(layer), x[b, :size].numpy(), rows, causal)
        np.testing.assert_allclose(got[b, :size], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", LAYOUTS, ids=identify)
def test_gradients_are_the_slopes_of_the_papers_equations(options) -> None:
    layer = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=LABELS, **options))
    x = torch.randn(len(SIZES), LENGTH, DIM, dtype=torch.float64, requires_grad=True)
    towards = torch.randn_like(x)
    graphs = draw_edges(True)
    real = ~to_edges(graphs, True).padding_mask().unsqueeze(-1)
    (run(layer, x, to_edges(graphs, True), False) * towards * real).sum().backward()
    gradients = copied({name: p.grad for name, p in layer.named_parameters()} | {"x": x.grad})

    def reference(name: str, change: Array) -> float:
        weights, moved = weights_of(layer), x.detach().numpy().copy()
        if name == "x":
            moved += change
        else:
            weights[name] += change
        if name == "position.keys" and options.get("share_tables"):
            weights["position.values"] += change
        made = (slow(weights, moved[b, :n], graphs[b], False) for b, n in enumerate(SIZES))
        return sum(
            float((out * towards[b, : len(out)].numpy()).sum()) for b, out in enumerate(made)
        )

    rng, step = np.random.default_rng(0), 1e-5
    for name in ("x", "in_weight", *(name for name in gradients if "position" in name)):
        direction = rng.standard_normal(gradients[name].shape)
        rise = reference(name, step * direction) - reference(name, -step * direction)
        slope = rise / (2 * step)
        assert (gradients[name] * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_gradients_reach_the_weights_of_edges() -> None:
    graph = Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=LABELS).double()
    edges, pos = to_edges(draw_edges(True), True), torch.arange(LENGTH)[None]
    q = torch.randn(len(SIZES), HEADS, LENGTH, WIDTH, dtype=torch.float64)
    probs = torch.rand(len(SIZES), HEADS, LENGTH, LENGTH, dtype=torch.float64)

    def hooks(weight: Tensor) -> tuple[Tensor, Tensor]:
        given = Edges(edges.graph, edges.query, edges.key, edges.label, SIZES, weight)
        with use_edges(graph, given):
            return graph.query_bias(q * q.shape[-1] ** -0.5, pos, pos), graph.value_bias(
                probs, pos, pos
            )

    assert torch.autograd.gradcheck(hooks, (edges.weight.clone().requires_grad_(),))


@pytest.mark.parametrize("options", LAYOUTS, ids=identify)
@pytest.mark.parametrize("common", [False, True], ids=["a graph each", "one for all"])
def test_the_complete_graph_of_clipped_distances_is_shaw(options, common) -> None:
    k, length = 2, 7
    shaw = make_layer(Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=k, **options))
    ours = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=2 * k + 1, **options))
    ours.load_state_dict(shaw.state_dict())
    pairs = [(i, j, max(-k, min(k, j - i)) + k) for i in range(length) for j in range(length)]
    count = 1 if common else 3
    edges = Edges.from_lists([pairs] * count, [length] * count)
    x, pos = torch.randn(3, length, DIM, dtype=torch.float64), torch.arange(length)[None]
    expected = shaw(x, x, pos, pos, None)
    with use_edges(ours, edges):
        got = ours(x, x, pos, pos, None)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    got.square().sum().backward()
    expected.square().sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), shaw.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12, msg=name)
