"""Graph beyond its equations: how edges reach it, and what it refuses."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop.torch_nn import TransformerEncoderLayer
from shapeshift.positions import Graph, use_edges

H, E, D, R = 2, 4, 8, 3
SIZES = (5, 2, 4)
N = max(SIZES)
GRAPHS = [[(0, 1, 2), (3, 0, 0), (4, 4, 1)], [(1, 0, 1)], []]
PADDING = torch.arange(N) >= torch.tensor(SIZES)[:, None]


def labels_of(graphs: list = GRAPHS, size: int = N) -> Tensor:
    labels = torch.full((len(graphs), size, size), -1)
    for b, edges in enumerate(graphs):
        for i, j, label in edges:
            labels[b, i, j] = label
    return labels


LABELS, NONE = labels_of(), labels_of([[], [], []])


def graph(num_labels: int = R) -> Graph:
    return Graph(num_heads=H, head_dim=E, num_labels=num_labels)


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = TransformerEncoderLayer(D, H, 16, 0.0, batch_first=True, position=graph())
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).double()


def nodes() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(SIZES), N, D, dtype=torch.float64)


def run(position: Graph, batch: int = 3, keys: int = N) -> None:
    pos_q, pos_k = torch.arange(N)[None], torch.arange(keys)[None]
    position.query_bias(torch.randn(batch, H, N, E), pos_q, pos_k)


def test_padding_and_neighbours_in_the_batch_change_nothing():
    model, x = encoder(), nodes()
    with use_edges(model, LABELS):
        together = model(x, src_key_padding_mask=PADDING)
    for b, size in enumerate(SIZES):
        with use_edges(model, labels_of([GRAPHS[b]], size)):
            alone = model(x[b : b + 1, :size])
        torch.testing.assert_close(together[b, :size], alone[0], rtol=0, atol=1e-10)


def given(model: nn.Module) -> list[Tensor | None]:
    return [module.labels for module in model.modules() if isinstance(module, Graph)]


def test_blocks_nest_and_what_was_there_comes_back():
    model = encoder()
    with use_edges(model, LABELS):
        with use_edges(model.layers[1], NONE):
            assert [torch.equal(labels, LABELS) for labels in given(model)] == [True, False]
        with pytest.raises(KeyError), use_edges(model, NONE):
            raise KeyError
        assert all(torch.equal(labels, LABELS) for labels in given(model))
    assert given(model) == [None, None]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_layers_that_run_again_see_the_same_edges_or_say_so(use_reentrant):
    again, plain = encoder(), encoder()

    def loss_of(model):
        x = nodes().requires_grad_()
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=use_reentrant) if model is again else layer(x)
        return x.square().sum()

    for model in (again, plain):
        with use_edges(model, LABELS):
            loss_of(model).backward()
    for got, expected in zip(again.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=0, atol=1e-12)
    with use_edges(again, LABELS):
        loss = loss_of(again)
    with pytest.raises(ShapeshiftError, match="and the backward pass if that runs it again"):
        loss.backward()


def test_a_label_that_is_not_in_the_table_is_an_error():
    for labels in (LABELS, LABELS - 2):
        position = graph(2)
        with use_edges(position, labels), pytest.raises(RuntimeError, match="out of bounds"):
            run(position)


def with_labels(labels: Tensor, **sizes: int) -> None:
    position = graph()
    with use_edges(position, labels):
        run(position, **sizes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graph(0), "num_labels must be at least 1.*got 0"),
        (lambda: run(graph()), r"needs edges: .*with use_edges\(model, labels\)"),
        (lambda: use_edges(nn.Linear(2, 2), LABELS).__enter__(), "Linear has no Graph"),
        (lambda: with_labels(LABELS[:, :3]), r"integers \(B, n, n\), got int64 \(3, 3, 5\)"),
        (lambda: with_labels(LABELS, batch=2), "batch of 2 with 5 queries and 5 keys"),
        (lambda: with_labels(LABELS, keys=7), "5 queries and 7 keys, all the nodes"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ShapeshiftError, match=message):
        make()
