"""Attention with tables of vectors on a GPU against float64 in plain steps.

Without a GPU, `make test-triton` runs the kernels in Triton's interpreter.
"""

import importlib.util
import os

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from shapeshift.attention import attend, attend_with_probs, backends, causal_mask
from shapeshift.positions import Shaw, Skew

HAS_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if HAS_GPU and not INTERPRETED else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (HAS_GPU or INTERPRETED), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton"),
]
SIZES = {
    "short": (5, 5, 16),
    "blocks": (100, 100, 32),
    "last queries": (40, 70, 16),
    "more queries": (70, 40, 16),
}
KINDS = {
    "both": (Shaw, {}),
    "keys": (Shaw, {"add_to": "keys", "max_distance": 3}),
    "values": (Shaw, {"add_to": "values"}),
    "a table a head": (Shaw, {"per_head": True, "max_distance": 1}),
    "many rows": (Skew, {"max_distance": 70}),
}


@pytest.fixture
def serving(monkeypatch):
    """Lets the interpreter serve on a CPU."""
    if DEVICE == "cpu":
        monkeypatch.setattr(backends, "compiles_for", lambda device: True)


@pytest.fixture
def served(serving, monkeypatch):
    """Counts what the kernels serve."""
    from shapeshift.attention import gpu

    calls, run = [], gpu.attend_by_tables
    monkeypatch.setattr(gpu, "attend_by_tables", lambda *a, **k: calls.append(1) or run(*a, **k))
    return calls


def inputs(size, seed=0):
    num_queries, num_keys, channels = SIZES[size]
    torch.manual_seed(seed)
    heads = [torch.randn(2, n, 3, channels, device=DEVICE) for n in (num_queries, *[num_keys] * 2)]
    return [x.transpose(1, 2).requires_grad_() for x in heads]


def positions_of(ordered, num_queries, num_keys):
    if ordered:
        pos = torch.arange(max(num_queries, num_keys), device=DEVICE)[None]
    else:  # gaps and repetitions, another sequence for each sentence
        pos = torch.randint(0, 60, (2, max(num_queries, num_keys)), device=DEVICE).cumsum(1) // 20
    return pos[:, -num_queries:], pos[:, -num_keys:]


def relative_error(one, other):
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("ordered", [True, False], ids=["consecutive", "gaps"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_the_kernels_compute_what_the_hooks_add(size, kind, causal, ordered, served):
    heads = inputs(size)
    num_queries, num_keys, channels = SIZES[size]
    build, options = KINDS[kind]
    position = build(num_heads=3, head_dim=channels, **options).to(DEVICE)
    pos_q, pos_k = positions_of(ordered, num_queries, num_keys)
    mask = torch.zeros(2, 1, 1, num_keys, device=DEVICE)
    mask[1, ..., num_keys // 2 :] = -torch.inf
    total = mask
    if causal:
        total = mask + causal_mask(num_queries, num_keys, torch.float32, mask.device)
    blind = (total == -torch.inf).expand(2, 1, num_queries, num_keys).all(-1, keepdim=True)
    tensors = [*heads, *position.parameters()]
    gradient = torch.randn(heads[0].shape, device=DEVICE).masked_fill(blind, 0.0)
    out = attend(*heads, mask, position, pos_q, pos_k, causal=causal)
    got = [out.detach(), *torch.autograd.grad(out, tensors, gradient)]
    assert served

    position = position.double()
    tensors = [*(x.detach().double().requires_grad_() for x in heads), *position.parameters()]
    visible = total.double().masked_fill(blind, 0.0)
    exact = attend_with_probs(*tensors[:3], visible, position, pos_q, pos_k)[0]
    exact = exact.masked_fill(blind, 0.0)
    expected = [exact.detach(), *torch.autograd.grad(exact, tensors, gradient.double())]
    for one, other in zip(got, expected, strict=True):
        assert relative_error(one, other) < 1e-5


@pytest.mark.skipif(INTERPRETED, reason="the interpreter multiplies bf16 wrongly")
def test_in_bf16(served):
    heads = inputs("blocks")
    position = Shaw(num_heads=3, head_dim=32).to(DEVICE)
    pos = torch.arange(100, device=DEVICE)[None]
    tensors = [*heads, *position.parameters()]
    outcomes = []
    for dtype in (torch.bfloat16, torch.float32):
        with torch.autocast(DEVICE, dtype, enabled=dtype == torch.bfloat16):
            out = attend(*heads, None, position, pos, pos)
        assert out.dtype == dtype
        outcomes.append([out.detach(), *torch.autograd.grad(out.float().square().sum(), tensors)])
    assert len(served) == 2
    for one, other in zip(*outcomes, strict=True):
        assert 0 < relative_error(one, other) < 2e-2


def test_what_they_cannot_is_left_to_others(served):
    heads = inputs("blocks")
    pos = torch.arange(100, device=DEVICE)[None]
    position = Shaw(num_heads=3, head_dim=32).to(DEVICE)
    for options in ({"dropout_p": 0.5}, {"mask": torch.zeros(100, 100, device=DEVICE)}):
        attend(*heads, options.pop("mask", None), position, pos, pos, **options)
    attend(*heads, None, Skew(num_heads=3, head_dim=32, max_distance=400).to(DEVICE), pos, pos)
    assert not served


def test_one_graph_serves_all_lengths(serving):
    """As an operator, within a compiled layer."""
    torch._dynamo.reset()
    graphs = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, dynamic=True, fullgraph=True, backend=graphs)
    position = Shaw(num_heads=3, head_dim=16).to(DEVICE)
    counts = []
    for length in (9, 40, 50):
        torch.manual_seed(length)
        heads = [torch.randn(2, 3, length, 16, device=DEVICE).requires_grad_() for _ in range(3)]
        tensors = [*heads, *position.parameters()]
        pos = torch.arange(length, device=DEVICE)[None]
        outcomes = []
        for run in (compiled, attend):
            out = run(*heads, None, position, pos, pos, causal=True)
            outcomes.append([out.detach(), *torch.autograd.grad(out.square().sum(), tensors)])
        for one, other in zip(*outcomes, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        counts.append(graphs.frame_count)
    assert counts == [counts[0]] * 3
    assert any("attend_by_rows" in x.print_readable(print_output=False) for x in graphs.graphs)
    torch._dynamo.reset()
