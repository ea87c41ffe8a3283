"""Linear layers in training in bf16 compute what PyTorch's do."""

import pytest
import torch

from shapeshift import kernels
from shapeshift.model import linear as module
from shapeshift.model.linear import Linear


@pytest.mark.parametrize("faster", [True, False], ids=["bf16", "in-fp32"])
@pytest.mark.parametrize("shape", [(5, 7, 64, 96), (1, 1, 32, 32), (3, 300, 40, 24)])
def test_gradients_in_bf16(shape, faster, monkeypatch):
    if not kernels.is_available(torch.bfloat16) or (faster and not module.has_bf16_products()):
        pytest.skip("no C compiler, or a processor without bf16")
    monkeypatch.setattr(module, "multiplies_bf16_faster", lambda: faster)
    calls, call = [], kernels._call
    monkeypatch.setattr(kernels, "_call", lambda *x: calls.append(x[0]) or call(*x))
    B, T, K, N = shape
    layer = Linear(K, N)
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
