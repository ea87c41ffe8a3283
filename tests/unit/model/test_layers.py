"""What layers keep for the backward pass, and gradients of linear ones."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.model import (
    ModelConfig,
    Transformer,
    attention,
    build,
    label_smoothed_loss,
    layers,
    linear,
    recompute,
)
from shapeshift.positions import PRESETS


def loss_of(model: Transformer, dtype: torch.dtype) -> Tensor:
    ids = torch.randint(5, 9, (2, 4), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return label_smoothed_loss(model, ids, ids, ids, 0.1).smoothed


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_hooks_see_what_comes_before_and_after_relu(rate):
    feed_forward = layers.FeedForward(8, 32, "relu", rate)
    x = torch.randn(3, 5, 8, requires_grad=True)
    expected = torch.autograd.grad(feed_forward.eval()(x).sum(), feed_forward.inner.weight)
    seen = {}
    for name, module in feed_forward.named_children():
        module.register_forward_hook(lambda *call, name=name: seen.update({name: call[-1]}))
        module.register_full_backward_hook(
            lambda *call, name=name: seen.update({f"grad {name}": 1})
        )
    feed_forward(x).sum().backward()
    torch.testing.assert_close(feed_forward.inner.weight.grad, *expected)
    assert (seen["inner"] < 0).any()
    assert torch.equal(seen["activation"], seen["inner"].relu())
    assert {"grad inner", "grad activation", "grad outer"} <= seen.keys()
    feed_forward.train()(x).sum().backward()


def test_functions_of_a_model_have_gradients_by_torch_func():
    model = build(ModelConfig(size="tiny", dropout=0.1), PRESETS["rpe"], 50, 50)
    ids = torch.randint(4, 50, (2, 7))
    weights = dict(model.named_parameters())

    def total(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, weights, (ids, ids)).square().sum()

    torch.func.grad(total)(weights)
    model.eval()
    slopes = torch.func.grad(total)(weights)
    expected = torch.autograd.grad(model(ids, ids).square().sum(), [*weights.values()])
    for slope, other in zip(slopes.values(), expected, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("scheme", ["ape", "t5", "rpe"])
def test_norms_and_heads_are_not_kept_but_computed_again_to_the_same_bits(
    scheme: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(
        size="tiny", dim=8, num_heads=2, ff_dim=16, encoder_layers=1, decoder_layers=1
    )
    torch.manual_seed(0)
    model = build(config, PRESETS[scheme], 9, 9)
    tensors: list[weakref.ref[Tensor]] = []

    @contextmanager
    def spy(x: Tensor, again: Callable[[], Tensor]) -> Iterator[None]:
        tensors.append(weakref.ref(x))
        with recompute.recomputed(x, again):
            yield

    for module in (layers, attention):
        monkeypatch.setattr(module, "recomputed", spy)
    loss = loss_of(model, dtype)
    norms, attentions = 5, 3 * kernels.is_available(dtype)
    assert [each() for each in tensors] == [None] * (norms + attentions)
    fresh = torch.autograd.grad(loss, [*model.parameters()])
    for module in (layers, attention):
        monkeypatch.setattr(module, "recomputed", lambda x, again: nullcontext())
    kept = torch.autograd.grad(loss_of(model, dtype), [*model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(fresh, kept, strict=True))


@pytest.mark.parametrize("faster", [True, False], ids=["bf16", "in-fp32"])
@pytest.mark.parametrize("shape", [(5, 7, 64, 96), (1, 1, 32, 32), (3, 300, 40, 24)])
def test_linear_layers_in_bf16_compute_what_pytorch_does(shape, faster, monkeypatch):
    if not kernels.is_available(torch.bfloat16) or (faster and not linear.has_bf16_products()):
        pytest.skip("no C compiler, or a processor without bf16")
    monkeypatch.setattr(linear, "multiplies_bf16_faster", lambda: faster)
    calls, call = [], kernels._call
    monkeypatch.setattr(kernels, "_call", lambda *x: calls.append(x[0]) or call(*x))
    B, T, K, N = shape
    layer = linear.Linear(K, N)
    x, grad = torch.randn(B, T, K).bfloat16().requires_grad_(), torch.randn(B, T, N).bfloat16()
    leaves = [x, layer.weight, layer.bias]
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
        found = [out, *torch.autograd.grad(out, leaves, grad, create_graph=True)]
        found[1].sum().backward()  # there are second derivatives
        out = layer(x)
    assert type(out.grad_fn.next_functions[0][0]).__name__ == "_LinearBackward"
    assert not calls
    found += torch.autograd.grad(out, leaves, grad)
    with torch.autocast("cpu", torch.float16):
        assert layer(x).dtype == torch.float16
    assert calls == ["weight_gradient"] * (faster and K % 32 == N % 32 == 0)
    rounded = layer.weight.bfloat16().double(), layer.bias.bfloat16().double()
    out = torch.nn.functional.linear(x.double(), *rounded)
    expected = [out, *torch.autograd.grad(out, (x, *rounded), grad.double())]
    for got, wanted in zip(found, [*expected, *expected[1:]], strict=True):
        assert (got.double() - wanted).abs().max() <= 0.01 * wanted.abs().max()
