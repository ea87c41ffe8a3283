"""Kinds whose scores depend on the content of the text, where the layer's input or the queries are
given by a caller."""

from typing import Any

import pytest
import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.attention.backends import blocked, cpu
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.model.attention import Attention
from shapeshift.positions import KINDS, Chain, CoPE, DeBERTa, FoX, Representation, Rotary, Shaw, get

D, H, T = 16, 2, 6
E = D // H
SIZES = {"dim": D, "num_heads": H, "head_dim": E}
CONTENT = [x for x in KINDS if KINDS[x].build.score is not Representation.score]
POS = torch.arange(T)[None]
LATER = torch.ones(T, T, dtype=torch.bool).triu(1)


def random(position: Representation) -> Representation:
    torch.manual_seed(0)
    for parameter in position.parameters():
        nn.init.normal_(parameter)
    return position.double()


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("kind", CONTENT)
def test_torch_nn_with_padding_on_the_left_is_the_model(kind, weights):
    position = random(get(kind, **SIZES))
    ours = Attention(D, H, 0.0, position).double()
    theirs = MultiheadAttention(D, H, batch_first=True, position=position).double()
    theirs.in_proj_weight, theirs.in_proj_bias = ours.in_weight, ours.in_bias
    theirs.out_proj = ours.out
    x = torch.randn(2, T, D, dtype=torch.float64)
    padding = torch.arange(T) < torch.tensor([[0], [2]])
    pos = (POS - padding.sum(1, keepdim=True)).clamp(min=0)
    options: dict[str, Any] = {"pos_q": pos, "attn_mask": LATER, "need_weights": weights}
    found, _ = theirs(x, x, x, padding, **options)
    for row, start in ((0, 0), (1, 2)):
        alone, at = x[row : row + 1, start:], POS[:, : T - start]
        expected = ours(alone, alone, at, at, None, causal=True)
        torch.testing.assert_close(found[row : row + 1, start:], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("forbids", [-torch.inf, torch.finfo(torch.float64).min])
@pytest.mark.parametrize("kind", CONTENT)
def test_texts_of_a_packed_row_are_apart(kind, forbids):
    layer = Attention(D, H, 0.0, random(get(kind, **SIZES))).double()
    x, texts = torch.randn(2, 9, D, dtype=torch.float64), (slice(0, 4), slice(4, 9))
    pos = torch.cat((torch.arange(4), torch.arange(5)))[None]
    apart = torch.full((9, 9), forbids, dtype=torch.float64)
    for text in texts:
        apart[text, text] = 0
    found = layer(x, x, pos, pos, apart.view(1, 1, 9, 9), causal=True)
    for text in texts:
        alone, at = x[:, text], pos[:, text]
        expected = layer(alone, alone, at, at, None, causal=True)
        torch.testing.assert_close(found[:, text], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [*CONTENT, "pope"])
def test_half_precision_is_near(kind):
    layer = Attention(D, H, 0.0, random(get(kind, **SIZES))).double()
    for parameter in layer.position.parameters():
        parameter.data *= 0.3
    x = torch.randn(2, 40, D, dtype=torch.float64)
    pos, mask = torch.arange(40)[None], torch.zeros(1, 1, 40, 40)
    expected = layer(x, x, pos, pos, mask, causal=True)
    with torch.autocast("cpu", torch.bfloat16):
        cast = layer.float()(x.float(), x.float(), pos, pos, mask, causal=True)
    half = layer.bfloat16()(x.bfloat16(), x.bfloat16(), pos, pos, mask, causal=True)
    for found in (cast, half):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("kind", CONTENT)
def test_a_long_causal_text_is_split(kind, ran, monkeypatch):
    """With gradients, for parts of two sentences and of a few queries."""
    layer = Attention(D, H, 0.0, random(get(kind, **SIZES))).double()
    x = torch.randn(3, T, D, dtype=torch.float64, requires_grad=True)
    found = []
    for size in (blocked.BLOCK, 2 * H * T * T, 2 * H * T):
        monkeypatch.setattr(blocked, "BLOCK", size)
        monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 2)
        out = layer(x, x, POS, POS, None, causal=True)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    assert ran == ["reference", "blocked", "blocked"]
    for results in found[1:]:
        for got, expected in zip(results, found[0], strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    layer(x, x, POS, POS, None)
    assert ran[3:] == ["reference"]


@pytest.mark.parametrize("kind", ["path", "inkling"])
def test_queries_that_are_not_the_last_keys_are_refused(kind):
    attention = MultiheadAttention(D, H, batch_first=True, position=get(kind, **SIZES))
    x, later = torch.randn(1, T, D), LATER
    whole = attention(x, x, x, attn_mask=later)[0]
    pos = {"pos_q": POS[:, 3:], "pos_k": POS}
    torch.testing.assert_close(
        attention(x[:, 3:], x, x, attn_mask=later[3:], **pos)[0], whole[:, 3:]
    )
    pos["pos_q"] = POS[:, 2:4]
    with pytest.raises(ShapeshiftError, match="reads the state of the last Q keys as that of the"):
        attention(x[:, 2:4], x, x, attn_mask=later[2:4], **pos)


def test_a_window_within_a_text_is_refused_where_it_would_be_taken_for_another_text():
    x, window = torch.randn(1, T, D), LATER | (POS.mT - POS >= 3)
    for size in (1, 3):
        path = get("path", **SIZES, conv_size=size)
        attention = MultiheadAttention(D, H, batch_first=True, position=path)
        apart = LATER | (torch.arange(T) // 3).ne(torch.arange(T)[:, None] // 3)
        attention(x, x, x, attn_mask=apart)  # two texts
        if size == 1:
            attention(x, x, x, attn_mask=window)
            continue
        with pytest.raises(ShapeshiftError, match=r"as in a sliding window; .* conv_size=1"):
            attention(x, x, x, attn_mask=window)


def test_constant_gates_are_alibi():
    position = random(FoX(dim=D, num_heads=H))
    nn.init.zeros_(position.gate.weight)
    slopes = -nn.functional.logsigmoid(position.gate.bias)
    q, k, v = torch.randn(3, 2, H, T, E, dtype=torch.float64)
    state = position.state(torch.randn(2, T, D, dtype=torch.float64), POS)
    found = attend(q, k, v, None, position, POS, POS, causal=True, state=state)
    bias = slopes.view(H, 1, 1) * (POS - POS.mT)
    expected = attend(q, k, v, bias, Representation(), POS, POS, causal=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("position", "state", "message"),
    [
        (FoX(dim=D, num_heads=H), None, r"FoX needs the state .*, \(2, 6, F\), got NoneType"),
        (
            Chain(Rotary(head_dim=E), FoX(dim=D, num_heads=H)),
            torch.zeros(1, T, H),
            r"FoX needs .*got float32 \(1, 6, 2\); give state=position\('state', x, pos_k\)",
        ),
        (CoPE(head_dim=E), torch.zeros(2, T, H), "CoPE reads no state, got float32.*leave state"),
    ],
)
def test_a_call_needs_the_state_that_the_kind_reads(position, state, message):
    heads = torch.randn(3, 2, H, T, E)
    with pytest.raises(ShapeshiftError, match=message):
        attend(*heads, None, position, POS, POS, causal=True, state=state)


def test_a_gate_reads_keys_of_the_models_width():
    with pytest.raises(ShapeshiftError, match="FoX reads a key of width 16, and kdim=6"):
        MultiheadAttention(D, H, kdim=6, position=FoX(dim=D, num_heads=H))
    MultiheadAttention(D, H, vdim=6, position=FoX(dim=D, num_heads=H))


def test_what_may_stand_together():
    fox, rotary = random(FoX(dim=D, num_heads=H)), Rotary(head_dim=E)
    x, heads = torch.randn(2, T, D, dtype=torch.float64), torch.randn(3, 2, H, T, E).double()
    chain = Chain(rotary, fox)
    q, k = rotary.rotate(*heads[:2], POS, POS)
    found, expected = (
        attend(q, k, heads[2], None, each, POS, POS, causal=True, state=each.state(x, POS))
        for each in (chain, fox)
    )
    assert torch.equal(found, expected)
    assert chain.causal_only
    Chain(Shaw(num_heads=H, head_dim=E), DeBERTa(**SIZES))
    for reading in (CoPE(head_dim=E), DeBERTa(**SIZES)):
        with pytest.raises(ShapeshiftError, match="Rotary turns the queries that "):
            Chain(rotary, reading)
    with pytest.raises(ShapeshiftError, match=r"FoX and FoX would both keep a state.*leave one"):
        Chain(fox, FoX(dim=D, num_heads=H))
    with pytest.raises(ShapeshiftError, match=r"Lost overrides state, which.*override score"):
        type("Lost", (Representation,), {"state": FoX.state})


def test_gates_that_forget_everything_add_nothing_to_later_keys():
    """Sums from a later key to the query would be above 0: too large for float16, and for a mask
    whose numbers are finite."""
    fox = FoX(dim=D, num_heads=H).requires_grad_(False)
    nn.init.constant_(fox.gate.bias, -40.0)
    x, pos = torch.zeros(1, 2048, D), torch.arange(2048)[None]
    q = torch.zeros(1, H, 2048, E)
    scores = fox("score", torch.zeros(1, H, 2048, 2048), q, q, fox("state", x, pos), pos, pos)
    assert scores.max() == 0
    assert scores[..., 1, 0].max() == pytest.approx(-40.0)
