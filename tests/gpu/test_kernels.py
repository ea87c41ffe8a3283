"""The loss and rotations on a GPU against PyTorch's steps in float64.

Without a GPU, `make test-triton` runs the kernels in Triton's interpreter.
"""

import importlib.util
import os

import pytest
import torch

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import loss
from shapeshift.positions import Rotary
from shapeshift.positions import turns as positions
from shapeshift.positions.turns import Turn

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU and not INTERPRETED else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (HAS_GPU or INTERPRETED), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
]


@pytest.fixture
def served(monkeypatch):
    """Lets the interpreter serve on a CPU; lists which kernels served."""
    from shapeshift.kernels import gpu

    if DEVICE == "cpu":
        monkeypatch.setattr(kernels, "compiles_for", lambda device: True)
        monkeypatch.setattr(kernels, "serves", lambda x: False)
    calls = []
    for name in ("cross_entropy", "rotate"):
        run = vars(gpu)[name]

        def counted(*args, name=name, run=run, **options):
            calls.append(name)
            return run(*args, **options)

        monkeypatch.setattr(gpu, name, counted)
    return calls


def agree(got, expected, tolerance):
    for one, other in zip(got, expected, strict=True):
        assert one.shape == other.shape
        assert (one.double() - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [40, 9001])
def test_the_loss(width, dtype, replace, served):
    torch.manual_seed(0)
    logits = (5 * torch.randn(6, width, device=DEVICE)).to(dtype)
    logits[1, 3:] = -torch.inf
    logits[2] += 300
    target = torch.tensor([0, 1, width - 1, 5, 17, 30], device=DEVICE)
    exact = logits.double()
    got = loss._softmax(logits, target[:, None], 0.9, torch.float32, replace)
    assert served == ["cross_entropy"]
    log_sums = exact.logsumexp(-1)
    log_probs = exact.gather(1, target[:, None]).squeeze(1) - log_sums
    for one, other in zip(got, (log_sums, log_probs), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), other, rtol=2e-6, atol=1e-5)
    if replace:
        probs = (exact - log_sums[:, None]).exp()
        probs[torch.arange(6), target] -= 0.9
        tolerance = {torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
        assert (logits.double() - probs).abs().max() <= tolerance


def test_what_is_no_id_has_no_loss(served):
    logits, target = torch.randn(3, 40, device=DEVICE), torch.tensor([[-100], [40], [39]])
    log_probs = loss._softmax(logits, target.to(DEVICE), 0.9, torch.float32, False)[1]
    assert log_probs.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize(("channels", "fraction"), [(64, 1.0), (48, 0.5), (6, 1.0)])
@pytest.mark.parametrize("rows", [1, 2])
def test_rotations(rows, channels, fraction, pairs, served, monkeypatch):
    """Positions of all sentences or of each, whole heads or a part of them, slices of a product."""
    torch.manual_seed(0)
    position = Rotary(head_dim=channels, pairs=pairs, fraction=fraction)
    position.attention_factor = 1.2  # also of channels that do not rotate
    projected = torch.randn(2, 21, 2, 3, channels, device=DEVICE, requires_grad=True)
    q, k = (x.transpose(1, 2) for x in projected.unbind(2))
    pos = torch.randint(0, 5000, (rows, 21), device=DEVICE)
    grads = torch.randn(2, *q.shape, device=DEVICE)
    out = position.rotate(q, k, pos, pos)
    assert served == ["rotate", "rotate"]
    got = [*out, *torch.autograd.grad(out, projected, list(grads))]

    monkeypatch.setattr(kernels, "serves_on_gpu", lambda x: False)
    exact = projected.detach().double().requires_grad_()
    out = position.rotate(*(x.transpose(1, 2) for x in exact.unbind(2)), pos, pos)
    expected = [*out, *torch.autograd.grad(out, exact, list(grads.double()))]
    assert len(served) == 2
    agree(got, expected, 1e-6)


def test_turns_of_another_size_are_refused(served):
    x = torch.randn(2, 2, 6, 16, device=DEVICE)
    for shape in ((2, 6, 9), (2, 5, 8), (3, 6, 8), (6, 8)):
        turn = torch.ones(shape, device=DEVICE)
        with pytest.raises(
            ShapeshiftError, match=r"must be \(B or 1, T, pairs\) = \(2, 6, 8\), got"
        ):
            positions.rotate(x, Turn(turn, turn, False))


def test_rotations_of_packed_sentences(served):
    """Each token by the place that it has in the padded batch."""
    from shapeshift.kernels import gpu

    torch.manual_seed(0)
    places = torch.tensor([0, 1, 2, 5, 6, 10], device=DEVICE)  # of three sentences of five
    for rows in (1, 3):
        angles = torch.randn(rows, 5, 8, device=DEVICE)
        turn = Turn(angles.cos(), angles.sin(), False)
        x = torch.randn(1, 2, 6, 16, device=DEVICE, requires_grad=True)
        of_each = Turn(*(y.expand(3, 5, 8).reshape(1, 15, 8)[:, places] for y in turn[:2]), False)
        found = []
        for out in (
            gpu.rotate(x, turn, positions.in_steps, places=places),
            positions.in_steps(x.double(), of_each).float(),
        ):
            first = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)[0]
            second = torch.autograd.grad(first.square().sum(), x)[0]
            found.append([out, first, second])
        torch.testing.assert_close(*found)
