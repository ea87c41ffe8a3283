"""torch.nn's attention and layers with a position: without one they are torch's."""

from __future__ import annotations

import inspect
import itertools
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.interop import torch_nn
from shapeshift.interop.torch_nn import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
)
from shapeshift.positions import (
    KINDS,
    SHAPE,
    ALiBi,
    Chain,
    Graph,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    get,
    use_edges,
)

B, Q, K, D, H = 3, 5, 7, 16, 4


close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)


def pair(
    *, batch_first: bool, position: Representation | None = None
) -> tuple[MultiheadAttention, nn.MultiheadAttention]:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, H, batch_first=batch_first)
    for bias in (theirs.in_proj_bias, theirs.out_proj.bias):
        nn.init.normal_(bias)
    ours = MultiheadAttention(D, H, batch_first=batch_first, position=position)
    ours.load_state_dict(theirs.state_dict(), strict=position is None)
    return ours, theirs


def masks(kind: str, batched: bool) -> dict[str, Tensor]:
    padding = torch.zeros(B, K, dtype=torch.bool)
    padding[1, 4:] = True
    forbidden = torch.ones(Q, K, dtype=torch.bool).triu(2)
    made = {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "float padding": {"key_padding_mask": torch.randn(B, K)},
        "attention": {"attn_mask": forbidden},
        "float attention": {"attn_mask": torch.randn(Q, K)},
        "each head": {"attn_mask": torch.randn(B * H if batched else H, Q, K)},
        "both": {"attn_mask": forbidden, "key_padding_mask": padding},
    }[kind]
    if not batched and "key_padding_mask" in made:
        made["key_padding_mask"] = made["key_padding_mask"][1]
    return made


MASKS = ("none", "padding", "float padding", "attention", "float attention", "each head", "both")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_not_finite_spoils_its_own_sentence_alone(
    kind: str, number: float
) -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(D, H, batch_first=True)
    layer.position = get(kind, dim=D, num_heads=H, head_dim=D // H)
    x = torch.randn(B, K, D)
    spoilt = x.clone()
    spoilt[0, 2, 3] = number
    mask = torch.ones(K, K, dtype=torch.bool).triu(1)
    (out, _), (expected, _) = (layer(each, each, each, attn_mask=mask) for each in (spoilt, x))
    close(out[1:], expected[1:])
    assert not torch.equal(out[0], expected[0])


def test_arguments_are_torchs() -> None:
    ours, theirs = (
        list(inspect.signature(cls).parameters.values())
        for cls in (MultiheadAttention, nn.MultiheadAttention)
    )
    assert [(p.name, p.default, p.kind) for p in ours[: len(theirs)]] == [
        (p.name, p.default, p.kind) for p in theirs
    ]
    assert [p.name for p in ours[len(theirs) :]] == ["position"]


CALLS: list[tuple[str, dict[str, Any]]] = [
    *((layout, {}) for layout in ("batch first", "length first", "unbatched")),
    ("length first", {"kdim": 6, "vdim": 10}),
    ("length first", {"kdim": 6}),
    ("unbatched", {"vdim": 10, "bias": False}),
    ("batch first", {"add_bias_kv": True}),
    ("length first", {"add_zero_attn": True}),
    ("length first", {"add_bias_kv": True, "add_zero_attn": True, "kdim": 6, "vdim": 10}),
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("layout", "options"), CALLS)
def test_attention_without_position_is_torchs(
    mask: str, layout: str, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    options = {**options, "batch_first": layout == "batch first"}
    ours, theirs = (cls(D, H, **options) for cls in (MultiheadAttention, nn.MultiheadAttention))
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours.load_state_dict(theirs.state_dict())
    widths = D, options.get("kdim", D), options.get("vdim", D)
    inputs = [torch.randn(B, n, d) for n, d in zip((Q, K, K), widths, strict=True)]
    if layout == "length first":
        inputs = [x.transpose(0, 1) for x in inputs]
    inputs = [x[0] for x in inputs] if layout == "unbatched" else inputs
    given = masks(mask, batched=layout != "unbatched")
    for weights, average in itertools.product((True, False), repeat=2):
        asked = {**given, "need_weights": weights, "average_attn_weights": average}
        found, expected = ours(*inputs, **asked), theirs(*inputs, **asked)
        close(found, expected)
        gradients = [
            torch.autograd.grad(out.cos().sum(), list(attention.parameters()))
            for (out, _), attention in ((found, ours), (expected, theirs))
        ]
        close(*gradients, atol=1e-5)


def test_other_widths_with_a_position_are_wider_keys_with_zeros() -> None:
    position = get("shaw", dim=D, num_heads=H, head_dim=D // H)
    narrow = MultiheadAttention(D, H, kdim=6, vdim=10, batch_first=True, position=position)
    wide = MultiheadAttention(D, H, batch_first=True, position=position)
    separate = narrow.q_proj_weight, narrow.k_proj_weight, narrow.v_proj_weight
    weights = [F.pad(weight, (0, D - weight.shape[1])) for weight in separate]
    wide.load_state_dict(narrow.state_dict() | {"in_proj_weight": torch.cat(weights)}, strict=False)
    query, key, value = torch.randn(B, Q, D), torch.randn(B, Q, 6), torch.randn(B, Q, 10)
    pos = torch.arange(Q)[None]
    padded = (F.pad(x, (0, D - x.shape[2])) for x in (key, value))
    found = narrow(query, key, value, pos_q=pos, pos_k=pos)
    close(found, wide(query, *padded, pos_q=pos, pos_k=pos))
    both = Chain(Rotary(head_dim=D // H), Sinusoidal(dim=D))
    for options in ({"kdim": 6}, {"vdim": 10}):
        with pytest.raises(ShapeshiftError, match="Sinusoidal adds vectors of width 16 to query"):
            MultiheadAttention(D, H, **options, position=both)


@pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}])
@pytest.mark.parametrize(
    "position", [ALiBi(num_heads=H), Sinusoidal(dim=D), Chain(Rotary(head_dim=D // H))]
)
def test_further_keys_have_no_position(options: dict[str, Any], position: Representation) -> None:
    with pytest.raises(ShapeshiftError, match="append keys that have no position"):
        MultiheadAttention(D, H, **options, position=position)
    attention, x = MultiheadAttention(D, H, **options), torch.randn(Q, B, D)
    attention.position = position
    with pytest.raises(ShapeshiftError, match="append keys that have no position"):
        attention(x, x, x)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused(layout: torch.layout) -> None:
    x = torch.nested.nested_tensor([torch.randn(4, D), torch.randn(6, D)], layout=layout)
    layer = TransformerEncoderLayer(D, H, 24, batch_first=True).eval()
    for run in (lambda: layer.self_attn(x, x, x), lambda: layer(x)):
        with torch.no_grad(), pytest.raises(ShapeshiftError, match="to_padded_tensor"):
            run()


@pytest.mark.parametrize("bias", [True, False])
def test_projections_are_drawn_again_as_torchs(bias: bool) -> None:
    drawn = []
    for attention in (MultiheadAttention(D, H, bias=bias), nn.MultiheadAttention(D, H, bias=bias)):
        for parameter in (attention.in_proj_weight, attention.in_proj_bias):
            if parameter is not None:
                nn.init.ones_(parameter)
        torch.manual_seed(0)
        attention._reset_parameters()
        drawn.append(attention.in_proj_weight)
        assert attention.in_proj_bias is None or not attention.in_proj_bias.any()
    assert torch.equal(*drawn)


def test_dropout_acts_on_the_probabilities_while_training() -> None:
    attention = MultiheadAttention(D, H, dropout=0.5, batch_first=True)
    x = torch.randn(B, Q, D)
    _, probs = attention(x, x, x, average_attn_weights=False)
    assert 0 < (probs == 0).float().mean() < 1
    assert not (attention.eval()(x, x, x)[1] == 0).any()


@pytest.mark.parametrize("kind", ["Encoder", "Decoder"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_layer_without_position_is_torchs(kind: str, norm_first: bool, batch_first: bool) -> None:
    torch.manual_seed(0)
    options = {"dropout": 0.0, "norm_first": norm_first, "batch_first": batch_first, "bias": False}
    theirs = getattr(nn, f"Transformer{kind}Layer")(D, H, 24, **options)
    ours = {"Encoder": TransformerEncoderLayer, "Decoder": TransformerDecoderLayer}[kind](
        D, H, 24, **options
    )
    ours.load_state_dict(theirs.state_dict())
    inputs = [torch.randn(B, n, D) for n in ((Q,) if kind == "Encoder" else (Q, K))]
    inputs = [x if batch_first else x.transpose(0, 1) for x in inputs]
    side = "src" if kind == "Encoder" else "tgt"
    causal = torch.ones(Q, Q, dtype=torch.bool).triu(1)
    padding = torch.arange(Q) > torch.tensor([[4], [2], [3]])
    masks = {f"{side}_mask": causal, f"{side}_key_padding_mask": padding}
    if kind == "Decoder":
        masks["memory_mask"] = torch.randn(Q, K)
        masks["memory_key_padding_mask"] = torch.arange(K) > torch.tensor([[2], [6], [0]])
    for model in (ours, theirs):
        model.eval()
    for given in ({}, masks):
        close(ours(*inputs, **given), theirs(*inputs, **given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_a_seed_makes_the_weights_of_torchs_layer(name: str, dtype: torch.dtype) -> None:
    made = []
    for cls in (getattr(torch_nn, name), getattr(nn, name)):
        torch.manual_seed(0)
        made.append((cls(D, H, 24, dtype=dtype).state_dict(), torch.rand(4)))
    torch.testing.assert_close(*made, rtol=0, atol=0)
    assert list(made[0][0]) == list(made[1][0])
    assert {weight.dtype for weight in made[0][0].values()} == {dtype}


@pytest.mark.parametrize("position", ["rpe", "t5", "alibi", Shaw(num_heads=H, head_dim=D // H)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_position_has_the_dtype_and_the_device_of_its_layer(
    position: object, dtype: torch.dtype
) -> None:
    x = torch.randn(Q, B, D, dtype=dtype)
    layer = TransformerEncoderLayer(D, H, 24, position=deepcopy(position), dtype=dtype)
    assert layer(x).dtype == dtype
    assert {p.dtype for p in layer.parameters()} == {dtype}
    options = {"position": deepcopy(position), "device": "meta"}
    layer = TransformerDecoderLayer(D, H, 24, cross_position="rotary", **options)
    assert {p.device.type for p in layer.parameters()} == {"meta"}


@pytest.mark.parametrize("name", [*KINDS, "graph"])
def test_function_transforms(name: str) -> None:
    sizes = {"dim": D, "num_heads": H, "head_dim": D // H}
    graph = Graph(num_heads=H, head_dim=D // H, num_labels=3)
    position = graph if name == "graph" else get(name, **sizes)
    attention = MultiheadAttention(D, H, batch_first=True, position=position).double()
    labels, mask = torch.randint(-1, 3, (1, Q, Q)), torch.ones(Q, Q, dtype=torch.bool).triu(1)

    def run(x: Tensor) -> Tensor:
        return attention(x, x, x, attn_mask=mask)[0]

    x, direction = torch.randn(2, B, 1, Q, D, dtype=torch.float64)
    with use_edges(graph, labels):
        for function in (run, torch.func.grad(lambda x: run(x).square().sum())):
            alone = torch.stack([function(each) for each in x])
            torch.testing.assert_close(torch.func.vmap(function)(x), alone)
        _, slope = torch.func.jvp(run, (x[0],), (direction[0],))
        around = (run(x[0] + step * direction[0]) for step in (1e-6, -1e-6))
        torch.testing.assert_close(slope, (next(around) - next(around)) / 2e-6, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("need_weights", [False, True])
def test_function_transforms_of_one_argument(need_weights: bool, dropout: float) -> None:
    t5 = get("t5", dim=D, num_heads=H, head_dim=D // H)
    attention = MultiheadAttention(D, H, dropout=dropout, batch_first=True, position=t5)
    x, names = torch.randn(B, Q, D), [name for name, _ in attention.named_parameters()]

    def run(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
        given, how = dict(zip(names, weights, strict=True)), {"need_weights": need_weights}
        call = query, key, value
        out: Tensor = torch.func.functional_call(
            attention, given, call, {"attn_mask": mask, **how}
        )[0]
        return out

    arguments = [x, x, x, torch.zeros(Q, Q), *attention.parameters()]
    for n, argument in enumerate(arguments):
        both = torch.stack([argument, 2 * argument])

        def of_one(y: Tensor, n: int = n) -> Tensor:
            return run(*arguments[:n], y, *arguments[n + 1 :])

        batch = torch.func.vmap(of_one, randomness="same")(both)
        slope = torch.func.grad(lambda y, f=of_one: f(y).square().sum())(argument)
        assert slope.shape == argument.shape
        if not dropout:
            torch.testing.assert_close(batch, torch.stack([of_one(y) for y in both]))


@pytest.mark.parametrize(
    "name",
    [
        "shaw",
        *(pytest.param(x, marks=pytest.mark.long) for x in ("learned", "rotary", "t5", "fire")),
    ],
)
def test_a_program_serves_other_batches_and_lengths(name: str) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            position = get(name, dim=D, num_heads=H, head_dim=D // H)
            self.attention = MultiheadAttention(D, H, batch_first=True, position=position)

        def forward(self, x: Tensor, pos: Tensor) -> Tensor:
            return self.attention(x, x, x, need_weights=False, pos_q=pos)[0]

    def inputs(size: int, length: int) -> tuple[Tensor, Tensor]:
        pos = torch.arange(length) + torch.arange(size)[:, None]
        return torch.randn(size, length, D), pos

    shape = {0: torch.export.Dim("B", max=50), 1: torch.export.Dim("T", max=50)}
    layer = Layer().eval()
    program = torch.export.export(layer, inputs(2, 6), dynamic_shapes=(shape, shape)).module()
    larger = inputs(3, 9)
    torch.testing.assert_close(program(*larger), layer(*larger))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        *((x, f"{x!r} adds positions to the embeddings") for x in ("ape", "learned", "cross-pe")),
        *((x, r"got (SHAPE|class Shaw|int); SHAPE is called") for x in (SHAPE(dim=D), Shaw, 3)),
        (Chain(Chain(ALiBi(num_heads=2))), "num_heads=2, .* build it for num_heads=4$"),
    ],
)
def test_what_is_no_position_here_is_refused(position: Any, message: str) -> None:
    for layer in (MultiheadAttention, TransformerEncoderLayer, TransformerDecoderLayer):
        with pytest.raises(ShapeshiftError, match=message):
            layer(D, H, position=position)
