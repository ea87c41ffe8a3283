"""The compiled steps of attention and search do what PyTorch's do, and give way to them."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention import backends
from shapeshift.attention.dropout import draw, dropout
from shapeshift.errors import ShapeshiftError
from shapeshift.model import loss
from shapeshift.positions import Shaw, pairs
from shapeshift.positions.base import Representation

DTYPES = [torch.float32, torch.bfloat16]
NEAR = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.02, "atol": 0.02},
}
SHAPES = [(1, 1, 1, 1), (2, 3, 5, 7), (2, 2, 33, 64), (1, 4, 64, 129), (3, 1, 1, 40)]


@pytest.fixture(autouse=True)
def compiled():
    if not kernels.is_available(torch.float32):
        pytest.skip("no C compiler")


def masks(B, H, Q, K, dtype):
    padding = torch.zeros(B, 1, 1, K)
    padding[-1, ..., (K + 1) // 2 :] = -math.inf
    triangle = torch.full((Q, K), -math.inf).triu(1 + K - Q) if K >= Q else torch.zeros(Q, K)
    each = torch.randn(B, H, Q, K)
    by_column = torch.randn(B, 1, K, Q).transpose(-1, -2)
    return [None, padding, *(x.to(dtype) for x in (padding, triangle, each, by_column))]


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax_and_dropout(shape, dtype, dropout_p):
    torch.manual_seed(0)
    for mask in masks(*shape, dtype):
        x = (3 * torch.randn(*shape)).to(dtype)
        scores, expected_scores = x.clone().requires_grad_(), x.double().requires_grad_()
        assert kernels.serves(scores)
        torch.manual_seed(1)
        got, _ = backends._SoftmaxDropout.apply(scores, mask, dropout_p)
        torch.manual_seed(1)
        draws, threshold, scale = draw(x, dropout_p)
        keep = (draws >= threshold) * scale if dropout_p else torch.ones(shape)
        added = expected_scores if mask is None else expected_scores + mask.double()
        expected = added.softmax(-1) * keep
        grad = torch.randn(*shape)
        got.backward(grad.to(dtype))
        expected.backward(grad.to(dtype).double())
        assert torch.equal(x, scores), "the scores are changed"
        torch.testing.assert_close(got.double(), expected, **NEAR[dtype])
        torch.testing.assert_close(scores.grad.double(), expected_scores.grad, **NEAR[dtype])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 129)])
def test_cross_entropy(shape, dtype, replace):
    torch.manual_seed(0)
    logits = (5 * torch.randn(shape)).to(dtype)
    assert kernels.serves(logits)
    targets = torch.randint(shape[1], (shape[0], 1))
    expected, got = logits.double(), logits.clone()
    sums = [loss._softmax(x, targets, 0.9, torch.float32, replace) for x in (got, expected)]
    torch.testing.assert_close(*sums, check_dtype=False, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.double(), expected, rtol=0.004, atol=1e-6)
    assert torch.equal(got, logits) != replace
    for wrong in (-1, shape[1]):
        targets[0] = wrong
        with pytest.raises(IndexError, match=f"targets must be from 0 to {shape[1] - 1}"):
            kernels.cross_entropy(got, targets, 0.9, replace)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (4, 33, 70)])
def test_dropout(shape, dtype, monkeypatch):
    x, grad = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    results = []
    for served in (True, False):
        if not served:
            monkeypatch.setattr(kernels, "serves", lambda _: False)
        torch.manual_seed(1)
        leaf = x.clone().requires_grad_()
        out = dropout(leaf, 0.3, True)
        out.backward(grad)
        weight = grad.clone().requires_grad_()
        torch.manual_seed(1)
        (again,) = torch.autograd.grad(dropout(leaf, 0.3, True), leaf, weight, create_graph=True)
        results.append((out, leaf.grad, *torch.autograd.grad(again.sum(), weight)))
    for got, expected in zip(*results, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_what_has_none(dtype):
    rows = [[-math.inf] * 40, [math.nan] + [0.0] * 39, [0.0] * 39 + [math.nan]]
    rows += [[math.inf] + [0.0] * 39, [-math.inf] * 39 + [5.0], [1e30] + [-1e30] * 39]
    scores = torch.tensor(rows).to(dtype)[None, None].requires_grad_()
    got, _ = backends._SoftmaxDropout.apply(scores, None, 0.0)
    torch.testing.assert_close(got, scores.softmax(-1), equal_nan=True)
    got[..., 4:, :].sum().backward()
    assert not scores.grad[..., 4:, :].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_keys", [1, 3, 16, 31, 40, 100])
@pytest.mark.parametrize("num_queries", [2, 3, 17, 40])
def test_rows_by_distance(num_queries, num_keys, dtype):
    torch.manual_seed(0)
    i, j = torch.arange(num_queries)[:, None], torch.arange(num_keys)
    shape = 2, 3, num_queries, num_keys

    def row(rows):
        return (j - i - rows.shift).clamp(0, rows.num_rows - 1).expand(shape)

    for count in (1, 2, 33, num_queries + num_keys):
        for shift in (-count, 1 - num_queries, -3, 0, num_keys):
            keys, values = kernels.Rows(count, shift), kernels.Rows(count + 1, shift - 1)
            inputs = torch.randn(shape), torch.randn(*shape[:3], count)
            grads = torch.randn(shape), torch.randn(*shape[:3], count + 1)
            inputs, grads = ([x.to(dtype) for x in tensors] for tensors in (inputs, grads))
            scores, key_rows = (x.clone().requires_grad_() for x in inputs)
            torch.manual_seed(1)
            got = backends._SoftmaxDropout.apply(scores, None, 0.3, key_rows, keys, values)
            torch.autograd.backward(got, grads)

            torch.manual_seed(1)
            draws, threshold, scale = draw(inputs[0], 0.3)
            x, by_row = (each.double().requires_grad_() for each in inputs)
            probs = (x + by_row.gather(-1, row(keys))).softmax(-1) * (draws >= threshold) * scale
            sums = probs.new_zeros(*shape[:3], values.num_rows).scatter_add(-1, row(values), probs)
            torch.autograd.backward((probs, sums), [grad.double() for grad in grads])
            found = *got, scores.grad, key_rows.grad
            for each, expected in zip(found, (probs, sums, x.grad, by_row.grad), strict=True):
                torch.testing.assert_close(each.double(), expected, **NEAR[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_pytorch(causal, dtype, monkeypatch):
    torch.manual_seed(0)
    position = Shaw(num_heads=2, head_dim=8, max_distance=4, causal=causal).to(dtype)
    q, k, v = (torch.randn(2, 2, 40, 8).to(dtype).requires_grad_() for _ in range(3))
    pos = torch.arange(40)[None]
    calls = []
    call = kernels._call
    monkeypatch.setattr(
        kernels, "_call", lambda name, *rest: calls.append(name) or call(name, *rest)
    )

    def run():
        for x in (q, k, v, *position.parameters()):
            x.grad = None
        torch.manual_seed(1)
        out = backends.attend(q, k, v, None, position, pos, pos, 0.2, causal=causal)
        out.float().square().sum().backward()
        return [out, *(x.grad for x in (q, k, v, *position.parameters()))]

    with monkeypatch.context() as without_hooks:
        without_hooks.setattr(Shaw, "query_bias", None)
        without_hooks.setattr(Shaw, "value_bias", None)
        got = run()
    assert set(calls) == {"softmax_forward", "softmax_backward"}
    calls.clear()
    monkeypatch.setattr(kernels, "_library", lambda _: None)
    expected = run()
    assert not calls
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.1, "atol": 0.2}
    torch.testing.assert_close(got, expected, **near)


def test_transforms_of_functions_are_computed_by_pytorch():
    q, k, v = (torch.randn(3, 2, 5, 8) for _ in range(3))
    pos = torch.arange(5)[None]

    def energy(q, k, v):
        heads = (x[None] for x in (q, k, v))
        return backends.attend(*heads, None, Representation(), pos, pos).square().sum()

    alone = torch.stack([torch.func.grad(energy)(*x) for x in zip(q, k, v, strict=True)])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(energy))(q, k, v), alone)
    leaf = q.clone().requires_grad_()
    sum(map(energy, leaf, k, v)).backward()
    torch.testing.assert_close(leaf.grad, alone)
    torch.func.hessian(energy)(q[0], k[0], v[0])
    with forward_ad.dual_level():
        made = energy(forward_ad.make_dual(q[0], torch.ones_like(q[0])), k[0], v[0])
        tangent = forward_ad.unpack_dual(made).tangent
    torch.testing.assert_close(tangent, alone[0].sum())


def test_second_derivatives_are_refused_with_a_remedy():
    x, table = torch.randn(1, 1, 4, 4, requires_grad=True), torch.randn(1, 4, 4)
    outs = (
        pairs.products(x, x, table)[0],
        pairs.outputs(x, x, x, table),
        backends._SoftmaxDropout.apply(x, None, 0.0)[0],
    )
    for out in outs:
        with pytest.raises(ShapeshiftError, match=r"float64; convert .* \.double\(\)"):
            torch.autograd.grad(out.square().sum(), x, create_graph=True)


PROGRAM = "import torch; from shapeshift import kernels; print(kernels.is_available(torch.float32))"


def available(cache: Path, **environment: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), **environment}
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_where_nothing_can_be_compiled_there_are_no_kernels(tmp_path):
    file = tmp_path / "file"
    file.touch()
    for environment in ({"CC": "false"}, {"CC": "no-such-program"}, {"XDG_CACHE_HOME": str(file)}):
        assert available(tmp_path, **environment).communicate()[0] == "False\n"
    assert not list(tmp_path.glob("shapeshift/*"))


@pytest.mark.long
def test_processes_share_what_one_has_compiled_and_replace_it_if_damaged(tmp_path):
    processes = [available(tmp_path) for _ in range(4)]
    assert [x.communicate()[0] for x in processes] == ["True\n"] * 4
    (library,) = tmp_path.glob("shapeshift/*")
    assert available(tmp_path, CC="false").communicate()[0] == "True\n"
    library.write_bytes(library.read_bytes()[:100])
    assert available(tmp_path).communicate()[0] == "True\n"
    assert library.stat().st_size > 1000


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("M", "N", "K"),
    [
        (1, 1, 1),
        (3, 16, 5),
        (8, 48, 16),
        (9, 50, 33),
        (32, 7001, 64),
        (130, 100, 200),
        (600, 40, 20),
    ],
)
def test_products_with_weights_in_panels(M, N, K, relu):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(M, K), torch.randn(N, K), torch.randn(N)
    panels = kernels.panels(weight)
    expected = F.linear(x.double(), weight.double(), bias.double())
    expected = expected.relu() if relu else expected
    got = kernels.linear(x, panels, bias, relu)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5 * K**0.5)
    few = kernels.linear(x[M // 2 :], panels, bias, relu)
    assert torch.equal(few, got[M // 2 :])  # whichever rows are next to it
    with torch.no_grad():
        x[0, 0] = math.nan
    got = kernels.linear(x, panels, bias, relu)
    assert got[0].isnan().all()
    assert got[1:].isfinite().all()


def test_products_of_no_rows_and_of_several_dimensions():
    x, panels, bias = torch.randn(2, 3, 8), kernels.panels(torch.randn(5, 8)), torch.zeros(5)
    assert kernels.linear(x[:, :0], panels, bias, False).shape == (2, 0, 5)
    turned = kernels.linear(x.transpose(0, 1), panels, bias, False)
    assert torch.equal(turned.transpose(0, 1), kernels.linear(x, panels, bias, False))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("N", "H", "Q", "K", "E"),
    [(1, 1, 1, 1, 16), (3, 2, 4, 19, 64), (5, 4, 1, 16, 48), (2, 3, 2, 33, 32)],
)
def test_attention_of_few_queries(N, H, Q, K, E, dtype):
    torch.manual_seed(0)
    q = torch.randn(N, Q, H, E).to(dtype).transpose(1, 2)
    k, v = (torch.randn(K, N, H, E).to(dtype).permute(1, 2, 0, 3) for _ in range(2))
    rows = torch.randint(N, (K, N), dtype=torch.int32)
    mask = torch.randn(N, 1, 1, K)
    mask[-1, ..., (K + 1) // 2 :] = -math.inf
    at = (rows.T.long(), slice(None), torch.arange(K))  # (N, K, H, E)
    for where in (None, rows):
        here = [x.double() if where is None else x[at].double().transpose(1, 2) for x in (k, v)]
        for added in (None, mask):
            wide = None if added is None else added.to(dtype).double()
            expected = F.scaled_dot_product_attention(q.double(), *here, attn_mask=wide)
            got = kernels.attend_few(q, k, v, added, where)
            torch.testing.assert_close(got.transpose(1, 2).double(), expected, **NEAR[dtype])
