"""A model whose products read weights that were cast and laid out once."""

import pytest
import torch
from tests.unit.quantized import quantize
from torch import nn
from torch.nn import functional as F

from shapeshift.decoding import running
from shapeshift.decoding.config import DecodingConfig
from shapeshift.model import ModelConfig, Transformer, build, copy_for_inference
from shapeshift.model.inference import BlockedLinear, PanelLinear, linear_for


def translate(model: Transformer, source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the logits of a few steps of decoding, in bfloat16 under autocast."""
    is_half = dtype is torch.bfloat16
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        state = model.start(source, beam=2)
        tokens = torch.arange(4, 4 + 2 * len(source))
        first = state.begin(tokens[: len(source)]).repeat_interleave(2, 0)
        made = [first, *(state.step(tokens + n) for n in range(2))]
        state.reorder(torch.tensor([1, 0, 2, 2, 5, 4]))
        return torch.stack([*made, state.step(tokens)])


@pytest.mark.parametrize("position", ["ape", "rpe", "rope"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_logits_are_the_same(position, tied, dtype):
    torch.manual_seed(0)
    model = build(ModelConfig(size="tiny", tie_output=tied, output_bias=tied), position, 50, 50)
    model.eval()
    if model.output_bias is not None:
        torch.nn.init.normal_(model.output_bias)
    source = torch.randint(4, 50, (3, 7))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    copy = copy_for_inference(model, dtype)
    linear = linear_for(model.output.weight, dtype) or nn.Linear
    assert isinstance(copy.decoder[0].feed_forward.inner, linear)
    torch.testing.assert_close(translate(copy, source, dtype), translate(model, source, dtype))
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert copy.output.weight.dtype is dtype
    assert copy.target.tokens.weight is model.target.tokens.weight
    norms = (each.decoder[0].around_attention.norm.weight for each in (copy, model))
    assert next(norms) is next(norms)


@pytest.mark.parametrize("activation", ["none", "relu"])
@pytest.mark.parametrize(
    ("linear", "dtype"), [(BlockedLinear, torch.bfloat16), (PanelLinear, torch.float32)]
)
def test_a_weight_laid_out_multiplies_inputs_of_all_shapes_strides_and_types(
    linear, dtype, activation
):
    weight, bias = torch.randn(48, 32).to(dtype), torch.randn(48).to(dtype)
    if linear_for(weight, dtype) is not linear:
        pytest.skip("no products in bf16, or no C compiler")
    laid_out = linear(weight, bias, activation)
    y = torch.randn(5, 8, 64).bfloat16()
    for x in (y[0, :, :32], y[..., ::2], y[..., :32].transpose(0, 1), y[:, :0, :32], y[0, 0, :32]):
        for given in (x, x.float()):
            with torch.inference_mode():
                expected = F.linear(x.to(dtype), weight, bias)
                expected = expected.relu() if activation == "relu" else expected
                torch.testing.assert_close(laid_out(given), expected, rtol=0.02, atol=0.05)


PAIR = [[5, 6]], [[7, 8]]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_a_runner_copies_weights_once_until_they_change(autocast, monkeypatch):
    model = build(ModelConfig(size="tiny"), "ape", 50, 50)
    dtypes = []

    def counted(model, dtype):
        dtypes.append(dtype)
        return copy_for_inference(model, dtype)

    monkeypatch.setattr(running, "copy_for_inference", counted)
    runner = running.Runner(model, DecodingConfig(beam=2), autocast=autocast)

    def score():
        return runner.score(*PAIR)

    first = score()
    runner.search([[5, 6, 7]])
    assert dtypes == [autocast or torch.float32]
    assert score() == first
    with torch.no_grad():
        model.encoder[0].feed_forward.inner.weight.mul_(2)
    assert score() != first
    assert len(dtypes) == 2
    other = build(ModelConfig(size="tiny"), "ape", 50, 50)
    model.load_state_dict(other.state_dict(), assign=True)
    assert score() == running.Runner(other, DecodingConfig(), autocast=autocast).score(*PAIR)


def test_a_quantized_model_translates():
    models = [build(ModelConfig(size="tiny"), "fire", 50, 50) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for quantized, plain in zip(*(each.modules() for each in models), strict=True):
        for name, layer in quantized.named_children():
            if isinstance(layer, nn.Linear):
                plain.register_module(name, quantize(layer))
    scores = [running.Runner(model, DecodingConfig()).score(*PAIR)[0] for model in models]
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_hooks_of_users_see_what_translates():
    model = build(ModelConfig(size="tiny"), "ape", 50, 50)
    runner, seen = running.Runner(model, DecodingConfig()), []
    runner.search([[5, 6, 7]])
    feed_forward = model.encoder[0].feed_forward
    feed_forward.inner.register_forward_hook(lambda module, args, out: seen.append(module))
    runner.search([[5, 6, 7]])
    assert seen == [feed_forward.inner]
    feed_forward.outer.register_forward_hook(lambda module, args, out: out * 0)
    copy = copy_for_inference(model, torch.float32)
    assert not copy.encoder[0].feed_forward(torch.randn(1, 3, 128)).any()
