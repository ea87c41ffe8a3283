"""Masks that leave a query nothing to look at, and masks and positions that are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import call
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.positions import (
    T5,
    ALiBi,
    Chain,
    Learned,
    Representation,
    Rotary,
    Shaw,
    Skew,
    XPos,
    relative,
)

from .test_torch_nn import B, D, H, pair

E = D // H

LENGTHS = (5, 100)
"""Below and above `sdpa.FUSED_FROM`: PyTorch's kernel serves the longer one."""


def blinding(length: int, case: str) -> tuple[dict[str, Tensor], Tensor]:
    """Return masks and `(B, T)`, which queries they leave without a key."""
    padding = torch.zeros(B, length, dtype=torch.bool)
    causal = torch.ones(length, length, dtype=torch.bool).triu(1)
    if case == "a sequence of padding":
        padding[1] = True
        return {"key_padding_mask": padding}, padding
    if case == "padding on the left of causal attention":
        padding[0, :2] = True
        return {"attn_mask": causal, "key_padding_mask": padding}, padding
    causal[3] = True
    fully_masked = torch.zeros(B, length, dtype=torch.bool)
    fully_masked[:, 3] = True
    return {"attn_mask": torch.zeros(length, length).masked_fill(causal, -torch.inf)}, fully_masked


CASES = ("a sequence of padding", "padding on the left of causal attention", "a float row")


def attention_with(position: Representation) -> MultiheadAttention:
    return pair(batch_first=True, position=position)[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("weights", [False, True])
def test_a_query_without_keys_changes_nothing_else(case: str, length: int, weights: bool) -> None:
    masks, fully_masked = blinding(length, case)
    x = torch.randn(B, length, D)
    made = []
    for module in pair(batch_first=True):
        inputs = x.clone().requires_grad_()
        out, probs = module(inputs, inputs, inputs, need_weights=weights, **masks)
        out[~fully_masked].square().sum().backward()
        grads = {name: p.grad for name, p in module.named_parameters()}
        made.append({"out": out, "probs": probs, "inputs": inputs.grad, **grads})
    assert made[0]["out"].isfinite().all()
    if weights:  # torch.nn has NaN there, and then in all gradients
        assert not made[0]["probs"][fully_masked].any()
        made = [
            {name: x[~fully_masked] for name, x in each.items() if name in ("out", "probs")}
            for each in made
        ]
    for name, expected in made[1].items():
        close = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}
        torch.testing.assert_close(made[0][name], expected, **close, msg=lambda m, n=name: n + m)


CAUSAL_ONLY = {
    "XPos": lambda: XPos(head_dim=E),
    "Skew": lambda: Skew(num_heads=H, head_dim=E, causal=True, max_distance=3),
    "Shaw": lambda: Shaw(num_heads=H, head_dim=E, causal=True),
    "Shaw, near": lambda: Shaw(num_heads=H, head_dim=E, causal=True, max_distance=2),
    "T5": lambda: T5(dim=D, num_heads=H, causal=True),
    "Chain": lambda: Chain(ALiBi(num_heads=H), Skew(num_heads=H, head_dim=E, causal=True)),
}


@pytest.mark.parametrize("forbidden", [-torch.inf, -1e9, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("length", [6, 50])
@pytest.mark.parametrize("name", CAUSAL_ONLY)
def test_padding_on_the_left_changes_nothing_behind_it(
    name: str, length: int, forbidden: float
) -> None:
    attention = attention_with(CAUSAL_ONLY[name]()).double()
    x = torch.randn(1, length, D, dtype=torch.float64, requires_grad=True)
    causal = torch.full((length, length), forbidden, dtype=torch.float64).triu(1)
    padding = torch.zeros(1, length, dtype=torch.float64)
    padding[:, :3] = forbidden

    def gradients(out: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(out.square().sum(), (x, *attention.parameters()))

    real = x[:, 3:]
    alone = attention(real, real, real, attn_mask=causal[3:, 3:])[0]
    expected = gradients(alone)
    for weights in (False, True):
        out = attention(x, x, x, padding, need_weights=weights, attn_mask=causal)[0]
        torch.testing.assert_close(out[:, 3:], alone)
        if not weights or forbidden != -torch.inf:  # or NaN is in the gradient, as in torch.nn
            torch.testing.assert_close(gradients(out[:, 3:]), expected)


T = 6
RIGHT = torch.ones(T, T, dtype=torch.bool).triu(1)
"""Forbids what the causal mask does."""

WINDOW = RIGHT.triu(3) | RIGHT.T.triu(3).T
"""Forbids what is more than two tokens away."""


ONE_HEAD = RIGHT.repeat(B * H, 1, 1)
ONE_HEAD[-1, 2, 3] = False
LETS = {
    "none": None,
    "window": WINDOW,
    "float window": torch.zeros(T, T).masked_fill(WINDOW, -torch.inf),
    "one head": ONE_HEAD,
    "weak": RIGHT * -5.0,
}
FORBIDS = {
    "boolean": RIGHT,
    "-inf": torch.zeros(T, T).masked_fill(RIGHT, -torch.inf),
    "-1e9": RIGHT * -1e9,
    "min": RIGHT * torch.finfo(torch.float32).min,
    "-1e4 in bf16": RIGHT * torch.tensor(-1e4, dtype=torch.bfloat16),
    "heads": (RIGHT | WINDOW).repeat(B * H, 1, 1),
}


@pytest.mark.parametrize("name", CAUSAL_ONLY)
@pytest.mark.parametrize("mask", [*LETS, *FORBIDS])
def test_what_sees_nothing_on_the_right_needs_a_mask_that_forbids_it(
    name: str, mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, x = attention_with(CAUSAL_ONLY[name]()), torch.randn(B, T, D)
    if mask in LETS:
        remedy = "another kind" if name == "XPos" else "causal=False"
        message = f"no meaning for tokens on the right.* give the causal mask, or use {remedy}"
        with pytest.raises(ShapeshiftError, match=message):
            attention(x, x.clone(), x, attn_mask=LETS[mask])
        return
    out = attention(x, x, x, attn_mask=FORBIDS[mask])[0]
    for module in (call, relative):  # by the positions alone
        monkeypatch.setattr(module, "common_lag", lambda pos_q, pos_k: None)
    torch.testing.assert_close(out, attention(x, x, x, attn_mask=FORBIDS[mask])[0])
    assert out.isfinite().all()


def test_the_right_of_a_query_is_where_positions_are_higher() -> None:
    attention, x = attention_with(CAUSAL_ONLY["Shaw"]()), torch.randn(B, T, D)
    whole = attention(x, x, x, attn_mask=RIGHT)[0]
    pos = torch.arange(T)[None]
    chunk = {"attn_mask": RIGHT[4:], "pos_q": pos[:, 4:], "pos_k": pos}
    torch.testing.assert_close(attention(x[:, 4:], x, x, **chunk)[0], whole[:, 4:])
    back = x.flip(1)
    turned = attention(back, back, back, attn_mask=RIGHT.T, pos_q=pos.flip(1))[0]
    torch.testing.assert_close(turned.flip(1), whole)
    for refused in ({"attn_mask": RIGHT, "pos_q": pos.flip(1)}, {"attn_mask": RIGHT.T}):
        with pytest.raises(ShapeshiftError, match="tokens on the right"):
            attention(back, back, back, **refused)
    with pytest.raises(ShapeshiftError, match="tokens on the right"):
        attention(x[:, :1], x, x, pos_q=pos[:, 3:4], pos_k=pos)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_padding_is_not_on_the_right(dtype: torch.dtype) -> None:
    attention, x = attention_with(XPos(head_dim=E)), torch.randn(2, T, D)
    padding = torch.tensor([[True] * 2 + [False] * 4, [False] * 4 + [True] * 2])
    pos = torch.tensor([[1, 1, 0, 1, 2, 3], [0, 1, 2, 3, 1, 1]])  # Hugging Face gives padding 1
    mask = padding if dtype is torch.bool else padding * -1e9
    out = attention(x, x, x, mask, attn_mask=RIGHT, pos_q=pos)[0]
    for b, real in enumerate((slice(2, 6), slice(0, 4))):
        alone = x[b : b + 1, real]
        expected = attention(alone, alone, alone, attn_mask=RIGHT[:4, :4])[0]
        torch.testing.assert_close(out[b : b + 1, real], expected)
    with pytest.raises(ShapeshiftError, match="tokens on the right"):
        attention(x, x, x, attn_mask=RIGHT, pos_q=pos)


def test_where_positions_cannot_be_read_there_must_be_a_mask() -> None:
    attention, x = attention_with(CAUSAL_ONLY["Skew"]()), torch.randn(B, T, D)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    expected = attention(x, x, x, attn_mask=RIGHT)[0]
    torch.testing.assert_close(compiled(x, x, x, attn_mask=RIGHT)[0], expected)
    attention, x = attention.to("meta"), x.to("meta")
    attention(x, x, x, attn_mask=WINDOW.to("meta"))
    attention(x[:, :1], x[:, :1], x[:, :1])
    with pytest.raises(ShapeshiftError, match="tokens on the right"):
        attention(x, x, x)


@pytest.mark.parametrize(
    "position", [Shaw(num_heads=H, head_dim=E), Chain(Rotary(head_dim=E), ALiBi(num_heads=H))]
)
def test_fewer_queries_than_keys_have_to_say_where_they_are(position: Representation) -> None:
    attention, x = attention_with(position), torch.randn(B, T, D)
    pos = torch.arange(T)[None]
    for options in ({}, {"attn_mask": RIGHT[4:]}):
        with pytest.raises(ShapeshiftError, match=r"^give pos_q and pos_k where Q=2 and K=6: "):
            attention(x[:, 4:], x, x, **options)
    chunk = {"attn_mask": RIGHT[4:], "pos_q": pos[:, 4:], "pos_k": pos}
    step = attention(x[:, 4:], x, x, **chunk)[0]
    whole = attention(x, x, x, attn_mask=RIGHT)[0]
    torch.testing.assert_close(step, whole[:, 4:])


@pytest.mark.parametrize("position", [Learned(dim=D), Rotary(head_dim=E), ALiBi(num_heads=H)])
def test_in_self_attention_one_side_s_positions_are_both_sides(position: Representation) -> None:
    attention = MultiheadAttention(D, H, batch_first=True, position=position)
    x, pos = torch.randn(B, 5, D), torch.tensor([[4, 5, 6, 9, 11]])
    both = attention(x, x, x, pos_q=pos, pos_k=pos)[0]
    for name in ("pos_q", "pos_k"):
        assert torch.equal(attention(x, x, x, **{name: pos})[0], both)
        with pytest.raises(ShapeshiftError, match=r"^give pos_q and pos_k, or neither"):
            attention(x, x.clone(), x, **{name: pos})  # whose positions would count from 0


X = torch.randn(B, 5, D)
POS = torch.arange(5)[None]


def no(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


MASK = r"^attn_mask must be \(5, 5\) or \(12, 5, 5\) here, got "
PADDING = r"^key_padding_mask must be \(3, 5\) here, got "
TENSORS = "query, key and value must be floating point"
MISFITS: list[tuple[str, dict[str, Tensor]]] = [
    *((MASK, {"attn_mask": no(*n)}) for n in ((5, 8, 5), (5, 1), (1, 5), (B, 5, 5), (B, 1, 5, 5))),
    *((PADDING, {"key_padding_mask": no(*n)}) for n in ((B, 1), (1, 5), (5,), (5, B))),
    ("must be boolean, true = not allowed, or a float", {"attn_mask": no(5, 5).int()}),
    *(
        (rf"^{name} must be integers \(1, 5\) or \(3, 5\)", {name: pos})
        for name in ("pos_q", "pos_k")
        for pos in (no(1, 5), *(no(*n).long() for n in ((1, 1), (5,), (2, 5), (5, B), (1, 6))))
    ),
    *((TENSORS, {"key": x, "value": x}) for x in (X[:1], X[0], X[..., :1])),
    *((TENSORS, {"value": x}) for x in (X[:1], X[:, :3], X > 0)),
]


@pytest.mark.parametrize(("message", "given"), MISFITS)
def test_what_does_not_fit_is_refused(message: str, given: dict[str, Tensor]) -> None:
    attention = MultiheadAttention(D, H, batch_first=True, position=Rotary(head_dim=E))
    with pytest.raises(ShapeshiftError, match=message):
        attention(**{"query": X, "key": X.clone(), "value": X, "pos_q": POS, "pos_k": POS, **given})
