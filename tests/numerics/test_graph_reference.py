"""Relation-aware attention on graphs (Shaw et al. 2018, section 3.1) against loops over nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from shapeshift.attention import causal_mask
from shapeshift.model.attention import Attention
from shapeshift.positions import Graph, Representation, Shaw, use_edges

DIM, HEADS, WIDTH, NUM_LABELS = 8, 2, 4, 3
LENGTH = 5
LAYOUTS = [
    {"add_to": "keys"},
    {"add_to": "values"},
    {"add_to": "both"},
    {"add_to": "both", "share_tables": True},
    {"add_to": "both", "per_head": True},
]
layouts = pytest.mark.parametrize(
    "options", LAYOUTS, ids=lambda options: "-".join(map(str, options.values()))
)


def make_layer(position: Representation) -> Attention:
    torch.manual_seed(0)
    layer = Attention(DIM, HEADS, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    return layer


def draw_labels() -> Tensor:
    """For each of three graphs; a third of the pairs have no edge."""
    torch.manual_seed(1)
    return torch.randint(-1, NUM_LABELS, (3, LENGTH, LENGTH))


@layouts
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_layer_equals_the_papers_equations(options, causal) -> None:
    layer = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=NUM_LABELS, **options))
    x, labels = torch.randn(3, LENGTH, DIM, dtype=torch.float64), draw_labels()
    mask = causal_mask(LENGTH, LENGTH, x.dtype, x.device) if causal else None
    pos = torch.arange(LENGTH)[None]
    with use_edges(layer, labels):
        got = layer(x, x, pos, pos, mask).detach().numpy()
    weights = {name: value.detach().numpy() for name, value in layer.named_parameters()}
    position = layer.position

    def relation(table: Tensor | None, h: int, label: int) -> np.ndarray:
        if table is None or label < 0:
            return np.zeros(WIDTH)
        return table.detach().numpy()[h if len(table) > 1 else 0, label]

    for nodes, edges, out in zip(x.numpy(), labels.tolist(), got, strict=True):
        z = np.zeros_like(nodes)
        for h in range(HEADS):
            own = slice(h * WIDTH, (h + 1) * WIDTH)
            q, k, v = (
                nodes @ w[own].T + b[own]
                for w, b in zip(
                    np.split(weights["in_weight"], 3), np.split(weights["in_bias"], 3), strict=True
                )
            )
            for i in range(LENGTH):
                seen = range(i + 1) if causal else range(LENGTH)
                keys = [k[j] + relation(position.keys, h, edges[i][j]) for j in seen]
                e = np.array([q[i] @ key / np.sqrt(WIDTH) for key in keys])
                alpha = np.exp(e) / np.exp(e).sum()
                for j in seen:
                    z[i, own] += alpha[j] * (v[j] + relation(position.values, h, edges[i][j]))
        expected = z @ weights["out.weight"].T + weights["out.bias"]
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-10)


@layouts
@pytest.mark.parametrize("common", [False, True], ids=["a graph each", "one for all"])
def test_the_complete_graph_of_clipped_distances_is_shaw(options, common) -> None:
    k, length = 2, 7
    shaw = make_layer(Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=k, **options))
    ours = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=2 * k + 1, **options))
    ours.load_state_dict(shaw.state_dict())
    pos = torch.arange(length)[None]
    labels = (pos[:, None] - pos[..., None]).clamp(-k, k) + k
    x = torch.randn(3, length, DIM, dtype=torch.float64)
    expected = shaw(x, x, pos, pos, None)
    with use_edges(ours, labels.expand(1 if common else 3, -1, -1)):
        got = ours(x, x, pos, pos, None)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    got.square().sum().backward()
    expected.square().sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), shaw.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-12, msg=name)
