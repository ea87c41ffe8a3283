"""The compiled steps of attention and search do what PyTorch's do, and give way to them."""

import itertools
import math
import re
import shutil
import signal
import threading
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.attention.backends import blocked, cpu
from shapeshift.attention.dropout import add_dropped, draw_seed, dropout, numbers
from shapeshift.attention.packing import Spans
from shapeshift.kernels import decoding, library, processor, training
from shapeshift.kernels.attention import SentenceAttention
from shapeshift.model import loss
from shapeshift.model.attention import Attention
from shapeshift.positions import (
    FIRE,
    T5,
    ALiBi,
    Chain,
    Rotary,
    Shaw,
    base,
    get,
    pairs,
)
from shapeshift.positions.base import Representation
from shapeshift.positions.pairs import Table
from shapeshift.positions.turns import Turn, rotate

from .cli.running import ENVIRONMENT, python

DTYPES = [torch.float32, torch.bfloat16]
NEAR = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 0.02, "atol": 0.02},
}
NONE = None, None  # vectors by distance
POS = torch.arange(40)[None]


@pytest.fixture(autouse=True)
def compiled():
    if not kernels.is_available(torch.float32):
        assert kernels.describe().endswith(("=none", "CONTRIBUTING.md)")), kernels.describe()
        pytest.skip("no compiled kernels")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def calls(monkeypatch):
    """The arguments of all calls of functions in C."""
    seen, call = [], library.call
    monkeypatch.setattr(library, "call", lambda *args: seen.append(args) or call(*args))
    return seen


def masks(B, H, Q, K, dtype):
    padding = torch.zeros(B, 1, 1, K)
    padding[-1, ..., (K + 1) // 2 :] = -math.inf
    triangle = torch.full((Q, K), -math.inf).triu(1 + K - Q) if K >= Q else torch.zeros(Q, K)
    each = torch.randn(B, H, Q, K)
    by_column = torch.randn(B, 1, K, Q).transpose(-1, -2)
    return [None, padding, *(x.to(dtype) for x in (padding, triangle, each, by_column))]


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (40, 129)])
def test_cross_entropy(shape, dtype, replace, monkeypatch):
    torch.manual_seed(0)
    logits = (5 * torch.randn(shape)).to(dtype)
    assert kernels.serves(logits)
    targets = torch.randint(shape[1], (shape[0], 1))
    expected, got = logits.double(), logits.clone()
    sums = [loss._softmax(x, targets, 0.9, torch.float32, replace) for x in (got, expected)]
    torch.testing.assert_close(*sums, check_dtype=False, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.double(), expected, rtol=0.004, atol=1e-6)
    assert torch.equal(got, logits) != replace
    no_memory = 1
    with monkeypatch.context() as lacking:
        lacking.setattr(library, "_run", lambda *_: no_memory)
        plain = loss._softmax(logits.clone(), targets, 0.9, torch.float32, replace)
    torch.testing.assert_close(plain, sums[0], rtol=1e-5, atol=1e-5)
    for wrong in (-1, shape[1]):
        targets[0] = wrong
        with pytest.raises(IndexError, match=f"targets must be from 0 to {shape[1] - 1}"):
            training.cross_entropy(got, targets, 0.9, replace)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (4, 33, 70)])
def test_dropout(shape, dtype, relu, monkeypatch):
    x, grad = (torch.randn(shape).to(dtype).transpose(0, -1) for _ in range(2))
    x[..., :1] = 0.0  # where max(0, x) has no derivative, PyTorch's is 0
    results = []
    for way in ("kernel", "in two steps", "PyTorch's"):
        if way == "PyTorch's":
            monkeypatch.setattr(kernels, "serves", lambda _: False)
            monkeypatch.setattr(kernels, "is_available", lambda _: False)
        leaf = x.clone().requires_grad_()

        def drop(leaf=leaf, apart=relu and way == "in two steps"):
            torch.manual_seed(1)
            return dropout(leaf.relu() if apart else leaf, 0.3, True, relu and not apart)

        out = drop()
        out.backward(grad)
        weight = grad.clone().requires_grad_()
        (again,) = torch.autograd.grad(drop(), leaf, weight, create_graph=True)
        results.append((out, leaf.grad, *torch.autograd.grad(again.sum(), weight)))
    for got, *others in zip(*results, strict=True):
        for other in others:
            assert torch.equal(got, other)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (4, 33, 70)])
def test_a_sum_with_what_is_dropped(shape, dtype, calls):
    x, grad = (torch.randn(shape).transpose(0, -1) for _ in range(2))
    branch = torch.randn(shape).to(dtype).transpose(0, -1)
    results = []
    for add in (add_dropped, lambda x, branch, *how: x + dropout(branch.float(), *how)):
        leaves = [y.clone().requires_grad_() for y in (x, branch)]
        weight = grad.clone().requires_grad_()

        def total(add=add, leaves=leaves):
            torch.manual_seed(1)
            return add(*leaves, 0.3, True)

        again = torch.autograd.grad(total(), leaves, weight, create_graph=True)
        seconds = torch.autograd.grad(sum(y.sum() for y in again), weight)
        results.append((total(), *torch.autograd.grad(total(), leaves, grad), *seconds))
    residuals = [
        x.tensor for args in calls for x in args[3:] if getattr(x, "name", "") == "residual"
    ]
    assert residuals[0] is not None  # in one pass
    assert residuals[-1] is None
    for got, expected in zip(*results, strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected)
    assert torch.equal(add_dropped(x, branch, 0.3, False), x + branch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_to_nothing_and_to_what_is_no_number(dtype):
    rows = [[-math.inf] * 40, [math.nan] + [0.0] * 39, [0.0] * 39 + [math.nan]]
    rows += [[math.inf] + [0.0] * 39, [-math.inf] * 39 + [5.0], [1e30] + [-1e30] * 39]
    bias = torch.tensor(rows).to(dtype)[None, None].requires_grad_()
    q, v = torch.zeros(1, 1, len(rows), 8).to(dtype), torch.eye(40).to(dtype)[None, None]
    got = cpu.attend_rows([q, torch.zeros(1, 1, 40, 8).to(dtype), v[..., :8]], NONE, bias=bias)
    expected = bias.detach().softmax(-1)[..., :8]
    expected[..., 0, :] = 0  # PyTorch has NaN where all keys are forbidden
    torch.testing.assert_close(got, expected, equal_nan=True)
    got[..., 4:, :].sum().backward()
    assert not bias.grad[..., 4:, :].any()


def tables_by_distance(added, num_heads, E, shift, dtype, counts=(9, 11)):
    """Tables that are `added` to keys (k), to values (v), and of each head (h)."""

    def table(count):
        one = torch.randn(num_heads if "h" in added else 1, count, E).to(dtype).requires_grad_()
        return Table(one, shift)

    return tuple(table(n) if kind in added else None for kind, n in zip("kv", counts, strict=True))


def expected_attention(q, k, v, mask, added, keep, causal):
    """Attention `(H, Q, E)` of one sentence (Shaw et al. 2018, equations 3 and 4)."""
    (_, Q, E), K = q.shape, k.shape[1]
    i, j = torch.arange(Q)[:, None], torch.arange(K)

    def vectors(table):
        rows = (j - i - table.low).clamp(0, table.vectors.shape[1] - 1)
        return table.vectors.double()[:, rows]  # (H|1, Q, K, E)

    keys, values = added
    each = k[:, None] if keys is None else k[:, None] + vectors(keys)
    scores = (q[:, :, None] * each).sum(-1) * E**-0.5 + mask
    if causal:
        scores = scores.masked_fill(j > i + K - Q, -math.inf)
    probs = scores.softmax(-1) * keep
    each = v[:, None] if values is None else v[:, None] + vectors(values)
    return (probs[..., None] * each).sum(-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("added", ["", "k", "v", "kv", "hkv"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_sentences_in_rows(causal, added, dropout_p, dtype):
    # The channels that rotate, all alike in each sentence or not; rows of the tables
    sizes = [(8, [5], 0, 1, (9, 11)), (64, [33, 1, 7], 64, 1, (2, 1))]
    longest = 270 if added == "kv" else 40  # more than are in one product
    sizes.append((40, [16, 32, 70, longest], 24, 4, (40, 33)))
    for E, lengths, turning, num_angles, counts in sizes:
        torch.manual_seed(0)
        H, total = 2, sum(lengths)
        count = torch.tensor(lengths)
        spans = (Spans(count.cumsum(0) - count, count),) * 2
        rows = torch.randn(total + 3, 3 * H * E).to(dtype).requires_grad_()  # three without a token
        added_here = tables_by_distance(added, H, E, -counts[0] // 2, dtype, counts)
        widest = max(lengths) + 2  # of a batch with more padding than it needs
        sizes = (len(lengths), H, widest, widest) if "h" in added else (1, H, 1, widest)
        bias = torch.randn(sizes).to(dtype).requires_grad_()
        how = {"num_heads": H, "spans": spans, "causal": causal, "bias": bias}
        turns = [
            Turn(*torch.randn(2, num_angles, widest, turning // 2), turning == 24) for _ in range(2)
        ]
        how |= {"turns": turns} if turning else {}
        torch.manual_seed(1)
        out = cpu.attend_rows([rows], added_here, None, dropout_p, **how)
        grad = torch.randn(out.shape).to(dtype)
        leaves = [rows, bias, *(x.vectors for x in added_here if x)]
        found = [out, *torch.autograd.grad(out, leaves, grad)]
        assert not out[total:].any()
        assert not found[1][total:].any()

        torch.manual_seed(1)
        seed, threshold, scale = draw_seed(dropout_p)
        draws = dropout_p and numbers(sum(H * n * n for n in lengths), seed)
        heads = rows.double().unflatten(-1, (3, H, E)).permute(1, 2, 0, 3)
        expected, at = [], 0
        each = bias.double().expand(len(lengths), H, widest, widest)
        for b, (n, own_bias) in enumerate(zip(lengths, each, strict=True)):
            first = int(spans[0].first[b])
            keep, at = slice(at, at + H * n * n), at + H * n * n
            kept = 1.0 if not dropout_p else (draws[keep].view(H, n, n) >= threshold) * scale
            own = [*heads[:, :, first : first + n]]
            for side, turn in enumerate(turns if turning else ()):
                cos, sin = (x[b % num_angles, None, :n].double() for x in turn[:2])
                own[side] = rotate(own[side][None], Turn(cos, sin, turn.halves))[0]
            out = expected_attention(*own, own_bias[:, :n, :n], added_here, kept, causal)
            expected.append(out.transpose(0, 1))
        expected = torch.cat(expected).flatten(1)
        expected = [expected, *torch.autograd.grad(expected, leaves, grad[:total].double())]
        for got, wanted in zip(found, expected, strict=True):
            near = 1e-5 if dtype == torch.float32 else 0.06
            difference = (got[: len(wanted)].double() - wanted).abs().max()
            assert difference <= near * wanted.abs().max()


@pytest.mark.parametrize(
    ("causal", "num_queries", "num_keys", "num_rows"),
    [
        *((True, 20, 20, 9), (True, 20, 25, 14), (True, 20, 90, 17), (True, 5, 5, 5)),
        *((False, 20, 20, 17), (False, 5, 5, 9), (False, 1, 3, 3)),
    ],
)
def test_vectors_of_distances_that_no_pair_has_are_left_out(
    causal, num_queries, num_keys, num_rows, monkeypatch
):
    found, init = [], SentenceAttention.__init__

    def spy(self, heads, tables, *how):
        found.extend(x.shape[1] for x in tables)
        init(self, heads, tables, *how)

    monkeypatch.setattr(SentenceAttention, "__init__", spy)
    heads = [torch.randn(2, 3, n, 8) for n in (num_queries, num_keys, num_keys)]
    added = tables_by_distance("kv", 3, 8, -8, torch.float32, (17, 17))
    cpu.attend_rows(heads, added, causal=causal)
    assert found == [num_rows] * 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 5, 37), (2, 2, 64, 70), (3, 1, 40, 33)])
def test_attention_of_heads_with_masks(shape, causal, dtype):
    B, H, Q, K = shape
    if causal and K < Q:
        pytest.skip("a query would see no key")
    torch.set_num_threads(1 + causal)
    for mask in masks(*shape, dtype):
        torch.manual_seed(0)
        # As they lie side by side, and heads behind each other.
        q = torch.randn(B, Q, H, 24).transpose(1, 2)
        k, v = torch.randn(2, B, H, K, 24)
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        added = tables_by_distance("kv", H, 24, 2, dtype)
        bias = torch.randn(1, H, Q, K).to(dtype).requires_grad_()
        out = cpu.attend_rows(leaves, added, mask, bias=bias, causal=causal)
        grad = torch.randn(out.shape).to(dtype)
        leaves += [bias, *(x.vectors for x in added)]
        found = [out, *torch.autograd.grad(out, leaves, grad)]
        wide = bias.double() + (torch.zeros(shape) if mask is None else mask).double()
        each = zip(*(x.double() for x in leaves[:3]), wide.expand(shape), strict=True)
        expected = torch.stack([expected_attention(*x, added, 1.0, causal) for x in each])
        expected = [expected, *torch.autograd.grad(expected, leaves, grad.double())]
        for got, wanted in zip(found, expected, strict=True):
            near = 1e-5 if dtype == torch.float32 else 0.06
            assert (got.double() - wanted).abs().max() <= near * wanted.abs().max() + 1e-6


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("added", ["", "k", "v", "hkv"])
@pytest.mark.parametrize("causal", [False, True])
def test_probabilities_computed_again_are_those_that_are_kept(
    causal, added, dropout_p, dtype, monkeypatch
):
    H, E, lengths, made = 2, 40, torch.tensor([5, 270, 33]), []
    spans = (Spans(lengths.cumsum(0) - lengths, lengths),) * 2
    for first_again in (1 << 30, 270):
        monkeypatch.setattr(cpu, "RECOMPUTED_FROM", first_again)
        torch.manual_seed(0)
        rows = torch.randn(int(lengths.sum()), 3 * H * E).to(dtype).requires_grad_()
        tables = tables_by_distance(added, H, E, -6, dtype)
        bias, mask = torch.randn(2, 1, H, 270, 270).to(dtype).requires_grad_()
        how = {"num_heads": H, "spans": spans, "causal": causal, "bias": bias}
        how |= {"turns": [Turn(*torch.randn(2, 1, 270, 12), True) for _ in range(2)]}
        out = cpu.attend_rows([rows], tables, mask.detach(), dropout_p, **how)
        kept = out.grad_fn.saved_tensors[0]
        assert (kept is None) == (first_again == 270)
        leaves = [rows, bias, *(x.vectors for x in tables if x)]
        made.append([out, *torch.autograd.grad(out.float().square().sum(), leaves)])
    assert all(map(torch.equal, *made))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout_p", [0.2, None])
def test_attention_is_that_of_pytorch(dropout_p, causal, dtype, calls, monkeypatch):
    torch.manual_seed(0)
    if dropout_p is None:
        monkeypatch.setattr(blocked, "BLOCK", 1000)  # PyTorch's way in 4 parts of each sentence
        monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 8)
    position = Shaw(num_heads=2, head_dim=8, max_distance=4, causal=causal).to(dtype)
    q, k, v = (torch.randn(2, 2, 40, 8).to(dtype).requires_grad_() for _ in range(3))

    def run():
        for x in (q, k, v, *position.parameters()):
            x.grad = None
        torch.manual_seed(1)
        out = attend(q, k, v, None, position, POS, POS, dropout_p or 0.0, causal=causal)
        out.float().square().sum().backward()
        return [out, *(x.grad for x in (q, k, v, *position.parameters()))]

    with monkeypatch.context() as without_hooks:
        without_hooks.setattr(pairs, "query_bias", None)
        without_hooks.setattr(pairs, "value_bias", None)
        got = run()
    names = [name for name, *_ in calls if "attention" in name]
    assert names == ["attention_forward", "attention_backward"]
    calls.clear()
    monkeypatch.setattr(library, "library", lambda _: None)
    expected = run()
    assert not calls
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.1, "atol": 0.2}
    torch.testing.assert_close(got, expected, **near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("again_from", [1 << 30, 1])
@pytest.mark.parametrize("num_rows", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_bias_by_distance_is_that_of_all_pairs(threads, num_rows, again_from, dtype, monkeypatch):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    monkeypatch.setattr(cpu, "RECOMPUTED_FROM", again_from)
    H, E, lengths, others = 3, 24, torch.tensor([1, 70, 33]), torch.tensor([90, 70, 35])
    spans = [Spans(x.cumsum(0) - x, x) for x in (lengths, others)]
    Q, K = 75, 100  # wider than the longest, as a padded batch may be
    q, kv = (
        torch.randn(int(x.sum()), n * H * E).to(dtype).requires_grad_()
        for x, n in ((lengths, 1), (others, 2))
    )
    numbers = torch.randn(num_rows, Q + K - 1).to(dtype).requires_grad_()
    distances = torch.arange(K) - torch.arange(Q)[:, None]
    grad = torch.randn(len(q), H * E).to(dtype)
    for causal in (False, True):
        found = []
        pairs = numbers.float()[None, :, distances + Q - 1]  # whose gradients are summed exactly
        for bias in (Table(numbers, 1 - Q), pairs[..., :70, :90]):
            how = {"num_heads": H, "spans": spans, "causal": causal, "bias": bias}
            out = cpu.attend_rows([q, kv], NONE, **how)
            found.append([out, *torch.autograd.grad(out, [q, kv, numbers], grad)])
        assert all(map(torch.equal, found[0][:3], found[1][:3]))
        near = 1e-5 if dtype == torch.float32 else 0.02
        error = (found[0][3] - found[1][3]).float().norm()
        assert error <= near * found[1][3].float().norm()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kinds", [["alibi"], ["t5"], ["kerple"], ["alibi", "t5"]], ids="-".join)
def test_biases_by_distance(kinds, causal, dtype, monkeypatch):
    """Kinds of bias in a layer and in `attend`, queries behind the keys too, in few numbers."""
    monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 8)
    torch.manual_seed(0)
    parts = [get(kind, dim=16, num_heads=2).to(dtype) for kind in kinds]
    position = Chain(*parts) if len(parts) > 1 else parts[0]
    layer = Attention(16, 2, 0.0, position).to(dtype)
    x, pos = torch.randn(2, 40, 16).to(dtype), torch.arange(40)[None] + torch.tensor([[0], [7]])
    q, k, v = (torch.randn(2, 2, n, 8).to(dtype).requires_grad_() for n in (30, 40, 40))

    def run():
        own = layer(x, x, pos, pos, None, causal=causal)
        later = attend(q, k, v, None, position, pos[:, 10:], pos, causal=causal)
        leaves = [q, k, v, *layer.parameters()]
        made = own.float().square().sum() + later.float().square().sum()
        return [own, later, *torch.autograd.grad(made, leaves, allow_unused=True)]

    with monkeypatch.context() as patch:
        patch.setattr(base, "by_distance", lambda *_: pytest.fail("a bias of all pairs"))
        got = run()
    monkeypatch.setattr(library, "library", lambda _: None)
    near = 1e-4 if dtype == torch.float32 else 0.05
    for one, other in zip(got, run(), strict=True):
        assert (one - other).float().norm() <= near * other.float().norm() + near


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("position", [ALiBi(num_heads=2), Representation()])
def test_no_bias_of_all_pairs_of_many_keys(position, gaps, monkeypatch):
    """Between consecutive positions it is a number for each distance."""
    monkeypatch.setattr(blocked, "BLOCK", 1000)
    monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 8)
    sizes, forward = [], SentenceAttention.forward
    monkeypatch.setattr(
        SentenceAttention,
        "forward",
        lambda self, *x: sizes.append(self.num_pairs) or forward(self, *x),
    )
    layer = Attention(16, 2, 0.0, position)
    x, pos = torch.randn(2, 40, 16), torch.arange(40)[None] * (1 + gaps)
    layer(x, x, pos, pos, None)
    in_parts = gaps and isinstance(position, ALiBi)
    assert sizes == ([2 * 40 * 12] * 3 + [2 * 40 * 4]) * 2 if in_parts else [2 * 2 * 40 * 40]


def test_transforms_of_functions_are_computed_by_pytorch():
    q, k, v = (torch.randn(3, 2, 5, 8) for _ in range(3))
    pos = torch.arange(5)[None]

    def energy(q, k, v):
        heads = (x[None] for x in (q, k, v))
        return attend(*heads, None, Representation(), pos, pos).square().sum()

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


class Turning(Rotary):
    """Learns how fast the pairs of channels turn."""

    def __init__(self):
        super().__init__(head_dim=16)
        self.theta = torch.nn.Parameter(super().frequencies().float())

    def frequencies(self, device=None):
        return self.theta


def gradients(attention, mask, monkeypatch=None):
    """Of the mask, of all parameters and of the input; with `monkeypatch` without kernels."""
    if monkeypatch is not None:
        monkeypatch.setattr(library, "library", lambda _: None)
    x, pos = torch.randn(2, 9, 32, generator=torch.Generator().manual_seed(1)), POS[:, :9]
    x.requires_grad_()
    attention(x, x, pos, pos, mask).square().sum().backward()
    leaves = {"x": x, "mask": mask} | dict(attention.named_parameters())
    return {name: leaf.grad for name, leaf in leaves.items() if leaf is not None}


@pytest.mark.parametrize("position", [Representation(), Turning()], ids=["mask", "turns"])
def test_what_is_learned_outside_the_kernel_has_its_gradient(position, monkeypatch):
    """The kernel returns none of a mask and none of turns."""
    torch.manual_seed(0)
    attention = Attention(32, 2, 0.0, position)
    mask = torch.randn(9, 9, requires_grad=True) if type(position) is Representation else None
    own = gradients(deepcopy(attention), mask)
    again = None if mask is None else mask.detach().clone().requires_grad_()
    expected = gradients(deepcopy(attention), again, monkeypatch)
    assert own.keys() == expected.keys()
    assert None not in own.values()
    for name, grad in own.items():
        torch.testing.assert_close(grad, expected[name], **NEAR[torch.float32])


def sized(*sizes):
    return {"bias": lambda self, *pos, dtype: torch.zeros(sizes, dtype=dtype)}


WRONG_METHODS = {
    "tables": (
        (Shaw, {"num_heads": 4, "head_dim": 16, "max_distance": 1, "add_to": "keys"}),
        {"distance_vectors": lambda self: (Table(self.keys[..., :8], -1), None)},
        r"got \(1, 3, 8\)",
    ),
    "turns": (
        (Rotary, {"head_dim": 16}),
        {"turn": lambda self, pos, dtype: Rotary.turn(self, pos[:, :-1], dtype)},
        r"got \(1, 3, 8\)",
    ),
    "numbers": (
        (ALiBi, {"num_heads": 4}),
        {"distance_bias": lambda self, n, dtype: ALiBi.distance_bias(self, n[1:], dtype)},
        r"distance_bias .* got \(4, 6\)",
    ),
    "bias": ((Representation, {}), sized(1, 1, 3, 4), r"got \(1, 1, 3, 4\)"),
    "too large": (
        (Representation, {}),
        sized(1, 1, 6, 6),
        r"= \(4, 4, 4, 4\), or 1, got \(1, 1, 6, 6\)",
    ),
    "no heads": ((Representation, {}), sized(4, 4), r"four dimensions.*, got \(4, 4\)"),
}


@pytest.mark.parametrize("case", WRONG_METHODS)
def test_nothing_is_read_beyond_what_a_kind_of_ones_own_returns(case):
    (kind, options), methods, message = WRONG_METHODS[case]
    position = type("Own", (kind,), methods)(**options)
    attention, x, pos = Attention(64, 4, 0.0, position), torch.randn(4, 4, 64), POS[:, :4]
    with pytest.raises(ShapeshiftError, match=message):
        attention(x, x, pos, pos, None)


SECOND = {
    "none": lambda: Representation(),
    "shaw": lambda: Shaw(num_heads=2, head_dim=16, max_distance=2),
    "values of each head": lambda: Shaw(num_heads=2, head_dim=16, add_to="values", per_head=True),
    "t5": lambda: T5(dim=32, num_heads=2),
    "fire": lambda: FIRE(num_heads=2),
    "rotary": lambda: Rotary(head_dim=16),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SECOND)
def test_gradients_have_gradients(name, causal, calls):
    """Those of the kernels, in float32, are those of PyTorch's steps in float64."""
    torch.manual_seed(0)
    layer, x = Attention(32, 2, 0.0, SECOND[name]()), torch.randn(2, 7, 32)
    mask = torch.zeros(2, 1, 1, 7)
    mask[0, ..., 5:] = -math.inf
    found = []
    for dtype in (torch.float32, torch.float64):
        own, inputs = deepcopy(layer).to(dtype), x.to(dtype).requires_grad_()
        leaves = [inputs, *own.parameters()]
        out = own(inputs, inputs, POS[:, :7], POS[:, :7], mask.to(dtype), causal=causal)
        first = torch.autograd.grad(out.pow(3).sum(), leaves, create_graph=True)
        size = sum(grad.square().sum() for grad in first)
        found.append([*first, *torch.autograd.grad(size, leaves)])
        served = "attention_forward" in [name for name, *_ in calls]
        assert served == (dtype == torch.float32)
        calls.clear()
    largest = max(map(torch.max, map(torch.abs, found[1])))
    for got, expected in zip(*found, strict=True):
        assert (got - expected).norm() <= 1e-4 * expected.norm() + 1e-6 * largest


@pytest.mark.parametrize("dropout_p", [0.0, 0.3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_steps_of_pytorch_are_those_of_the_kernel(packed, causal, dropout_p, monkeypatch):
    """For second derivatives, and where the kernel has too little memory."""
    torch.manual_seed(0)
    H, E, lengths = 2, 16, torch.tensor([3, 9, 1])
    spans = (Spans(lengths.cumsum(0) - lengths, lengths),) * 2 if packed else None
    rows = torch.randn(15, 3 * H * E) if packed else torch.randn(3, 9, 3 * H * E)
    mask = None if packed else torch.randn(3, 1, 1, 9)
    tables = tables_by_distance("kv", H, E, -4, torch.float32)
    turns = [Turn(*torch.randn(2, n, 9, 4), n == 3) for n in (1, 3)]
    rows.requires_grad_()
    how = {"num_heads": H, "spans": spans, "causal": causal, "turns": turns}
    leaves = [rows, *(x.vectors for x in tables)]
    torch.manual_seed(1)
    out = cpu.attend_rows([rows], tables, mask, dropout_p, **how)
    grad = torch.randn(out.shape)
    first = torch.autograd.grad(out, leaves, grad, retain_graph=True)
    again = torch.autograd.grad(out, leaves, grad, create_graph=True)
    assert again[0].grad_fn is not None
    torch.testing.assert_close(again, first, rtol=1e-4, atol=1e-5)
    lacking, no_memory = [], 1
    monkeypatch.setattr(library, "_run", lambda *x: lacking.append(x) or no_memory)
    monkeypatch.setattr(cpu, "_PAIRS", 30)  # several parts of a sentence
    torch.manual_seed(1)
    slow = cpu.attend_rows([rows], tables, mask, dropout_p, **how)
    torch.testing.assert_close(slow, out, rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad(slow, leaves, grad)
    torch.testing.assert_close(found, first, rtol=1e-4, atol=1e-5)
    assert len(lacking) == 2


def test_gradients_in_a_batch():
    x = torch.randn(1, 2, 6, 16, requires_grad=True)
    out = cpu.attend_rows([x, x, x], NONE).sum((0, 1, 3))
    both = torch.autograd.grad(out, x, torch.eye(6), is_grads_batched=True, retain_graph=True)[0]
    each = [torch.autograd.grad(out, x, one, retain_graph=True)[0] for one in torch.eye(6)]
    torch.testing.assert_close(both, torch.stack(each))


@pytest.mark.parametrize("num_tokens", [1, 5, 70])
def test_second_derivatives_in_float64(num_tokens):
    pos = torch.arange(num_tokens)[None]

    def attention(*heads):
        return attend(*heads, None, Representation(), pos, pos)

    heads = torch.randn(3, 1, 1, num_tokens, 2, dtype=torch.float64).requires_grad_()
    torch.autograd.gradgradcheck(attention, heads.unbind(), fast_mode=True)
    slopes = torch.autograd.functional.jacobian(lambda x: attention(*x).sum((0, 1, 3)), heads)
    how = {"vectorize": True}
    again = torch.autograd.functional.jacobian(lambda x: attention(*x).sum((0, 1, 3)), heads, **how)
    torch.testing.assert_close(again, slopes)


def run(code, *arguments, **environment):
    return python("-c", code, *arguments, env=ENVIRONMENT | environment, timeout=None)


FEW = "import torch; from shapeshift import kernels; x = torch.zeros(2, 2); "
FEW += "print([kernels.serves(x) for _ in range(3)], kernels.describe())"


@pytest.mark.long
def test_the_instruction_set_is_named_or_the_best_that_the_processor_has():
    usable = processor.instruction_sets()
    lacking = processor.NEEDS.keys() - usable
    for name in ("none", *{usable[0], "baseline"}):
        shown = run(FEW, SHAPESHIFT_KERNELS=name)
        assert shown.stdout.startswith(str([name != "none"] * 3))
        assert name in shown.stdout
        assert shown.stderr == ""
    for name in ("sse9", *sorted(lacking)[:1]):
        last = run(FEW, SHAPESHIFT_KERNELS=name).stderr.splitlines()[-1]
        assert "ShapeshiftError: SHAPESHIFT_KERNELS" in last
        assert "baseline" in last  # which would do


@pytest.mark.parametrize(
    ("flags", "intel", "expected"),
    [
        ("fpu", False, "baseline baseline"),
        ("avx2 fma", False, "avx2 avx2"),
        ("avx2 fma avx512f", False, "avx2 avx2"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl", True, "avx512 avx512"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16", True, "avx512 avx512"),
        ("avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16", False, "avx512 avx512_bf16"),
        (
            "avx2 fma avx512f avx512bw avx512dq avx512vl avx512_bf16 amx_tile amx_bf16",
            True,
            "avx512 amx",
        ),
    ],
)
def test_the_set_that_a_processor_takes(flags, intel, expected, tmp_path, monkeypatch):
    """By its flags alone; nothing is loaded, for the processor here may lack the set."""
    for name in ("baseline", "avx2", "avx512"):
        (tmp_path / f"{name}-float32.so").touch()
    for name in processor.NEEDS:
        (tmp_path / f"{name}-bfloat16.so").touch()
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    monkeypatch.delenv("SHAPESHIFT_KERNELS", raising=False)
    monkeypatch.setattr(processor, "flags", lambda: frozenset(flags.split()))
    monkeypatch.setattr(processor, "has_tiles", lambda: "amx_tile" in flags)
    monkeypatch.setattr(library, "instruction_sets", processor.instruction_sets.__wrapped__)
    monkeypatch.setattr(library, "is_intel", lambda: intel)
    monkeypatch.setattr(library, "_loaded", lambda path, name: (None, name))
    found = [library._found.__wrapped__(dtype)[1] for dtype in DTYPES]
    assert " ".join(found) == expected


@pytest.mark.long
def test_a_package_without_libraries_says_so_once_and_computes_in_pytorch(tmp_path):
    package = tmp_path / "shapeshift"
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(Path(kernels.__file__).parents[1], package, ignore=unwanted)
    shown = run(FEW, PYTHONPATH=str(tmp_path))
    assert shown.stdout.startswith("[False, False, False] plain PyTorch: none were built")
    assert shown.stderr.count("without compiled kernels") == 1
    # A library of other sources is not used, nor a damaged one.
    made = next(Path(kernels.__file__).parent.glob("baseline-float32.so"))
    shutil.copy(made, package / "kernels")
    assert run(FEW, PYTHONPATH=str(tmp_path)).stdout.startswith("[True, True, True] compiled")
    with (package / "kernels" / "vectors.h").open("a") as file:
        file.write("/* edited */")
    shown = run(FEW, PYTHONPATH=str(tmp_path))
    assert "baseline-float32.so is older than its sources" in shown.stderr
    assert shown.stdout.startswith("[False, False, False] plain PyTorch: baseline-float32.so")
    (package / "kernels" / made.name).write_bytes(made.read_bytes()[:100])
    assert run(FEW, PYTHONPATH=str(tmp_path)).stdout.startswith("[False, False, False] plain")


EVERYWHERE = "baseline", "avx2"  # the others weekly; the set in use has all tests of this file


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [x if x in EVERYWHERE else pytest.param(x, marks=pytest.mark.slow) for x in processor.NEEDS],
)
def test_kernels_of_other_instruction_sets(name):
    if name not in processor.instruction_sets():
        pytest.skip(f"the processor has no {name}")
    if {library._found(dtype)[1] for dtype in DTYPES} == {name}:
        pytest.skip("this process has run them")
    some = "cross_entropy or heads_with_masks or is_that_of or few_queries"
    code = f"import sys, pytest; sys.exit(pytest.main({['-xq', '-n0', '-k', some, __file__]}))"
    done = run(code, SHAPESHIFT_KERNELS=name)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 50, 33), (32, 7001, 64), (130, 100, 200)])
def test_products_with_weights_in_panels(shape, relu):
    M, N, K = shape
    torch.manual_seed(0)
    x, weight, bias = torch.randn(M, K), torch.randn(N, K), torch.randn(N)
    panels = decoding.panels(weight)
    expected = F.linear(x.double(), weight.double(), bias.double())
    expected = expected.relu() if relu else expected
    got = decoding.linear(x, panels, bias, relu)
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5 * K**0.5)
    few = decoding.linear(x[M // 2 :], panels, bias, relu)
    assert torch.equal(few, got[M // 2 :])  # whichever rows are next to it
    twice = decoding.linear(torch.stack((x, x), 1).transpose(0, 1), panels, bias, relu)
    assert torch.equal(twice, torch.stack((got, got)))
    assert decoding.linear(x[:0], panels, bias, relu).shape == (0, N)
    with torch.no_grad():
        x[0, 0] = math.nan
    got = decoding.linear(x, panels, bias, relu)
    assert got[0].isnan().all()
    assert got[1:].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1, 16), (3, 2, 4, 19, 64), (5, 3, 1, 33, 48)])
def test_attention_of_few_queries(shape, dtype):
    N, H, Q, K, E = shape
    torch.manual_seed(0)
    q = torch.randn(N, Q, H, E).to(dtype).transpose(1, 2)
    k, v = (torch.randn(K, N, H, E).to(dtype).permute(1, 2, 0, 3) for _ in range(2))
    rows = torch.randint(N, (K, N), dtype=torch.int32)
    mask = torch.randn(N, 1, 1, K)
    mask[-1, ..., (K + 1) // 2 :] = -math.inf
    at = (rows.T.long(), slice(None), torch.arange(K))  # (N, K, H, E)
    biases = [None, *(torch.randn(x) for x in ((1, H, 1, K), (N, 1, Q, K), (N, H, Q, 1)))]
    for where, added, bias in itertools.product((None, rows), (None, mask), biases):
        here = [x.double() if where is None else x[at].double().transpose(1, 2) for x in (k, v)]
        wide = [x.to(dtype).double().expand(N, H, Q, K) for x in (added, bias) if x is not None]
        scores = sum(wide, q.double() @ here[0].transpose(2, 3) / E**0.5)
        expected = scores.softmax(-1)
        got, probs = decoding.decode_step(q, k, v, added, bias, where, keeps=True)
        assert probs is not None
        torch.testing.assert_close(probs.double(), expected, **NEAR[dtype])
        torch.testing.assert_close(got.transpose(1, 2).double(), expected @ here[1], **NEAR[dtype])
        alone, nothing = decoding.decode_step(q, k, v, added, bias, where)
        assert torch.equal(alone, got)
        assert nothing is None


def functions_in_c():
    """The functions that Python calls and their parameters, as the sources declare them."""
    text = "".join(x.read_text() for x in Path(kernels.__file__).parent.glob("*.c"))
    found = re.findall(r"^long (\w+)\(([^)]*)\)", text, re.MULTILINE)
    return {name: [x.strip() for x in parameters.split(",")] for name, parameters in found}


def test_arguments_have_the_types_of_the_parameters():
    def ctype(parameter):
        return library._TENSOR if "*" in parameter else types[parameter.split()[0]]

    types = {"long": library._LONG, "float": library._FLOAT}
    declared = {name: tuple(map(ctype, each)) for name, each in functions_in_c().items()}
    assert declared == library.FUNCTIONS


def test_every_function_is_in_the_readme():
    readme = (Path(kernels.__file__).parent / "README.md").read_text(encoding="utf-8")
    table = "".join(row for row in readme.splitlines(keepends=True) if row.startswith("| `"))
    assert len(functions_in_c()) > 5
    assert [name for name in functions_in_c() if f"`{name}`" not in table] == []


def few(E=16, **changed):
    given = {name: torch.zeros(2, 1, n, E) for name, n in {"q": 1, "k": 3, "v": 3}.items()}
    return decoding.decode_step(**given | changed)


IDS = torch.zeros(3, dtype=torch.int64)
ROWS = torch.zeros(3, 2, dtype=torch.int32)
SUMS = torch.zeros(3, 2)


def linear(x, bias):
    return decoding.linear(x, decoding.panels(torch.zeros(5, 4)), bias, False)


def cross_entropy(logits, targets):
    return training.cross_entropy(logits, targets, 0.9, True)


def best(forced=IDS, num=2, sums=SUMS):
    return decoding.best_continuations(torch.zeros(6, 9), sums, forced, num, (0, 1))


def attend_spans(rows, *spans):
    return cpu.attend_rows(rows, NONE, num_heads=1, spans=tuple(Spans(*x) for x in spans))


ONE = IDS[:1]
WRONG = {
    "other device": lambda: few(k=torch.zeros(2, 1, 3, 16, device="meta")),
    "bias of another device": lambda: few(bias=torch.zeros(1, 1, 1, 3, device="meta")),
    "other dtype": lambda: few(v=torch.zeros(2, 1, 3, 16).bfloat16()),
    "no vector": lambda: few(E=8),
    "other keys": lambda: few(k=torch.zeros(2, 1, 4, 16)),
    "fewer rows of keys": lambda: few(k=torch.zeros(1, 1, 3, 16), v=torch.zeros(1, 1, 3, 16)),
    "int64 rows": lambda: few(rows=ROWS.long()),
    "short rows": lambda: few(rows=ROWS[:2]),
    "narrow input": lambda: linear(torch.zeros(2, 3), torch.zeros(5)),
    "wide input": lambda: linear(torch.zeros(2, 9), torch.zeros(5)),
    "long bias": lambda: linear(torch.zeros(2, 4), torch.zeros(99)),
    "bf16 input": lambda: linear(torch.zeros(2, 4).bfloat16(), torch.zeros(5)),
    "bf16 weight": lambda: decoding.panels(torch.zeros(5, 4).bfloat16()),
    "float64": lambda: cross_entropy(torch.zeros(3, 4).double(), IDS),
    "short targets": lambda: cross_entropy(torch.zeros(3, 4), IDS[:2]),
    "float targets": lambda: cross_entropy(torch.zeros(3, 4), IDS.float()),
    "strided logits": lambda: cross_entropy(torch.zeros(4, 3).t(), IDS),
    "other forced ids": lambda: best(IDS[:2]),
    "nothing continues": lambda: best(num=0),
    "other sums": lambda: best(sums=torch.zeros(3, 3)),
    "sum of another size": lambda: training.dropout(
        torch.zeros(9), 1, 0, 1.0, residual=torch.zeros(8)
    ),
    "fewer bits": lambda: training.dropout_backward(
        torch.zeros(99), torch.zeros(2, dtype=torch.uint8), 1.0, torch.float32
    ),
    "heads": lambda: cpu.attend_rows([torch.zeros(1, n, 3, 8) for n in (2, 1, 1)], NONE),
    "a query without a key": lambda: cpu.attend_rows(
        [torch.zeros(1, 2, n, 8) for n in (40, 3, 3)], NONE, causal=True
    ),
    "more sentences of queries": lambda: attend_spans(
        [torch.zeros(5, 8), torch.zeros(5, 16)], (IDS, IDS + 1), (ONE, ONE + 1)
    ),
    "no such tokens": lambda: attend_spans([torch.zeros(5, 24)], *[(ONE, ONE + 6)] * 2),
    "before the first": lambda: attend_spans([torch.zeros(5, 24)], *[(ONE - 1, ONE + 2)] * 2),
    "meta turns": lambda: cpu.attend_rows(
        [torch.zeros(1, 2, 3, 8)] * 3,
        NONE,
        turns=[Turn(*torch.zeros(2, 1, 3, 4, device="meta"), True)] * 2,
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_nothing_is_read_or_written_beyond_a_tensor(wrong):
    with torch.no_grad(), pytest.raises(ShapeshiftError):
        WRONG[wrong]()


OUT_OF_RANGE = {
    "rows": lambda x: few(rows=ROWS + x),
    "forced ids": lambda x: best(IDS + (x if x >= 0 else -2)),
    "targets": lambda x: cross_entropy(torch.zeros(3, 4), (IDS + x).int()),
}


@pytest.mark.parametrize("index", [-1, 9, 10**9])
@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_indices_out_of_range(what, index):
    OUT_OF_RANGE[what](0)
    with pytest.raises(IndexError, match=r"out of range|from 0 to 3"):
        OUT_OF_RANGE[what](index)


@pytest.mark.parametrize("pos", [POS[:, :9], POS[:, :9] ** 2])  # the second has gaps
@pytest.mark.parametrize("name", ["t5", "shaw", "skew", "tupe", "mask"])
def test_weights_or_a_mask_on_another_device_are_an_error(name, pos):
    position = get("t5" if name == "mask" else name, dim=32, num_heads=2, head_dim=16)
    q, mask = torch.randn(1, 2, 9, 16), torch.zeros(9, 9)
    with torch.no_grad():
        attend(q, q, q, mask, position, pos, pos)
        if name == "mask":
            mask = mask.to("meta")
        else:
            position.to("meta")
        with pytest.raises((ShapeshiftError, RuntimeError), match="meta"):
            attend(q, q, q, mask, position, pos, pos)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("which", [1, 2])
def test_heads_of_several_dtypes_are_refused_on_every_path(which, dtype):
    heads = [torch.randn(1, 2, 9, 16).to(dtype) for _ in range(3)]
    heads[which] = heads[which].half()
    with pytest.raises(ShapeshiftError, match=r"must have one dtype.*float16 \(1, 2, 9, 16\)"):
        attend(*heads, None, Representation(), POS[:, :9], POS[:, :9])


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_calls_have_the_same_bits(dtype, monkeypatch):
    def results():
        torch.manual_seed(0)
        x = torch.randn(2, 2, 70, 16).to(dtype).requires_grad_()
        out = cpu.attend_rows([x, x, x], tables_by_distance("kv", 2, 16, -4, dtype))
        return [out, *torch.autograd.grad(out.sum(), x)]

    expected, calls, run = results(), [], library._run
    monkeypatch.setattr(library, "LONG_WORK", 0)
    monkeypatch.setattr(
        library, "_run", lambda *x: calls.append(threading.current_thread()) or run(*x)
    )
    assert all(map(torch.equal, results(), expected))
    assert len(calls) == 2
    assert threading.main_thread() not in calls


def test_a_long_call_is_stopped_by_a_signal():
    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    torch.set_num_threads(1)
    x = torch.randn(1, 4, 20_000, 64)  # takes some ten seconds
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(StopError):
            cpu.attend_rows([x, x, x], NONE, causal=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not any(thread.name.startswith("kernel") for thread in threading.enumerate())


LIMITED = """
import resource, sys, torch
from shapeshift.attention import attend
from shapeshift.positions import Shaw
K, E = 60_000, 16
position = Shaw(num_heads=1, head_dim=E, max_distance=K)
q, k = torch.randn(1, 1, 2, E), torch.randn(1, 1, K, E)
pos = torch.arange(K)[None]
attend(q, q, q, None, position, pos[:, :2], pos[:, :2])  # loads what is needed
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, [used + (int(sys.argv[1]) << 20)] * 2)
try:
    out = attend(q, k, k, None, position, pos[:, -2:], pos)
    print("finite" if out.isfinite().all() else out)
except (MemoryError, RuntimeError) as error:
    print("refused", type(error).__name__)
"""


@pytest.mark.long
@pytest.mark.parametrize("megabytes", [4, 30])
def test_too_little_memory_is_an_error_or_served_in_steps(megabytes):
    done = run(LIMITED, str(megabytes))
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[0] in ("refused", "finite")
