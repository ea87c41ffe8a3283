"""A model whose products read weights that were cast once."""

from __future__ import annotations

import pytest
import torch

from shapeshift.model import ModelConfig, Transformer, build, cast_for_inference


def translate(model: Transformer, source: torch.Tensor) -> torch.Tensor:
    """Return the logits of a few steps of decoding under autocast."""
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        state = model.start(source, beam=2)
        tokens = torch.arange(4, 4 + 2 * len(source))
        return torch.stack([state.step(tokens + n) for n in range(3)])


@pytest.mark.parametrize("position", ["ape", "rpe", "t5", "tupe", "rope"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "apart"])
def test_logits_are_the_same_bits(position: str, tied: bool) -> None:
    torch.manual_seed(0)
    model = build(ModelConfig(size="tiny", tie_output=tied, output_bias=tied), position, 50, 50)
    model.eval()
    if model.output_bias is not None:
        torch.nn.init.normal_(model.output_bias)
    source = torch.randint(4, 50, (3, 7))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    copy = cast_for_inference(model, torch.bfloat16)
    assert torch.equal(translate(copy, source), translate(model, source))
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_products_read_cast_weights_and_the_rest_is_shared() -> None:
    model = build(ModelConfig(size="tiny"), "ape", 50, 50).train()
    copy = cast_for_inference(model, torch.bfloat16)
    layer, shared = copy.decoder[0], model.decoder[0]
    assert layer.cross_attention.in_weight.dtype is torch.bfloat16
    assert layer.feed_forward.inner.weight.dtype is torch.bfloat16
    assert copy.output.weight.dtype is torch.bfloat16
    assert copy.target.tokens.weight is model.target.tokens.weight
    assert layer.around_attention.norm.weight is shared.around_attention.norm.weight
    assert model.training
    assert not copy.training
