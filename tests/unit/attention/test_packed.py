"""Packed sentences: on a CPU, and on a GPU without one, where a loop over sentences stands for
PyTorch's kernels, or they run on the meta device, where they compute shapes."""

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention import Call, backends, choose, recording
from shapeshift.attention.backends import packed
from shapeshift.attention.backends.packed import SHORT
from shapeshift.attention.packing import Packing
from shapeshift.kernels.attention import SentenceAttention
from shapeshift.model import Loss, ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.model import loss as loss_module
from shapeshift.positions import (
    SCHEMES,
    ALiBi,
    Part,
    PositionIds,
    Representation,
    Rotary,
    Scheme,
    Shaw,
    Sinusoidal,
)

SOURCE = torch.tensor([[5, 6, 7, 8, 9, 3], [8, 3, 0, 0, 0, 0], [9, 4, 7, 3, 0, 0]])
TARGET_INPUT = torch.tensor([[2, 5, 6, 8], [2, 0, 0, 0], [2, 7, 4, 0]])
TARGET_OUTPUT = torch.tensor([[5, 6, 8, 3], [3, 0, 0, 0], [7, 4, 3, 0]])


def small(scheme: Scheme | str) -> Transformer:
    config = ModelConfig(size="tiny", dim=32, num_heads=2, ff_dim=48, dropout=0.0)
    return build(config, scheme, 12, 12)


def loss_of(model: Transformer) -> Loss:
    return label_smoothed_loss(model, SOURCE, TARGET_INPUT, TARGET_OUTPUT, 0.1)


@pytest.mark.skipif(not kernels.is_available(torch.float32), reason="no compiled kernels")
@pytest.mark.parametrize(
    ("scheme", "number"),
    [("ape", 0), ("rpe", 0), ("rope", 0), ("xpos", 0), ("t5", 0), ("tupe", 4), ("less-feeding", 2)],
)
def test_the_kernel_reads_packed_sentences_unless_a_hook_needs_whole_ones(
    scheme, number, monkeypatch
):
    """Of six attentions, `number` have heads or inputs that are unpacked."""
    spans, init = [], SentenceAttention.__init__

    def spy(self, *how):
        spans.append(how[5])
        init(self, *how)

    monkeypatch.setattr(SentenceAttention, "__init__", spy)
    loss_of(small(scheme))
    assert len(spans) == 6
    assert spans.count(None) == number


def test_half_precision_has_few_numbers_of_rows():
    rows: set[int] = set()
    model = small("ape")
    for layer in (*model.encoder, *model.decoder):
        layer.feed_forward.inner.register_forward_pre_hook(lambda _, x: rows.add(len(x[0])))
    with torch.autocast("cpu", torch.bfloat16):
        loss_of(model).smoothed.backward()
    assert rows == {64}
    loss_of(model)
    assert rows == {64, 12, 8}  # source and target


YARN = {"scaling": "yarn", "factor": 4.0, "original_length": 16}


def at_self(kind: str, **options: object) -> Part:
    return Part(kind, "self", options=options)


SHIFTED = Scheme(PositionIds("shifted"), (at_self("rotary"), Part("rotary", "cross")))
CASES = {  # and how many of six attentions, two of them to the source, the kernels compute
    "ape": (SCHEMES["ape"], 6),
    "rope": (SCHEMES["rope"], 6),
    "xpos": (SCHEMES["xpos"], 6),
    "rpe": (SCHEMES["rpe"], 2),
    "alibi": (SCHEMES["alibi"], 2),
    "tupe": (SCHEMES["tupe"], 2),
    "randomized": (SCHEMES["randomized"], 6),
    "an offset each": (SHIFTED, 6),
    "half of the channels": (Scheme(parts=(at_self("rotary", pairs="halves", fraction=0.5),)), 6),
    "a part of the channels, and a scale": (
        Scheme(parts=(at_self("rotary", fraction=0.5, **YARN),)),
        6,
    ),
    "inputs": (Scheme(parts=(at_self("sinusoidal"),)), 2),
    "first layers": (SCHEMES["less-feeding-cross-pe"], 3),
}


def by_sentence(q: Tensor, k: Tensor, v: Tensor, where: packed.Where, causal: bool) -> Tensor:
    """Attention `(N, H, E)` in float64, one sentence and query after the other."""
    begin_q, begin_k = (x.tolist() for x in where[:2])
    assert [begin_q[-1], begin_k[-1]] == [len(q), len(k)]
    out = []
    for b in range(len(begin_q) - 1):
        keys, values = (x[begin_k[b] : begin_k[b + 1]].double() for x in (k, v))
        queries = q[begin_q[b] : begin_q[b + 1]].double()
        assert len(queries) <= where[2]
        assert len(keys) <= where[3]
        for n, query in enumerate(queries):
            seen = n + 1 if causal else len(keys)
            scores = torch.einsum("he,khe->hk", query, keys[:seen]) / q.shape[-1] ** 0.5
            out.append(torch.einsum("hk,khe->he", scores.softmax(-1), values[:seen]))
    return torch.stack(out).to(q.dtype)


@pytest.fixture
def calls(monkeypatch):
    """Let the CPU be a GPU whose kernel is a loop; return which of its calls were causal."""
    calls: list[bool] = []

    def run(q, k, v, where, causal):
        calls.append(causal)
        return by_sentence(q, k, v, where, causal)

    monkeypatch.setattr(Call, "has_varlen", True)
    monkeypatch.setattr(loss_module, "has_varlen", lambda _: True)
    monkeypatch.setattr(packed, "_efficient", run)
    return calls


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("name", CASES)
def test_a_model_has_the_loss_and_gradients_of_padded_sentences(name, padded, calls, ran):
    scheme, expected = CASES[name]
    torch.manual_seed(0)
    model = small(scheme).train()
    batch = SOURCE, TARGET_INPUT, TARGET_OUTPUT
    if not padded:
        batch = tuple(ids.masked_fill(ids == 0, 7) for ids in batch)
    found = []
    for packs in (True, False):
        model.packs = packs
        model.zero_grad()
        torch.manual_seed(1)  # of shifted and randomized positions
        loss = label_smoothed_loss(model, *batch, 0.1)
        loss.smoothed.backward()
        assert len(calls) == ran.count("packed") == expected
        found.append([loss.smoothed, loss.nll, *(x.grad for x in model.parameters())])
    assert sum(calls) == {6: 2, 3: 1, 2: 0}[expected]  # causal
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


def test_recorded_probabilities_are_those_of_padded_sentences(calls, ran):
    with recording() as probs:
        loss_of(small("ape"))
    assert calls == []
    assert ran == ["reference"] * 6
    assert [x.shape for x in probs[:2]] == [(3, 2, 6, 6)] * 2


def test_what_the_kernels_cannot_do_is_left_to_others(monkeypatch):
    monkeypatch.setattr(packed, "_efficient", lambda q, *_: q)
    monkeypatch.setattr(packed, "_flash", lambda q, *_: q + 1)
    monkeypatch.setattr(Call, "has_varlen", True)
    sides = Packing(torch.arange(3), (1, 3)), Packing(torch.arange(3), (1, 3))
    pos = torch.arange(3)[None]

    def run(dtype=torch.bfloat16, width=64, dropout_p=0.0, longest=SHORT, position=None):
        sides[0].longest = longest
        how = {"num_heads": 2, "packing": sides, "dropout_p": dropout_p}
        rows = torch.zeros(3, 3 * 2 * width, dtype=dtype)
        call = Call([rows], position or Representation(), pos, pos, **how)
        if choose(call) != "packed":
            return None
        out = backends.run(call)
        assert out.shape == (3, 2, width)
        return float(out.mean())

    efficient, flash = 0.0, 1.0
    assert run() == efficient
    assert run(longest=SHORT + 1) == run(torch.float16, longest=SHORT + 1) == flash
    assert run(dropout_p=0.1) == flash
    assert run(torch.float32, longest=SHORT + 1) == efficient
    assert run(torch.float32, dropout_p=0.1) is None
    assert run(torch.float64) is None
    assert run(width=12) is None
    assert run(width=256) is None
    assert run(position=Sinusoidal(dim=128)) == efficient
    assert run(position=Rotary(head_dim=64, **YARN)) == efficient
    assert run(position=Rotary(head_dim=64, fraction=0.5, **YARN)) == efficient
    assert run(position=OwnRotation(head_dim=64)) is None
    assert run(position=ALiBi(num_heads=2)) is None
    assert run(position=Shaw(num_heads=2, head_dim=64, add_to="values")) is None


class OwnRotation(Rotary):
    """Rotates by a hook of its own, which needs padded heads."""

    def rotate(self, q, k, pos_q, pos_k):
        return super().rotate(q, k, pos_q, pos_k)


META = torch.device("meta")


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("dtype", "length", "dropout_p", "name"),
    [
        (torch.bfloat16, SHORT + 1, 0.0, "_flash"),
        (torch.float16, 3, 0.1, "_flash"),
        (torch.bfloat16, SHORT, 0.0, "_efficient"),
        (torch.float32, SHORT + 1, 0.0, "_efficient"),
    ],
)
def test_the_operators_take_what_they_are_given(
    dtype, length, dropout_p, name, causal, monkeypatch, ran
):
    called = []
    run = getattr(packed, name)
    monkeypatch.setattr(Call, "has_varlen", True)
    monkeypatch.setattr(packed, name, lambda *how: called.append(1) or run(*how))
    q = torch.empty(150, 2 * 16, dtype=dtype, device=META, requires_grad=True)
    both = torch.empty(160, 2 * 2 * 16, dtype=dtype, device=META, requires_grad=True)
    real = torch.empty(160, dtype=torch.int64, device=META)
    sides = [Packing(real[:n], (4, length)) for n in (150, 160)]
    assert [(x.bounds.dtype, x.bounds.shape) for x in sides] == [(torch.int32, (5,))] * 2
    pos = torch.empty(4, length, dtype=torch.int64, device=META)
    how = {"num_heads": 2, "packing": (sides[0], sides[1]), "dropout_p": dropout_p}
    call = Call([q, both], Rotary(head_dim=16), pos, pos, causal=causal, **how)
    out = backends.run(call)
    assert ran == ["packed"]
    assert called
    assert (out.dtype, out.shape) == (dtype, (150, 2, 16))
    assert out.is_contiguous()
    grads = torch.autograd.grad(out.sum(), (q, both))
    assert [(x.dtype, x.shape) for x in grads] == [(dtype, q.shape), (dtype, both.shape)]


def test_sentences():
    """No sentence is longer than the batch has tokens, which the kernels demand of `longest`."""
    ids = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0]])
    sides = [ids, ids[1:2], torch.ones(2, 3)]
    found = []
    for side in sides:
        packing = Packing(side.flatten().nonzero().squeeze(1), (side.shape[0], side.shape[1]))
        found.append((packing.bounds.tolist(), packing.longest))
    assert found == [([0, 2, 3, 6], 4), ([0, 1], 1), ([0, 3, 6], 3)]
