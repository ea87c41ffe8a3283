"""Graph beyond its equations: how edges reach it, what they cost, what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from shapeshift.errors import ShapeshiftError
from shapeshift.interop.torch_nn import TransformerEncoderLayer
from shapeshift.positions import Edges, Graph, Shaw, use_edges

H, E, D, R = 2, 4, 8, 3
SIZES = (5, 2, 4)
N = max(SIZES)
POS = torch.arange(N)[None]
GRAPHS = [[(0, 1, 2), (3, 0, 0), (4, 4, 1), (0, 1, 0)], [(1, 0, 1)], []]


def edges_of(graphs: list = GRAPHS, sizes: tuple[int, ...] = SIZES) -> Edges:
    return Edges.from_lists(graphs, sizes)


def encoder(num_layers: int = 2, **options: object) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    position = Graph(num_heads=H, head_dim=E, **{"num_labels": R, **options})
    layer = TransformerEncoderLayer(D, H, 16, 0.0, batch_first=True, position=position)
    return nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False).double()


def nodes() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(SIZES), N, D, dtype=torch.float64)


def heads() -> tuple[Tensor, Tensor]:
    torch.manual_seed(2)
    return torch.randn(3, H, N, E), torch.rand(3, H, N, N)


def test_a_node_sees_along_its_own_edges_alone() -> None:
    graph = Graph(num_heads=H, head_dim=E, num_labels=R)
    q, probs = heads()
    with use_edges(graph, edges_of()):
        bias, mix = graph.query_bias(q, POS, POS), graph.value_bias(probs, POS, POS)
    assert {tuple(at[[0, 2, 3]].tolist()) for at in bias.nonzero()} == {
        (0, 0, 1), (0, 3, 0), (0, 4, 4), (1, 1, 0),
    }  # fmt: skip
    assert {tuple(at[[0, 2]].tolist()) for at in mix.nonzero()} == {(0, 0), (0, 3), (0, 4), (1, 1)}


def test_without_any_edge_it_is_no_position() -> None:
    model, plain = encoder(), encoder()
    for layer in plain.layers:
        layer.self_attn.position = Shaw(
            num_heads=H, head_dim=E, max_distance=0
        ).double()  # a constant
        nn.init.zeros_(layer.self_attn.position.keys)
        nn.init.zeros_(layer.self_attn.position.values)
    with use_edges(model, edges_of([[], [], []])):
        torch.testing.assert_close(model(nodes()), plain(nodes()), rtol=0, atol=1e-12)


def test_padding_and_neighbours_in_the_batch_change_nothing() -> None:
    model, edges, x = encoder(), edges_of(), nodes()
    with use_edges(model, edges):
        together = model(x, src_key_padding_mask=edges.padding_mask())
    for b, size in enumerate(SIZES):
        with use_edges(model, edges_of([GRAPHS[b]], (size,))):
            alone = model(x[b : b + 1, :size])
        torch.testing.assert_close(together[b, :size], alone[0], rtol=0, atol=1e-10)


def test_nodes_may_come_in_another_order() -> None:
    model, x, order = encoder(), nodes()[:1], torch.tensor([3, 1, 4, 0, 2])
    renamed = order.argsort().tolist()
    moved = [(renamed[query], renamed[key], label) for query, key, label in GRAPHS[0]]
    with use_edges(model, edges_of([GRAPHS[0]], (N,))):
        expected = model(x)
    with use_edges(model, edges_of([moved], (N,))):
        torch.testing.assert_close(model(x[:, order]), expected[:, order], rtol=0, atol=1e-10)


def test_one_graph_serves_the_whole_batch() -> None:
    model, x = encoder(), nodes()
    weight = torch.tensor([0.5, -2.0, 1.0, 3.0])
    one = edges_of(GRAPHS[:1], (N,))
    one = Edges(one.graph, one.query, one.key, one.label, one.num_nodes, weight)
    with use_edges(model, one):
        together = model(x)
        alone = torch.cat([model(row) for row in x.split(1)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-10)


def test_edges_add_up() -> None:
    graph, (q, probs) = Graph(num_heads=H, head_dim=E, num_labels=R), heads()
    more = [[(0, 1, 1)], [(0, 1, 1), (1, 0, 2)], [(3, 2, 0)]]
    both = edges_of([[*one, *other] for one, other in zip(GRAPHS, more, strict=True)])
    first, second = edges_of(), edges_of(more)

    def hooks(edges: Edges) -> tuple[Tensor, Tensor]:
        with use_edges(graph, edges):
            return graph.query_bias(q, POS, POS), graph.value_bias(probs, POS, POS)

    for total, one, other in zip(*map(hooks, (both, first, second)), strict=True):
        torch.testing.assert_close(total, one + other)


def given(model: nn.Module) -> list[Edges | None]:
    return [module.edges for module in model.modules() if isinstance(module, Graph)]


def test_blocks_nest_and_what_was_there_comes_back() -> None:
    model, outer, inner = encoder(), edges_of(), edges_of([[], [], []])
    with use_edges(model, outer):
        with use_edges(model, inner):
            assert given(model) == [inner, inner]
        with use_edges(model.layers[1], inner):
            assert given(model) == [outer, inner]
        with pytest.raises(KeyError), use_edges(model, inner):
            raise KeyError
        assert given(model) == [outer, outer]
    assert given(model) == [None, None]


class Checkpointed(nn.Module):
    """An encoder whose layers run again in the backward pass."""

    def __init__(self, use_reentrant: bool):
        super().__init__()
        self.encoder, self.use_reentrant = encoder(), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.encoder.layers:
            x = checkpoint(layer, x, use_reentrant=self.use_reentrant)
        return x


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_layers_that_run_again_see_the_same_edges_or_say_so(use_reentrant: bool) -> None:
    model, plain = Checkpointed(use_reentrant), encoder()
    for module in (model, plain):
        with use_edges(module, edges_of()):
            module(nodes().requires_grad_()).square().sum().backward()
    for got, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(got.grad, expected.grad, rtol=0, atol=1e-12)
    with use_edges(model, edges_of()):
        loss = model(nodes().requires_grad_()).square().sum()
    with pytest.raises(ShapeshiftError, match="and the backward pass if that runs it again"):
        loss.backward()


class Largest(TorchDispatchMode):
    """Counts the elements of the largest tensor that any operation makes."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        self.numel = max(self.numel, *sizes, 0)
        return made


@pytest.mark.parametrize("add_to", ["keys", "values", "both"])
def test_no_tensor_has_pairs_times_width_or_pairs_times_labels(add_to: str) -> None:
    length, width, labels = 40, 32, 7
    graph = Graph(num_heads=H, head_dim=width, num_labels=labels, add_to=add_to, per_head=True)
    ring = [(i, (i + step) % length, step) for i in range(length) for step in range(labels)]
    q = torch.randn(2, H, length, width, requires_grad=True)
    probs = torch.rand(2, H, length, length, requires_grad=True)
    pos = torch.arange(length)[None]
    with Largest() as largest, use_edges(graph, edges_of([ring, ring], (length, length))):
        for made in (graph.query_bias(q, pos, pos), graph.value_bias(probs, pos, pos)):
            if made is not None:
                made.square().sum().backward()
    assert largest.numel == 2 * H * length * length


def test_half_precision_sums_many_edges_without_losing_them() -> None:
    # Added up in bfloat16 one by one, 4,096 equal probabilities would stop at 256 of them.
    graph = Graph(num_heads=1, head_dim=E, num_labels=1, add_to="values").to(torch.bfloat16)
    edges = edges_of([[(0, j, 0) for j in range(4096)]], (4096,))
    probs = torch.full((1, 1, 4096, 4096), 1 / 4096, dtype=torch.bfloat16)
    pos = torch.arange(4096)[None]
    with use_edges(graph, edges):
        got = graph.value_bias(probs, pos, pos)
    torch.testing.assert_close(got[0, 0, 0], graph.values[0, 0], rtol=0.01, atol=0.0)


class Hooks(nn.Module):
    """Both hooks of a graph as a forward pass."""

    def __init__(self, graph: Graph):
        super().__init__()
        self.position = graph  # `graph` is what torch.export calls its own

    def forward(self, q: Tensor, probs: Tensor) -> tuple[Tensor | None, Tensor | None]:
        pos = torch.arange(q.shape[2]).unsqueeze(0)
        return self.position.query_bias(q, pos, pos), self.position.value_bias(probs, pos, pos)


def test_edges_compile_as_one_graph() -> None:
    hooks = Hooks(Graph(num_heads=H, head_dim=E, num_labels=R))
    compiled = torch.compile(hooks, fullgraph=True, backend="eager")
    for graphs in (GRAPHS, [[], [(0, 1, 2)], []]):
        with use_edges(hooks, edges_of(graphs)):
            torch.testing.assert_close(compiled(*heads()), hooks(*heads()))


class OfTensors(nn.Module):
    """A model whose edges are tensors of its call."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = encoder()

    def forward(self, x: Tensor, graph: Tensor, edges: Tensor) -> Tensor:
        with use_edges(self, Edges(graph, *edges.unbind(), SIZES)):
            made: Tensor = self.encoder(x)
        return made


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")
@pytest.mark.parametrize("strict", [False, True])
def test_a_model_that_makes_its_edges_is_exported_for_any(strict: bool) -> None:
    if strict and torch.__version__ < (2, 10):
        pytest.skip("torch 2.9 traces the encoder before the block that gives it the edges")

    def tensors(graphs: list) -> tuple[Tensor, Tensor]:
        edges = edges_of(graphs)
        return edges.graph, torch.stack((edges.query, edges.key, edges.label))

    model, x = OfTensors().eval(), nodes()
    shapes = ({}, {0: torch.export.Dim.DYNAMIC}, {1: torch.export.Dim.DYNAMIC})
    exported = torch.export.export(
        model, (x, *tensors(GRAPHS)), dynamic_shapes=shapes, strict=strict
    ).module()
    for graphs in (GRAPHS, [[(2, 1, 1), (1, 3, 2)], [(0, 1, 0)], [(3, 3, 2)]]):
        torch.testing.assert_close(exported(x, *tensors(graphs)), model(x, *tensors(graphs)))


def run(graph: Graph, edges: Edges, batch: int = 3, queries: int = N, keys: int = N) -> None:
    with use_edges(graph, edges):
        graph.query_bias(
            torch.zeros(batch, H, queries, E), POS[:, :queries], torch.arange(keys)[None]
        )


def graph(num_labels: int = R, **options: object) -> Graph:
    return Graph(num_heads=H, head_dim=E, num_labels=num_labels, **options)


def direct(**changes: object) -> Edges:
    fields = {name: torch.zeros(2, dtype=torch.long) for name in ("graph", "query", "key", "label")}
    return Edges(**{**fields, "num_nodes": (1, 1), **changes})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: graph(0), "num_labels must be at least 1.*got 0"),
        (lambda: graph(add_to="key"), "'both', 'keys' or 'values', got 'key'"),
        (lambda: graph().query_bias(heads()[0], POS, POS), r"needs edges: .*use_edges"),
        (lambda: graph().value_bias(heads()[1], POS, POS), r"needs edges: .*use_edges"),
        (lambda: run(nn.Linear(2, 2), edges_of()), "Linear has no Graph; .*num_labels"),
        (lambda: run(graph(2), edges_of()), "at most 1 .*num_labels=2, got an edge with label 2"),
        (lambda: run(graph(), edges_of(), batch=2), "3 graphs of up to 5 nodes, got a batch of 2"),
        (lambda: run(graph(), edges_of(), queries=4, keys=4), "batch of 3 with 4 queries"),
        (lambda: run(graph(), edges_of(), keys=7), "5 queries and 7 keys; both must be"),
        (lambda: run(graph(), edges_of().to("meta")), "batch on cpu; use edges.to"),
        (lambda: edges_of([[(0, 1, 0)], [(0, 3, 1)]], (2, 3)), "edge 1, from node 0 to 3"),
        (lambda: edges_of([[(-1, 0, 0)]], (2,)), "from node -1 to 0"),
        (lambda: edges_of([[(0, 1, -2)]], (2,)), "label -2, cannot be: .*labels from 0"),
        (lambda: edges_of([[]], (2, 3)), "got 2 for 1 lists"),
        (lambda: edges_of([], ()), "num_nodes must give each graph's size"),
        (lambda: edges_of([[]], (-1,)), "num_nodes must give each graph's size"),
        (lambda: edges_of([[], [(0, 1)]], (2, 2)), r"graph 1 must be rows of three.*\(0, 1\)"),
        (lambda: edges_of([[(0, 1, 0.5)]], (2,)), "three integers"),
        (lambda: direct(graph=torch.tensor([0, 2])), "of graph 2 .*there are 2 graphs"),
        (lambda: direct(label=torch.zeros(3).long()), r"label must be integers.*int64 \(3,\)"),
        (lambda: direct(query=torch.zeros(2, 1).long()), r"query must be .*int64 \(2, 1\)"),
        (lambda: direct(key=torch.ones(2).bool()), "key must be integers.*bool"),
        (lambda: direct(weight=torch.ones(2).long()), "weight must be floating-point"),
        (lambda: direct(weight=torch.ones(2, 1)), "weight must be floating-point"),
    ],
)  # fmt: skip
def test_what_is_refused(make, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_edges_of_lists_are_columns_of_integers() -> None:
    edges = edges_of([[(0, 1, 2), (1, 0, 0)], [], [(2, 0, 1)]], (2, 0, 4))
    assert (edges.num_graphs, edges.length) == (3, 4)
    assert edges.graph.tolist() == [0, 0, 2]
    assert edges.label.tolist() == [2, 0, 1]
    assert edges_of([[], []], (2, 1)).label.tolist() == []
    assert edges.padding_mask().tolist() == [
        [False, False, True, True], [True] * 4, [False] * 4
    ]  # fmt: skip
    columns = torch.tensor([[1, 0], [2, 0], [1, 0], [3, 4]], dtype=torch.uint8)
    assert Edges(*columns, num_nodes=(1, 3)).graph.dtype == torch.long  # bytes index as a mask
    moved = Edges(*columns, num_nodes=(1, 3), weight=torch.ones(2)).to("meta")
    assert moved.weight.device.type == moved.key.device.type == "meta"
