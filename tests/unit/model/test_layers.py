"""What layers keep for the backward pass, and gradients of linear ones."""

import warnings
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from shapeshift import kernels
from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss, layers
from shapeshift.model.attention import Attention
from shapeshift.model.linear import apply_linear, can_fuse
from shapeshift.positions import SCHEMES


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
    model = build(ModelConfig(size="tiny", dropout=0.1), SCHEMES["rpe"], 50, 50)
    ids = torch.randint(4, 50, (2, 7))
    weights = dict(model.named_parameters())

    def total(weights):
        return torch.func.functional_call(model, weights, (ids, ids)).square().sum()

    torch.func.grad(total)(weights)
    model.eval()
    slopes = torch.func.grad(total)(weights)
    expected = torch.autograd.grad(model(ids, ids).square().sum(), [*weights.values()])
    for slope, other in zip(slopes.values(), expected, strict=True):
        torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-4)


def test_hooks_run_once_a_step_and_gradients_are_those_of_what_they_changed(seed_model):
    """A hook that changes a tensor in place trains as one that returns another tensor."""
    kept = (torch.rand(32) > 0.5).float()
    gradients, calls = [], []

    def multiply(module, args, out):
        calls.append(module)
        return out.mul_(kept) if in_place else out * kept

    def multiply_input(module, args):
        calls.append(module)
        return (args[0].mul_(kept) if in_place else args[0] * kept, *args[1:])

    for changes in (True, False):
        in_place = changes
        model = seed_model()
        norms = [x for x in model.modules() if isinstance(x, nn.LayerNorm)]
        outputs = [x.out for x in model.modules() if isinstance(x, Attention)]
        for module in (*norms, *outputs):
            module.register_forward_hook(multiply)
        for module in (x for x in model.modules() if isinstance(x, layers.FeedForward)):
            module.register_forward_pre_hook(multiply_input)
        calls.clear()
        loss = loss_of(model, torch.float32)
        gradients.append(torch.autograd.grad(loss, [*model.parameters()]))
        assert len(calls) == len(set(calls)) == len(norms) + len(outputs) + 2
    assert all(map(torch.equal, *gradients))


@pytest.fixture(params=["pre", "post"])
def seed_model(request):
    def make():
        torch.manual_seed(0)
        shape = {"dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1}
        return build(ModelConfig(norm=request.param, **shape), "ape", 9, 9)

    return make


def test_gradients_of_other_weights_are_those_of_a_model_that_has_them(seed_model):
    model, ids = seed_model().eval(), torch.randint(4, 9, (2, 5))
    other = {n: (x + 0.3 * torch.randn_like(x)).detach() for n, x in model.named_parameters()}
    for weight in other.values():
        weight.requires_grad_()
    torch.func.functional_call(model, other, (ids, ids)).square().sum().backward()
    twin = deepcopy(model)
    with torch.no_grad():
        for name, weight in twin.named_parameters():
            weight.copy_(other[name])
    twin(ids, ids).square().sum().backward()
    for name, weight in twin.named_parameters():
        assert torch.equal(weight.grad, other[name].grad)


def test_checkpointed_layers_keep_their_input_alone(seed_model):
    layer, x, pos = seed_model().encoder[0], torch.randn(2, 5, 32), torch.arange(5)[None]

    def kept(call, *args):
        sizes = []
        pack = lambda saved: sizes.append(saved.numel()) or saved  # noqa: E731
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            out = call(*args)
        (gradient,) = torch.autograd.grad(out.sum(), layer.attention.in_weight)
        return sum(sizes), gradient

    layer.eval()
    x.requires_grad_()
    plain, expected = kept(layer, x, pos, None)
    checkpointed = partial(checkpoint, layer, use_reentrant=False)
    least, gradient = kept(checkpointed, x, pos, None)
    assert torch.equal(gradient, expected)
    assert least == x.numel() + pos.numel()
    assert plain > 10 * x.numel()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_relu_leaves_alone_what_another_module_holds(rate, dtype):
    """`Sigmoid` keeps its result for its gradient, and a parametrized layer is of another class."""

    class Sigmoid(nn.Linear):
        def forward(self, x):
            self.result = super().forward(x).sigmoid() - 0.5
            return self.result

    torch.manual_seed(0)
    feed_forward = layers.FeedForward(32, 64, "relu", rate)
    feed_forward.inner = Sigmoid(32, 64)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        feed_forward(torch.randn(3, 5, 32)).sum().backward()
    assert (feed_forward.inner.result < 0).any()
    changed = layers.FeedForward(32, 64, "relu", rate)
    parametrize.register_parametrization(changed.inner, "weight", nn.Tanh())
    assert not can_fuse(changed.inner)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        changed(torch.randn(3, 5, 32)).sum().backward()
    assert changed.inner.parametrizations.weight.original.grad.any()


def test_quantize_dynamic_finds_every_linear_layer():
    model = build(ModelConfig(size="tiny"), "ape", 50, 50).eval()
    ids = torch.randint(4, 50, (2, 7))
    expected = model(ids, ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
        found = quantized(ids, ids)
    assert not any(isinstance(x, nn.Linear) for x in quantized.modules())
    assert (found - expected).norm() < 0.1 * expected.norm()
    assert not torch.equal(found, expected)


@pytest.mark.parametrize("with_kernels", [True, False])
def test_no_rounded_copy_of_a_weight_is_kept_for_the_backward_pass(with_kernels, monkeypatch):
    if not with_kernels:
        monkeypatch.setattr(kernels, "is_available", lambda _: False)
    layer, x, kept = nn.Linear(32, 64), torch.randn(8, 32), []

    def keep(saved):
        kept.append((saved.dtype, tuple(saved.shape)))
        return saved

    with (
        torch.autocast("cpu", torch.bfloat16),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved),
    ):
        apply_linear(layer, x)
    assert sorted(kept, key=str) == [(torch.bfloat16, (8, 32)), (torch.float32, (64, 32))]
