"""Attention with tables of vectors on a GPU against float64 in plain steps.

Without a GPU, `make test-triton` runs the kernels in Triton's interpreter.
"""

import importlib.util
import os
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from shapeshift import kernels
from shapeshift.attention import attend, attend_with_probs, causal_mask
from shapeshift.positions import T5, Shaw, Skew

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
    "blocks": (70, 70, 32),
    "last queries": (40, 70, 16),
    "more queries": (70, 40, 16),
    "nearly blocks": (67, 68, 16),
}
KINDS = {
    "both": (Shaw, {}),
    "keys": (Shaw, {"add_to": "keys", "max_distance": 3}),
    "values": (Shaw, {"add_to": "values"}),
    "a table a head": (Shaw, {"per_head": True, "max_distance": 1}),
    "many rows": (Skew, {"max_distance": 70}),
    "numbers": (T5, {"num_buckets": 8, "max_distance": 5}),
    "numbers to the left": (T5, {"num_buckets": 8, "max_distance": 70, "causal": True}),
}


@pytest.fixture
def serving(monkeypatch):
    """Lets the interpreter serve on a CPU."""
    if DEVICE == "cpu":
        monkeypatch.setattr(kernels, "compiles_for", lambda device: True)


@pytest.fixture
def served(serving, monkeypatch):
    """Counts what the kernels serve."""
    from shapeshift.attention import gpu

    calls, run = [], gpu.attend_by_tables
    monkeypatch.setattr(gpu, "attend_by_tables", lambda *a, **k: calls.append(1) or run(*a, **k))
    return calls


@pytest.fixture
def tall(monkeypatch):
    """Blocks of more queries than keys, as bf16 has them."""
    from shapeshift.attention import gpu

    arguments = gpu._arguments

    def patched(*args):
        shape, options = arguments(*args)
        return shape, options | {"M": 64}

    monkeypatch.setattr(gpu, "_arguments", patched)


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


def check(heads, position, mask, pos_q, pos_k, causal):
    """Compares the output and all gradients with those of plain steps in float64."""
    num_queries, num_keys = heads[0].shape[2], heads[1].shape[2]
    total = mask
    if causal:
        total = mask + causal_mask(num_queries, num_keys, torch.float32, mask.device)
    blind = (total == -torch.inf).expand(2, 1, num_queries, num_keys).all(-1, keepdim=True)
    tensors = [*heads, *position.parameters()]
    gradient = torch.randn(heads[0].shape, device=DEVICE).masked_fill(blind, 0.0)
    out = attend(*heads, mask, position, pos_q, pos_k, causal=causal)
    got = [out.detach(), *torch.autograd.grad(out, tensors, gradient)]

    position = position.double()
    tensors = [*(x.detach().double().requires_grad_() for x in heads), *position.parameters()]
    visible = total.double().masked_fill(blind, 0.0)
    exact = attend_with_probs(*tensors[:3], visible, position, pos_q, pos_k)[0]
    exact = exact.masked_fill(blind, 0.0)
    expected = [exact.detach(), *torch.autograd.grad(exact, tensors, gradient.double())]
    for one, other in zip(got, expected, strict=True):  # a gradient of a table may be 0
        assert (one - other).norm() < 1e-5 * (1 + other.norm())


@pytest.mark.parametrize("ordered", [True, False], ids=["consecutive", "gaps"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("size", "kind"),
    [
        (size, kind)
        for size in ("short", "blocks", "last queries", "more queries")
        for kind in KINDS
        if HAS_GPU or size == "blocks" or kind in ("both", "numbers")  # others take minutes
    ],
)
def test_the_kernels_compute_what_the_hooks_add(size, kind, causal, ordered, served):
    heads = inputs(size)
    num_queries, num_keys, channels = SIZES[size]
    build, options = KINDS[kind]
    width = {"dim": 3 * channels} if build is T5 else {"head_dim": channels}
    position = build(num_heads=3, **width, **options).to(DEVICE)
    pos_q, pos_k = positions_of(ordered, num_queries, num_keys)
    mask = torch.zeros(2, 1, 1, num_keys, device=DEVICE)
    mask[1, ..., num_keys // 2 :] = -torch.inf
    check(heads, position, mask, pos_q, pos_k, causal)
    assert served


PLAIN = torch.arange(300)
POSITIONS = {  # of queries and of keys, by their index
    "far": (PLAIN + 2**40, PLAIN + 2**40),
    "far apart": (PLAIN + PLAIN // 9 * 2**33, PLAIN + PLAIN // 9 * 2**33),
    "2^32 apart": (PLAIN + PLAIN % 3 * 2**32, PLAIN + PLAIN % 3 * 2**32),
    "keys before": (PLAIN + 1000, PLAIN),
    "keys after": (PLAIN, PLAIN + 1000),
    "keys far before": (PLAIN + 2**40, PLAIN),
    "keys far after": (PLAIN, PLAIN + 2**40),
    "first and last row only": (100 * PLAIN + 50, 100 * PLAIN),
    "descending": (-PLAIN, -PLAIN),
    "unsorted": (PLAIN * 7 % 61, PLAIN * 11 % 53),
    "one position": (0 * PLAIN, 0 * PLAIN),
    "a gap at the end": (PLAIN + 5 * (PLAIN > 66), PLAIN + 5 * (PLAIN > 66)),
    "sentences": (PLAIN % 50, PLAIN % 50),
}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("case", POSITIONS)
def test_any_positions(case, causal, served, tall):
    heads = inputs("nearly blocks")
    (num_queries, num_keys, _), mask = SIZES["nearly blocks"], torch.zeros(2, 1, 1, 68)
    pos_q, pos_k = (x.expand(2, -1).clone() for x in POSITIONS[case])
    pos_q[1], pos_k[1] = pos_q[1] // 2, PLAIN  # of another sentence
    pos_q, pos_k = pos_q[:, :num_queries].to(DEVICE), pos_k[:, :num_keys].to(DEVICE)
    position = Shaw(num_heads=3, head_dim=16, max_distance=5).to(DEVICE)
    check(heads, position, mask.to(DEVICE), pos_q, pos_k, causal)
    assert served


LOWEST = torch.finfo(torch.float32).min


@pytest.mark.parametrize(
    ("kind", "causal", "low"),
    [("both", False, -1e9), ("both", True, LOWEST), ("numbers", False, LOWEST)],
)
def test_low_numbers_as_a_mask(kind, causal, low, served):
    """Where all keys of a sentence have it, all are seen, and nothing is left of their scores."""
    (heads, length), (build, options) = (inputs("blocks"), 70), KINDS[kind]
    width = {"dim": 96} if build is T5 else {"head_dim": 32}
    position = build(num_heads=3, **width, **options).to(DEVICE)
    pos = torch.arange(length, device=DEVICE)[None]
    mask = torch.zeros(2, 1, 1, length, device=DEVICE)
    mask[0, ..., 50:] = mask[1] = low
    tensors = [*heads, *position.parameters()]
    gradient = torch.randn(heads[0].shape, device=DEVICE)
    found = []
    for run in (partial(attend, causal=causal), attend_with_probs):
        given = mask
        if run is attend_with_probs and causal:
            given = mask + causal_mask(length, length, torch.float32, mask.device)
        out = run(*heads, given, position, pos, pos)
        out = out if isinstance(out, torch.Tensor) else out[0]
        found.append([out.detach(), *torch.autograd.grad(out, tensors, gradient)])
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() < 1e-4 * (1 + other.norm())
    assert len(served) == 1


@pytest.mark.parametrize(("num_queries", "num_keys"), [(290, 33), (33, 290)])
def test_many_queries_or_keys(num_queries, num_keys, served, tall):
    """More than are looked at together for the positions."""
    torch.manual_seed(0)
    heads = [torch.randn(2, 1, n, 16, device=DEVICE) for n in (num_queries, num_keys, num_keys)]
    heads = [x.requires_grad_() for x in heads]
    pos_q, pos_k = PLAIN[None, -num_queries:].to(DEVICE), PLAIN[None, -num_keys:].to(DEVICE)
    mask = torch.zeros(2, 1, 1, num_keys, device=DEVICE)
    for gap in (0, 3):  # one past the first 256
        later_q, later_k = (x + gap * (x > 280) for x in (pos_q, pos_k))
        position = Shaw(num_heads=1, head_dim=16, max_distance=9).to(DEVICE)
        check(heads, position, mask, later_q, later_k, True)
    assert len(served) == 2


@pytest.mark.parametrize("low", [0, -3, 2])
@pytest.mark.parametrize("num_rows", [1, 2, 3])
def test_few_rows(num_rows, low, serving):
    """Tables that no representation makes today."""
    from shapeshift.attention.gpu import attend_by_tables
    from shapeshift.positions.pairs import Table

    torch.manual_seed(0)
    tensors = [torch.randn(1, 1, 40, 16, device=DEVICE) for _ in range(3)]
    tensors += [torch.randn(1, num_rows, 16, device=DEVICE) for _ in range(2)]
    gradient = torch.randn(1, 1, 40, 16, device=DEVICE)
    pos = torch.arange(40, device=DEVICE)[None]
    rows = (pos - pos.mT - low).clamp(0, num_rows - 1)

    tensors = [x.requires_grad_() for x in tensors]
    q, k, v, keys, values = tensors
    tables = Table(keys, low), Table(values, low)
    out = attend_by_tables((q, k, v), tables, None, pos, pos, causal=False)
    got = [out, *torch.autograd.grad(out, tensors, gradient)]

    tensors = [x.detach().double().requires_grad_() for x in tensors]
    q, k, v, keys, values = tensors
    scores = q @ k.mT + torch.einsum("bhie,ije->bhij", q, keys[0][rows])
    probs = (scores / 4).softmax(-1)
    out = probs @ v + torch.einsum("bhij,ije->bhie", probs, values[0][rows])
    expected = [out, *torch.autograd.grad(out, tensors, gradient.double())]
    for one, other in zip(got, expected, strict=True):
        assert (one - other).norm() < 1e-5 * (1 + other.norm())


@pytest.mark.skipif(INTERPRETED, reason="the interpreter multiplies bf16 wrongly")
def test_in_bf16(served):
    heads = inputs("blocks")
    position = Shaw(num_heads=3, head_dim=32).to(DEVICE)
    pos = torch.arange(70, device=DEVICE)[None]
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
    pos = torch.arange(70, device=DEVICE)[None]
    position = Shaw(num_heads=3, head_dim=32).to(DEVICE)
    for options in ({"dropout_p": 0.5}, {"mask": torch.zeros(70, 70, device=DEVICE)}):
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
