"""A graph of distances is Shaw et al.'s sequence, which loops check in test_shaw_reference.py."""

from __future__ import annotations

import pytest
import torch

from shapeshift.model.attention import Attention
from shapeshift.positions import Graph, Representation, Shaw, use_edges

DIM, HEADS, WIDTH = 8, 2, 4


def make_layer(position: Representation) -> Attention:
    torch.manual_seed(0)
    layer = Attention(DIM, HEADS, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    return layer


@pytest.mark.parametrize("common", [False, True], ids=["a graph each", "one for all"])
@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "some edges"])
def test_a_graph_of_clipped_distances_is_shaw(common, is_complete) -> None:
    k, length = 2, 7
    shaw = make_layer(Shaw(num_heads=HEADS, head_dim=WIDTH, max_distance=k))
    ours = make_layer(Graph(num_heads=HEADS, head_dim=WIDTH, num_labels=2 * k + 1))
    ours.load_state_dict(shaw.state_dict())
    pos = torch.arange(length)[None]
    labels = (pos[:, None] - pos[..., None]).clamp(-k, k) + k
    if not is_complete:  # no edge is a vector of zeros
        labels = labels.masked_fill(labels == 1, -1)
        for table in shaw.position.parameters():
            table.data[:, 1] = 0
    x = torch.randn(3, length, DIM, dtype=torch.float64)
    expected = shaw(x, x, pos, pos, None)
    with use_edges(ours, labels.expand(1 if common else 3, -1, -1)):
        got = ours(x, x, pos, pos, None)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    got.square().sum().backward()
    expected.square().sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), shaw.parameters(), strict=True):
        pair = mine.grad, theirs.grad
        if "position" in name and not is_complete:
            pair = [grad[:, [0, 2, 3, 4]] for grad in pair]  # of labels that are there
        torch.testing.assert_close(*pair, rtol=0, atol=1e-12, msg=name)
