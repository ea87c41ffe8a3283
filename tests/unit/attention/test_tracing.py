"""torch.jit.trace, and the exporter that uses it, record steps of PyTorch."""

import subprocess
import sys

import pytest
import torch

from shapeshift import kernels
from shapeshift.interop.torch_nn import TransformerEncoderLayer
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
