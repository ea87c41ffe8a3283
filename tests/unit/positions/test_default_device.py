"""Modules on a CPU work under any default device: what a call makes is where its inputs are."""

import pytest
import torch

from shapeshift import SHAPE
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.model import ModelConfig, build, label_smoothed_loss
from shapeshift.positions import KINDS, get

META = torch.device("meta")
SCHEMES = ("ape", "rpe", "rope", "t5", "alibi", "randomized", "shape")


@pytest.fixture(params=["context", "default"])
def under(request):
    """Call a function under another default device, which it must not use."""

    def run(call):
        if request.param == "context":
            with META:
                out = call()
        else:
            torch.set_default_device(META)
            try:
                out = call()
            finally:
                torch.set_default_device(None)
        assert out.device.type == "cpu"
        return out

    return run


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_layer_of_each_kind(name, weights, under):
    torch.manual_seed(0)
    position = get(name, dim=64, num_heads=4, head_dim=16, causal=True)
    layer = MultiheadAttention(64, 4, batch_first=True, position=position).eval()
    for length in (5, 70):
        x = torch.randn(2, length, 64, requires_grad=True)
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        pos = torch.arange(length)[None] * 2  # with gaps

        def both(x=x, causal=causal, pos=pos):
            how = {"attn_mask": causal, "need_weights": weights}
            out = layer(x, x, x, **how)[0] + layer(x, x, x, **how, pos_q=pos)[0]
            return torch.cat((out, torch.autograd.grad(out.square().sum(), x)[0]))

        torch.testing.assert_close(under(both), both())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_model_trains_and_decodes(scheme, under):
    torch.manual_seed(0)
    model = build(ModelConfig(size="tiny", dim=32, num_heads=2, ff_dim=48), scheme, 12, 12)
    source, target = torch.tensor([[5, 6, 3], [5, 3, 0]]), torch.tensor([[2, 7, 8], [2, 7, 0]])
    output = torch.tensor([[7, 8, 3], [7, 3, 0]])
    beams, chosen = torch.tensor([2] * 4), torch.tensor([1, 0, 3, 3])

    def step():
        torch.manual_seed(1)
        loss = label_smoothed_loss(model.train(), source, target, output, 0.1).smoothed
        return torch.cat([x.flatten() for x in torch.autograd.grad(loss, [*model.parameters()])])

    def decode():
        with torch.no_grad():
            state = model.eval().start(source, beam=2)
            state.step(beams)
            state.reorder(chosen)
            return state.step(beams)

    for call in (step, decode):
        torch.testing.assert_close(under(call), call())


def test_shape_and_its_offsets(under):
    shape, x = SHAPE(dim=64), torch.randn(2, 5, 64)

    def run():
        torch.manual_seed(0)
        return shape(x)

    torch.testing.assert_close(under(run), run())
