"""What every registered kind promises of its hooks, at every place where it has a meaning."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend_with_probs, causal_mask
from shapeshift.model.attention import Attention
from shapeshift.positions import KINDS, Part, Placed, PoPE, Representation, Scheme, Stack, place
from shapeshift.positions.base import AT_ATTENTION, total_bias

from .conftest import close

B, Q, K, H, D = 2, 4, 6, 2, 8
E = D // H
HOOKS = ("embed", *AT_ATTENTION)


def build_cell(cell: Scheme, stack: str) -> tuple[Representation, str]:
    """Return the module of a one-part scheme, and the place it stands at."""
    torch.manual_seed(0)
    placed: Placed = place(cell, Stack(stack, D, H, num_layers=1))
    at = cell.parts[0].place
    modules = {
        "embedding": placed.embedding,
        "self": placed.self_attention[0],
        "cross": placed.cross_attention[0],
    }
    return modules[at], at


def positions(each: bool, length: int, start: int = 0) -> Tensor:
    pos = torch.arange(start, start + length)[None]
    return torch.cat([pos + 7 * b for b in range(B)]) if each else pos


@pytest.mark.parametrize("each", [False, True], ids=["shared", "per-sequence"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shapes_and_dtypes(stacked, dtype, each):
    position, _ = build_cell(*stacked)
    position.to(dtype)
    pos_q, pos_k = positions(each, Q, start=K - Q), positions(each, K)
    x, memory = torch.randn(B, Q, D, dtype=dtype), torch.randn(B, K, D, dtype=dtype)
    q, k = torch.randn(B, H, Q, E, dtype=dtype), torch.randn(B, H, K, E, dtype=dtype)
    probs = torch.rand(B, H, Q, K, dtype=dtype)
    scores = torch.randn(B, H, Q, K, dtype=dtype).masked_fill(torch.rand(K) < 0.3, -torch.inf)
    given = [x, memory, q, k, probs, scores, pos_q, pos_k]
    before = [tensor.clone() for tensor in given]

    made = [position.embed(x, pos_q), *position.inputs(x, memory, memory, pos_q, pos_k)]
    made += position.rotate(q, k, pos_q, pos_k)
    moved = position.rotate(q, k, pos_q + 1, pos_k)[0]
    assert position.position_free_heads == torch.equal(moved, made[-2])
    width = 2 * E if isinstance(position, PoPE) else E
    for got, like in zip(made, (x, x, memory, memory, q, k), strict=True):
        shape = (*like.shape[:3], width) if like.ndim == 4 else like.shape
        assert (got.shape, got.dtype) == (shape, dtype)
    biases = {
        "bias": position.bias(pos_q, pos_k, dtype=dtype),
        "query_bias": position.query_bias(q, pos_q, pos_k),
    }
    for hook, bias in biases.items():
        assert position.acts(hook) == (bias is not None)
        if bias is None:
            continue
        assert bias.dtype == dtype
        assert torch.broadcast_shapes(bias.shape, (B, H, Q, K)) == (B, H, Q, K)
        assert bias.isfinite().all(), "a bias never contains a mask"
        assert bias.stride(-1) == 1, "fused kernels need it"
    mixed = position.value_bias(probs, pos_q, pos_k)
    assert position.acts("value_bias") == (mixed is not None)
    if mixed is not None:
        assert (mixed.shape, mixed.dtype) == ((B, H, Q, E), dtype)
    state = position.state(memory, pos_k)
    assert position.acts("state") == (state is not None)
    if state is not None:
        assert (state.shape[:2], state.ndim) == ((B, K), 3)
    rescored = position.score(scores, q, k, state, pos_q, pos_k)
    assert position.acts("score") == (not torch.equal(rescored, scores))
    assert (rescored.shape, rescored.dtype) == (scores.shape, dtype)
    assert torch.equal(rescored.isinf(), scores.isinf()), "a mask stays, and nothing else masks"
    for tensor, copy in zip(given, before, strict=True):
        assert torch.equal(tensor, copy), "a hook changed what it was given"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_positions_are_integers_of_any_type(stacked, dtype):
    position, at = build_cell(*stacked)
    if not type(position).__module__.startswith("shapeshift."):
        pytest.skip("a kind of one's own may take int64 alone")
    module: nn.Module = position if at == "embedding" else Attention(D, H, 0.0, position)
    module.double()
    x, later = torch.randn(B, K, D, dtype=torch.float64), torch.full((K, K), -torch.inf).triu(1)

    def run(pos):
        if at == "embedding":
            return module.embed(x, pos)
        return module(x, x, pos, pos, later.double())

    for pos in (torch.arange(200, 200 + K)[None], torch.tensor([[3, 255, 7, 130, 0, 9]])):
        torch.testing.assert_close(run(pos.to(dtype)), run(pos))
    if any(position.acts(hook) for hook in HOOKS):
        one = torch.arange(K)
        for wrong in (one[None].double(), torch.ones(1, K, dtype=torch.bool), one):
            with pytest.raises(ShapeshiftError, match=r"^pos\w* must be integers \("):
                run(wrong)


@pytest.mark.parametrize("length", [5, 40])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_attention_is_that_of_the_hooks(stacked, dtype, length):
    """Of self-attention, where a kind may know a faster way; `dtype` chooses among its ways."""
    position, _ = build_cell(*stacked)
    position.to(dtype)
    pos = positions(True, length)
    causal = stacked[1] == "decoder"
    mask = causal_mask(length, length, dtype, torch.device("cpu")) if causal else None
    q, k, v = torch.randn(3, B, H, length, E, dtype=dtype)
    state = position.state(torch.randn(B, length, D, dtype=dtype), pos)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.03}[dtype]
    q_scaled = q / E**0.5
    scores = q_scaled @ k.mT
    bias = total_bias(position, q_scaled, pos, pos)
    for added in (bias, mask):
        scores = scores if added is None else scores + added
    scores = position.score(scores, q_scaled, k, state, pos, pos)
    got, probs = attend_with_probs(q, k, v, mask, position, pos, pos, state=state)
    torch.testing.assert_close(probs, scores.softmax(-1), rtol=0, atol=tolerance)
    value_bias = position.value_bias(probs, pos, pos)
    expected = probs @ v if value_bias is None else probs @ v + value_bias
    torch.testing.assert_close(got, expected, rtol=0, atol=3 * tolerance)


def test_a_bias_by_distance_is_the_bias(stacked):
    position, _ = build_cell(*stacked)
    pos = torch.arange(3, 9)[None]
    if position.acts("bias") and position.derives("bias"):
        numbers = position.bias_at(torch.arange(-5, 6), torch.float64)
        at = torch.arange(6) - torch.arange(6)[:, None] + 5
        bias = position.bias(pos, pos, dtype=torch.float64)
        close(bias, numbers[None, :, at])


@pytest.mark.parametrize("each", [False, True], ids=["shared", "per-sequence"])
@pytest.mark.parametrize(("batch", "length"), [(0, 20), (B, 0), (0, 0)])
def test_nothing_comes_of_nothing(stacked, batch, length, each):
    position, at = build_cell(*stacked)
    x, memory = torch.zeros(2, batch, length, D).requires_grad_().unbind()
    pos = torch.arange(length).expand(batch if each else 1, -1)
    if at == "embedding":
        made = position.embed(x, pos)
    else:
        attention = Attention(D, H, 0.0, position)
        made = attention(x, x if at == "self" else memory, pos, pos, None)
    assert made.shape == (batch, length, D)
    made.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
def test_two_kinds_at_one_attention_are_refused_or_do_what_they_declare(kind):
    torch.manual_seed(0)
    x, pos = torch.randn(B, K, D, dtype=torch.float64), positions(False, K)
    later = torch.full((K, K), -torch.inf, dtype=torch.float64).triu(1)
    for other in KINDS:
        parts = tuple(Part(each, "self", "decoder") for each in (kind, other))
        try:
            position = build_cell(Scheme(parts=parts), "decoder")[0]
        except ShapeshiftError:
            continue
        attention = Attention(D, H, 0.0, position).double()
        same, shifted = (attention(x, x, at, at, later) for at in (pos, pos + 1000))
        is_same = torch.allclose(shifted, same, rtol=0, atol=1e-10)
        assert is_same == position.shift_invariant, other


class _Embed(nn.Module):
    """`embed` as a forward pass."""

    def __init__(self, position: Representation):
        super().__init__()
        self.position = position

    def forward(self, x, memory, pos, *_):
        return self.position.embed(x, pos)


def test_gradients(stacked):
    position, at = build_cell(*stacked)
    x, memory = (torch.randn(B, n, D, dtype=torch.float64, requires_grad=True) for n in (Q, K))
    pos_q, pos_k = positions(True, Q), positions(True, K)
    module = _Embed(position) if at == "embedding" else Attention(D, H, 0.0, position)
    module.double()
    named = dict(module.named_parameters())
    for parameter in named.values():  # off the limits where some weights start
        parameter.data -= 0.1 * torch.rand_like(parameter)

    def run(x, memory, *parameters):
        inputs = (x, memory, pos_q, pos_k, None) if at == "cross" else (x, x, pos_q, pos_q, None)
        return functional_call(module, dict(zip(named, parameters, strict=True)), inputs)

    assert torch.autograd.gradcheck(run, (x, memory, *named.values()), fast_mode=True)
    assert torch.autograd.gradgradcheck(run, (x, memory, *named.values()), fast_mode=True)
