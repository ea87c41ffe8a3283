"""Masks at their edges: a query that may see nothing, and numbers that a dtype does not have."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import attend, attend_with_probs, backends
from shapeshift.attention.backends import blocked, cpu, reference
from shapeshift.attention.masks import additive
from shapeshift.model import ModelConfig, build
from shapeshift.model.cache import KeyValues
from shapeshift.positions import Representation, get

B, H, E = 2, 2, 16
KINDS = ("none", "t5", "shaw", "fire")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WAYS = ("default", "no kernels", "blocks", "probabilities")


def heads(length: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(B, H, length, E, dtype=dtype, requires_grad=True) for _ in range(3)]


def made(kind: str, dtype: torch.dtype) -> Representation:
    return get(kind, dim=H * E, num_heads=H, head_dim=E).to(dtype)


def run(way: str, monkeypatch: pytest.MonkeyPatch, *call: Any, **options: Any) -> Tensor:
    if way in ("no kernels", "blocks"):
        monkeypatch.setattr(kernels, "is_available", lambda _: False)
    if way == "blocks":
        length = call[0].shape[2]
        monkeypatch.setattr(blocked, "BLOCK", length // 4 * H * length)  # a quarter of a sentence
        both = {"blocked": blocked, "reference": reference}
        monkeypatch.setattr(backends, "BACKENDS", both)
    if way == "probabilities":
        out, probs = attend_with_probs(*call)
        assert not probs[0, :, 1].any()
        return out
    return attend(*call, **options)


@pytest.mark.parametrize(
    ("way", "dtype"),
    [(way, x) for way in WAYS for x in (DTYPES if way == "default" else DTYPES[:2])],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_may_see_nothing_gets_zeros(kind, dtype, way, monkeypatch):
    """And changes no gradient: those are of a call without the query."""
    torch.manual_seed(0)
    for length in (8, 70):
        position, (q, k, v), pos = made(kind, dtype), heads(length, dtype), torch.arange(length)
        allowed = torch.ones(B, 1, length, length, dtype=torch.bool)
        allowed[0, :, 1] = False
        leaves = [q, k, v, *position.parameters()]
        out = run(way, monkeypatch, q, k, v, allowed, position, pos[None], pos[None])
        assert not out[0, :, 1].any()
        assert out[1].any(-1).all()
        out.float().square().sum().backward()
        found = [x.grad for x in leaves]
        assert not q.grad[0, :, 1].any()
        allowed[0, :, 1] = True
        keep = torch.ones(B, 1, length, 1, dtype=torch.bool)
        keep[0, :, 1] = False
        for x in leaves:
            x.grad = None
        out = run("default", monkeypatch, q, k, v, allowed, position, pos[None], pos[None])
        (out.float() * keep).square().sum().backward()
        near = {8: 1e-9, 4: 1e-4, 2: 0.4}[dtype.itemsize]  # two ways round differently in 16 bits
        for got, leaf in zip(found, leaves, strict=True):
            if leaf.grad is not None:
                assert (got - leaf.grad).norm() <= near * leaf.grad.norm() + near


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_causal_attention_to_padding_on_the_left(kind, dtype):
    """No row of the mask is empty; only together with `causal` the first queries see nothing. So
    do queries before all keys."""
    for length in (8, 70):
        position, (q, k, v), pos = made(kind, dtype), heads(length, dtype), torch.arange(length)
        padding = (torch.arange(length) > 2).view(1, 1, 1, length)
        out = attend(q, k, v, padding, position, pos[None], pos[None], causal=True)
        assert not out[:, :, :3].any()
        assert out[:, :, 3:].isfinite().all()
        few = attend(
            q, k[:, :, 3:], v[:, :, 3:], None, position, pos[None], pos[None, 3:], causal=True
        )
        assert not few[:, :, :3].any()
        (out.sum() + few.sum()).backward()
        assert all(x.grad.isfinite().all() for x in (q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keeps", [False, True])
def test_decoding_with_nothing_to_see(keeps, dtype):
    if not kernels.is_available(dtype):
        pytest.skip("no compiled kernels")
    q, k, v = torch.randn(3, 2, H, 5, E).to(dtype)
    mask = torch.zeros(2, 1, 1, 5, dtype=dtype)
    mask[0] = -math.inf
    out, probs = KeyValues().attend(q[:, :, :1], k, v, mask=mask, bias=None, keeps=keeps)
    assert not out[0].any()
    assert out[1].ne(0).all()
    if probs is not None:
        assert not probs[0].any()


def test_an_empty_source_in_the_model_is_no_nan():
    """`encode` refuses it; a memory of one's own is not checked."""
    torch.manual_seed(0)
    model = build(ModelConfig(size="tiny", dim=32, num_heads=2), "rpe", 12, 12).eval()
    source, target = torch.tensor([[5, 6, 3], [5, 3, 0]]), torch.tensor([[2, 7, 8], [2, 7, 8]])
    memory = model.encode(source)
    memory.mask[1] = -math.inf
    assert model.decode(target, memory).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("source", [torch.float32, torch.float64])
def test_the_lowest_number_stays_a_number(source, dtype):
    lowest = torch.finfo(source).min
    mask = additive(torch.tensor([[0.0, -3.0, lowest, -math.inf, -lowest]], dtype=source), dtype)
    assert mask.dtype == dtype
    assert mask[0, :2].tolist() == [0, -3]
    assert mask[0, 3] == -math.inf
    assert mask[0, [2, 4]].isfinite().all()
    assert mask[0, 2] < torch.finfo(dtype).min / 4
    for other in (mask, torch.full_like(mask, -100.0)):  # a second mask, or a bias
        assert (mask + other)[0, 2].isfinite()


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("way", WAYS[:3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_left_padding_in_half_precision(kind, dtype, way, autocast, monkeypatch):
    """As transformers pads: a mask with the lowest number of float32, for whole rows of padding."""
    torch.manual_seed(0)
    length = 9
    position, given = made(kind, torch.float32), heads(length, torch.float32)
    pos = (torch.arange(length) - 3).clamp(min=0)[None]
    forbidden = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)
    forbidden[:, :3] = torch.finfo(torch.float32).min
    mask = forbidden.expand(B, 1, length, length)
    expected = attend(
        *(x[:, :, 3:] for x in given), None, position, pos[:, 3:], pos[:, 3:], causal=True
    )
    if not autocast:
        given, position = [x.to(dtype) for x in given], position.to(dtype)
    with torch.autocast("cpu", dtype, enabled=autocast):
        out = run(way, monkeypatch, *given, mask, position, pos, pos)
    assert out.isfinite().all()
    assert (out[:, :, 3:] - expected).norm() <= 0.05 * expected.norm()


def test_a_mask_is_widened_as_it_is():
    mask = torch.tensor([[0.0, torch.finfo(torch.float32).min, -math.inf]])
    assert torch.equal(additive(mask, torch.float64), mask.double())


@pytest.mark.parametrize("strides", [(99, 66, 1, 1), (99, 1, 9, 1), (1, 40, 4, 1)])
@pytest.mark.parametrize("grad", [True, False])
def test_queries_may_overlap_in_memory(monkeypatch, ran, strides, grad):
    """PyTorch's fused attention on a CPU wrote its output where nobody read it."""
    monkeypatch.setattr(cpu, "refuses", lambda call: "not in this test")
    numbers = torch.randn(2, 999, dtype=torch.float64, requires_grad=grad)
    k, v = torch.randn(2, 2, 2, 70, 4, dtype=torch.float64, requires_grad=grad)
    pos = torch.arange(70)[None]

    def found(q):
        out = attend(q, k, v, None, Representation(), pos[:, -3:], pos)
        wanted = (numbers, k, v) if grad else ()
        return [out, *torch.autograd.grad(out.square().sum(), wanted)] if grad else [out]

    windows = numbers.as_strided((2, 2, 3, 4), strides)
    for own, expected in zip(found(windows), found(windows.contiguous()), strict=True):
        torch.testing.assert_close(own, expected)
    assert ran == ["sdpa", "sdpa"]


def test_keys_that_overlap_in_memory_have_gradients_in_bfloat16(monkeypatch, ran):
    """PyTorch's fused attention on a CPU refuses such strides in its backward pass."""
    monkeypatch.setattr(cpu, "refuses", lambda call: "not in this test")
    keys = torch.randn(400).bfloat16().requires_grad_()
    q, v = torch.randn(1, 1, 1, 12).bfloat16(), torch.randn(1, 1, 342, 12).bfloat16()
    pos = torch.arange(342)[None]
    v.requires_grad_()

    def gradients(k):
        out = attend(q, k, v, None, Representation(), pos[:, -1:], pos)
        return [*torch.autograd.grad(out.float().square().sum(), (keys, v))]

    windows = keys.as_strided((1, 1, 342, 12), (342, 342, 1, 1))
    for own, expected in zip(gradients(windows), gradients(windows.contiguous()), strict=True):
        torch.testing.assert_close(own, expected, rtol=0.02, atol=0.02)
    assert ran == ["sdpa", "sdpa"]


COMPILED = pytest.param("compiled", marks=pytest.mark.long)


class Loss(torch.nn.Module):
    """A function as a forward pass."""

    def __init__(self, loss: Callable[..., Tensor]):
        super().__init__()
        self.loss = loss

    def forward(self, *heads: Tensor) -> Tensor:
        return self.loss(*heads)


@pytest.mark.parametrize("low", [torch.finfo(torch.float32).min, -1e9])
@pytest.mark.parametrize("way", ["eager", "torch.func", "exported", COMPILED])
def test_rows_of_low_numbers_have_right_gradients(monkeypatch, ran, way, low):
    """PyTorch's fused attention on a CPU multiplies those of keys by their number."""
    monkeypatch.setattr(cpu, "refuses", lambda call: "not in this test")
    given = [torch.randn(1, 1, n, 8, requires_grad=True) for n in (1, 70, 70)]
    mask, pos = torch.full((1, 1, 1, 70), low), torch.arange(70)[None]
    rest = mask, Representation(), pos[:, -1:], pos
    # As next to -1e9 in float32, scores are lost next to the lowest number in float64.
    lowest = torch.full_like(mask, torch.finfo(torch.float32).min)
    expected = attend_with_probs(*(x.double() for x in given), lowest, *rest[1:])[0].float()

    def loss(*heads):
        return attend(*heads, *rest).square().sum()

    if way == "torch.func":
        own = torch.func.grad(loss, (0, 1, 2))(*given)
    else:
        function = torch.compile(loss, backend="aot_eager") if way == "compiled" else loss
        if way == "exported":
            function = torch.export.export(Loss(loss), tuple(given)).module()
        own = torch.autograd.grad(function(*given), given)
    assert way in ("compiled", "exported") or ran == ["reference"]
    others = torch.autograd.grad(expected.square().sum(), given)
    for one, other in zip(own, others, strict=True):
        torch.testing.assert_close(one, other)


def test_low_numbers_next_to_others_keep_the_fused_kernel(monkeypatch, ran):
    monkeypatch.setattr(cpu, "refuses", lambda call: "not in this test")
    q, k, v = heads(70, torch.float32)
    pos, mask = torch.arange(70)[None], torch.zeros(1, 1, 1, 70)
    mask[..., 30:] = -1e9
    out = attend(q, k, v, mask, Representation(), pos, pos)
    assert ran == ["sdpa"]
    few = attend(q, k[:, :, :30], v[:, :, :30], None, Representation(), pos, pos[:, :30])
    own, others = (torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, few))
    for one, other in zip(own, others, strict=True):
        torch.testing.assert_close(one, other)
