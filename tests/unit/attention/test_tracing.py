"""torch.jit.trace, the exporter that uses it, and modes such as FakeTensorMode see steps of
PyTorch."""

import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from shapeshift import kernels
from shapeshift.interop.torch_nn import MultiheadAttention, TransformerEncoderLayer
from shapeshift.kernels import library
from shapeshift.positions import KINDS, get


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [x for x in KINDS if not KINDS[x].build.causal_only])
def test_a_trace_computes_what_the_layer_does(name, monkeypatch):
    """For other numbers and lengths than those of the example, with and without gradients."""
    monkeypatch.setattr(library, "call", lambda *_: pytest.fail("a trace cannot record a kernel"))
    torch.manual_seed(0)
    position = get(name, dim=32, num_heads=2, head_dim=16)
    layer = TransformerEncoderLayer(32, 2, 48, batch_first=True, position=position).eval()
    example = torch.randn(2, 9, 32)
    for grads in (False, True):
        with torch.set_grad_enabled(grads):
            trace = torch.jit.trace(layer, (example,), check_trace=False)
            for x in (torch.randn(2, 9, 32), torch.randn(3, 14, 32)):
                with monkeypatch.context() as plain:
                    plain.setattr(kernels, "serves", lambda _: False)
                    expected = layer(x)
                torch.testing.assert_close(trace(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_modes_see_every_step(name, monkeypatch):
    monkeypatch.setattr(library, "call", lambda *_: pytest.fail("a mode does not see a kernel"))
    torch.manual_seed(0)
    position = get(name, dim=32, num_heads=2, head_dim=16)
    attention = MultiheadAttention(32, 2, dropout=0.1, batch_first=True, position=position)
    x, other = torch.randn(2, 3, 9, 32)

    def loss(x, parameters=None):
        mask = torch.ones(9, 9, dtype=torch.bool, device=x.device).triu(1)
        options = {"attn_mask": mask, "need_weights": False}
        return torch.func.functional_call(attention, parameters or {}, (x, x, x), options)[0].sum()

    with FlopCounterMode(display=False) as counter:
        loss(x).backward()
    products = 4 * 32 * 32 + 2 * 9 * 32  # projections, scores and what the values are mixed by
    assert counter.get_total_flops() >= 2 * 3 * 9 * products
    parameters = {n: p.detach() for n, p in attention.named_parameters()}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {n: mode.from_tensor(p) for n, p in parameters.items()}
        assert loss(mode.from_tensor(x), fake).shape == ()
    attention.eval()
    for tracing in ("real", "fake", "symbolic"):
        graph = make_fx(lambda x: loss(x), tracing_mode=tracing, _allow_non_fake_inputs=True)(x)
        with monkeypatch.context() as plain:
            plain.setattr(kernels, "serves", lambda _: False)
            torch.testing.assert_close(graph(other), loss(other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modes_see_every_step_of_a_backward_pass(dtype):
    position = get("rotary", dim=32, num_heads=2, head_dim=16)
    attention = MultiheadAttention(32, 2, batch_first=True, position=position).to(dtype)
    x = torch.randn(2, 70, 32, dtype=dtype, requires_grad=True)
    out, _ = attention(x, x, x, need_weights=False)

    def gradient(of_out):
        return torch.autograd.grad(out, x, of_out, retain_graph=True)[0]

    one, other = torch.randn(2, *out.shape, dtype=dtype)
    torch.testing.assert_close(make_fx(gradient)(one)(other), gradient(other), rtol=1e-4, atol=1e-5)


ONNX = """
import sys, tempfile, warnings; warnings.simplefilter("ignore")
import torch, onnxruntime
from shapeshift.model import ModelConfig, build
class Encoder(torch.nn.Module):
    def __init__(self, position):
        super().__init__()
        self.model = build(ModelConfig(size="tiny"), position, 50, 50)
    def forward(self, ids):
        return self.model.encode(ids).hidden
for position in ("nope", "ape", "learned", "rope", "t5", "rpe", "alibi", "tupe", "skew"):
    model, ids = Encoder(position).eval(), torch.randint(5, 50, (2, 2, 9))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = folder + "/model.onnx"
        torch.onnx.export(model, (ids[0],), path, input_names=["ids"], dynamo=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (got,) = session.run(None, {"ids": ids[1].numpy()})
        error = abs(got - model(ids[1]).numpy()).max()
        assert error < 1e-4, (position, error)
"""


@pytest.mark.long
def test_the_older_exporter_of_onnx_writes_the_attention():
    pytest.importorskip("onnxruntime")
    done = subprocess.run([sys.executable, "-c", ONNX], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
