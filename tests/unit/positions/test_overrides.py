"""What replaces a hook of a kind, or acts on its weights, is obeyed by the faster ways too."""

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from tests.unit.quantized import quantize
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, attend_with_probs, example
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.kernels import library
from shapeshift.model.attention import Attention
from shapeshift.positions import (
    FIRE,
    KERPLE,
    T5,
    TUPE,
    ALiBi,
    Chain,
    Graph,
    Learned,
    Representation,
    Rotary,
    Shaw,
    use_edges,
)
from shapeshift.positions.base import AT_ATTENTION
from shapeshift.positions.pairs import Table
from shapeshift.positions.turns import Turn

D, H, E, T = 32, 2, 16, 9
SIZES = {"num_heads": H, "head_dim": E}
POS = torch.arange(T)[None]


def louder_bias(self: ALiBi, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
    return -5 * (pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)).abs().to(dtype).unsqueeze(1)


def no_query_bias(self: Shaw, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> None:
    return None


def louder_distances(self: ALiBi, distances: Tensor, dtype: torch.dtype) -> Tensor:
    return -5 * distances.abs().to(dtype)[None]


def no_vectors(self: Shaw) -> tuple[None, None]:
    return None, None


def further_vectors(self: Shaw) -> tuple[Table, Table]:
    return Table(2 * self.keys, -3), Table(3 * self.values, -3)


def faster_turn(self: Rotary, pos: Tensor, dtype: torch.dtype) -> Turn:
    return Rotary(head_dim=E).turn(3 * pos, dtype)


def faster_rotation(
    self: Rotary, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor
) -> tuple[Tensor, Tensor]:
    return Rotary(head_dim=E).rotate(q, k, 3 * pos_q, 3 * pos_k)


class Vectors(Shaw):
    def distance_vectors(self):
        keys, values = super().distance_vectors()
        assert keys is not None
        return keys._replace(low=keys.low + 3), values


class Limits(T5):
    def __init__(self, **options: Any):
        super().__init__(**options)
        self.limits = (-2, 1)


class Values(T5):
    def distance_bias(self, distances, dtype):
        return distances.expand(H, *distances.shape).to(dtype)


class Slopes(ALiBi):
    def slopes(self, device=None):
        return super().slopes(device) * 0 + 3.0


class Late(ALiBi):
    pass


class LateShaw(Shaw):
    pass


class LateRotary(Rotary):
    pass


def on_object(position: Representation, hook: str, function: Any) -> Representation:
    setattr(position, hook, MethodType(function, position))
    return position


MADE: dict[str, Callable[[], Representation]] = {
    "vectors": lambda: Vectors(**SIZES),
    "limits": lambda: Limits(dim=D, num_heads=H),
    "values": lambda: Values(dim=D, num_heads=H),
    "slopes": lambda: Slopes(num_heads=H),
    "bias of an object": lambda: on_object(ALiBi(num_heads=H), "bias", louder_bias),
    "bias of a part": lambda: Chain(on_object(ALiBi(num_heads=H), "bias", louder_bias)),
    "bias of none": lambda: on_object(Representation(), "bias", louder_bias),
    "query_bias of an object": lambda: on_object(Shaw(**SIZES), "query_bias", no_query_bias),
    "rotate of an object": lambda: on_object(Rotary(head_dim=E), "rotate", faster_rotation),
    "distances of an object": lambda: on_object(
        ALiBi(num_heads=H), "distance_bias", louder_distances
    ),
    "distances of a part": lambda: Chain(
        on_object(ALiBi(num_heads=H), "distance_bias", louder_distances)
    ),
    "distances of none": lambda: on_object(Representation(), "distance_bias", louder_distances),
    "vectors of an object": lambda: on_object(Shaw(**SIZES), "distance_vectors", further_vectors),
    "turn of an object": lambda: on_object(Rotary(head_dim=E), "turn", faster_turn),
    "bias of a class": lambda: Late(num_heads=H),
    "query_bias of a class": lambda: LateShaw(**SIZES),
    "rotate of a class": lambda: LateRotary(head_dim=E),
}


@pytest.mark.parametrize("name", MADE)
def test_a_hook_that_was_replaced_is_obeyed(name, monkeypatch):
    """With the layer of torch.nn and that of the model: `need_weights` takes the hooks alone."""
    monkeypatch.setattr(Late, "bias", louder_bias)
    monkeypatch.setattr(LateShaw, "query_bias", no_query_bias)
    monkeypatch.setattr(LateRotary, "rotate", faster_rotation)
    torch.manual_seed(0)
    module = MultiheadAttention(D, H, batch_first=True, position=MADE[name]()).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    position, x = module.position, torch.randn(2, T, D)
    expected = module(x, x, x, need_weights=True)[0]
    torch.testing.assert_close(module(x, x, x, need_weights=False)[0], expected)
    module.position = Representation()
    assert not torch.allclose(module(x, x, x, need_weights=False)[0], expected, atol=1e-2)

    layer = Attention(D, H, 0.0, position)
    with torch.no_grad():
        layer.in_weight.copy_(module.in_proj_weight)
        layer.in_bias.copy_(module.in_proj_bias)
        layer.out.load_state_dict(module.out_proj.state_dict())
    torch.testing.assert_close(layer(x, x, POS, POS, None), expected)


def test_what_replaces_nothing_keeps_the_faster_way(ran):
    """Else a kind of one's own would be slow for a method of another name."""

    class Named(Shaw):
        def extra_repr(self):
            return "named"

    heads = torch.randn(3, 2, H, T, E)
    for position, hook in (
        (Named(**SIZES), "query_bias"),
        (Vectors(**SIZES), "query_bias"),
        (Slopes(num_heads=H), "bias"),
        (Values(dim=D, num_heads=H), "bias"),
        (on_object(ALiBi(num_heads=H), "distance_bias", louder_distances), "bias"),
    ):
        assert position.derives(hook)
        attend(*heads, None, position, POS, POS)
    assert ran == ["cpu" if kernels.is_available(torch.float32) else "reference"] * 5
    replaced = on_object(Shaw(**SIZES), "query_bias", no_query_bias)
    assert not replaced.derives("query_bias")
    assert replaced.derives("value_bias")
    assert not on_object(Shaw(**SIZES), "distance_vectors", no_vectors).acts("query_bias")


@pytest.mark.parametrize("value", [nn.Linear(2, 2), nn.Parameter(torch.ones(2)), torch.ones(2)])
@pytest.mark.parametrize("name", ["bias", "state", "distance_bias"])
def test_a_method_of_positions_is_no_name_for_weights(name, value):
    with pytest.raises(ShapeshiftError, match=f"ALiBi.{name} is a method .* give it another name"):
        setattr(ALiBi(num_heads=H), name, value)


def test_a_hook_of_an_object_is_given_all_queries_at_once():
    """It may not be called for a part of them, as the kinds may whose hooks are derived."""
    position, chain = ALiBi(num_heads=H), Chain(part := ALiBi(num_heads=H))
    assert [example(each).opaque for each in (position, chain)] == [[], []]
    for each in (position, part):
        on_object(each, "bias", louder_bias)
    assert [example(each).opaque for each in (position, chain)] == [["bias"], ["bias"]]


class Double(nn.Module):
    def forward(self, weight):
        return 2 * weight


WEIGHTS: list[tuple[Callable[[], Representation], str]] = [
    (lambda: Shaw(**SIZES), "keys"),
    (lambda: Shaw(**SIZES), "values"),
    (lambda: T5(dim=D, num_heads=H), "weight"),
    (lambda: KERPLE(num_heads=H), "log_r1"),
    (lambda: FIRE(num_heads=H), "log_c"),
    (lambda: TUPE(dim=D, num_heads=H), "query"),
]


@pytest.mark.parametrize(("make", "weight"), WEIGHTS)
def test_a_parametrized_weight_counts(make, weight):
    torch.manual_seed(0)
    position, heads = make(), torch.randn(3, 2, H, T, E)
    parametrize.register_parametrization(position, weight, Double())
    assert [name for name, _ in position.named_parameters() if weight in name] == [
        f"parametrizations.{weight}.original"
    ]
    expected = attend_with_probs(*heads, None, position, POS, POS)[0]
    torch.testing.assert_close(attend(*heads, None, position, POS, POS), expected)
    parametrize.remove_parametrizations(position, weight, leave_parametrized=True)
    torch.testing.assert_close(attend(*heads, None, position, POS, POS), expected)


def pruned(position: Representation, module: nn.Module, weight: str) -> float:
    """Train a layer of which a weight is pruned; return how much what was pruned matters then."""
    prune.l1_unstructured(module, weight, 0.5)
    layer, x = Attention(D, H, 0.0, position), torch.randn(2, T, D)
    optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
    for _ in range(2):  # the second fails if the product with the mask is that of the first
        optimizer.zero_grad()
        layer(x, x, POS, POS, None).square().sum().backward()
        optimizer.step()
    with torch.no_grad():
        before = layer(x, x, POS, POS, None)
        original, mask = (getattr(module, f"{weight}_{end}") for end in ("orig", "mask"))
        original[mask == 0] += 10.0
        after = layer(x, x, POS, POS, None)
        original += mask * torch.randn_like(mask)
        moved = layer(x, x, POS, POS, None)
    assert not torch.allclose(moved, before, atol=1e-3)
    return float((after - before).abs().max())


def test_pruned_weights_are_computed_anew_in_each_step():
    torch.manual_seed(0)
    for make, weight in WEIGHTS:
        position = make()
        if position.get_parameter(weight).numel() > 1:
            assert pruned(position, position, weight) == 0, weight
    fire, tupe = FIRE(num_heads=H), TUPE(dim=D, num_heads=H)
    assert pruned(fire, fire.inner, "weight") == 0
    assert pruned(tupe, tupe.vectors, "weight") == 0
    chain = Chain(T5(dim=D, num_heads=H))
    assert pruned(chain, chain.parts[0], "weight") == 0


def test_linear_layers_of_a_kind_compute_what_has_become_of_them():
    position, plain, heads = FIRE(num_heads=H), FIRE(num_heads=H), torch.randn(3, 2, H, T, E)
    before = attend(*heads, None, position, POS, POS)
    plain.load_state_dict(position.state_dict())
    plain.inner, plain.outer = quantize(position.inner), quantize(position.outer)
    expected = attend(*heads, None, plain, POS, POS)
    torch.testing.assert_close(attend(*heads, None, position, POS, POS), expected)
    assert not torch.equal(expected, before)
    # As LoRA by hand, or accelerate, replaces it.
    plain.outer.forward = lambda x: 2 * nn.Linear.forward(plain.outer, x)
    assert not torch.allclose(attend(*heads, None, plain, POS, POS), expected, atol=1e-3)


@pytest.mark.parametrize(
    "position",
    [Shaw(**SIZES), T5(dim=D, num_heads=H), Chain(Rotary(head_dim=E), ALiBi(num_heads=H))],
)
def test_a_replaced_forward_is_called_for_each_hook(position):
    layer, x, called = Attention(D, H, 0.0, position), torch.randn(2, T, D), []
    expected = layer(x, x, POS, POS, None)
    part = next(iter(position.parts)) if isinstance(position, Chain) else position
    forward = part.forward
    part.forward = lambda hook, *args, **options: (
        called.append(hook) or forward(hook, *args, **options)
    )
    torch.testing.assert_close(layer(x, x, POS, POS, None), expected)
    assert {*called} & {"rotate", "bias", "query_bias"}


def test_hooks_of_a_module_run_around_each_hook_of_the_kind():
    calls: list[str] = []
    position = Chain(Learned(dim=D), TUPE(dim=D, num_heads=H), Shaw(**SIZES))
    for part in (position, *position.parts):
        part.register_forward_pre_hook(lambda _, args: calls.append(args[0]))
    x = torch.randn(2, T, D)
    Attention(D, H, 0.0, position)(x, x, POS, POS, None)
    for hook in ("inputs", "rotate", "bias", "query_bias", "value_bias"):
        assert calls.count(hook) == 4, hook


def test_a_graph_can_be_parametrized():
    graph, heads = Graph(**SIZES, num_labels=3), torch.randn(3, 2, H, T, E)
    for weight in ("keys", "values"):
        parametrize.register_parametrization(graph, weight, Double())
    with use_edges(graph, torch.randint(-1, 3, (2, T, T))):
        attend(*heads, None, graph, POS, POS).sum().backward()
    grads = {name: parameter.grad for name, parameter in graph.named_parameters()}
    assert {*grads} == {f"parametrizations.{name}.original" for name in ("keys", "values")}
    assert None not in grads.values()


def test_the_kernel_serves_what_nobody_has_changed(monkeypatch):
    if not kernels.is_available(torch.float32):
        pytest.skip("no compiled kernels")
    calls, call = [], library.call
    monkeypatch.setattr(library, "call", lambda *x: calls.append(x[0]) or call(*x))
    heads, position = torch.randn(3, 2, H, T, E), Shaw(**SIZES)
    attend(*heads, None, position, POS, POS)
    assert calls == ["attention_forward"]
    position.register_forward_pre_hook(lambda *_: None)
    attend(*heads, None, position, POS, POS)
    assert calls == ["attention_forward"]


@pytest.mark.long
@pytest.mark.parametrize(
    "position", [Shaw(num_heads=2, head_dim=8), T5(dim=16, num_heads=2), Rotary(head_dim=8)]
)
def test_compiled_code_sees_what_a_kind_overrides(position):
    """What torch.compile traces takes the same ways as what it does not."""

    def found():
        return tuple(
            ask(hook) for ask in (position.acts, position.derives) for hook in AT_ATTENTION
        )

    def traced(x):
        return x + 1, found()

    torch._dynamo.reset()
    assert torch.compile(traced, backend="eager", fullgraph=True)(torch.zeros(1))[1] == found()
