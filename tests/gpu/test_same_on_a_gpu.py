"""What runs on a CPU gives the same on a GPU. `make gpu-check` runs these."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from shapeshift.attention import Call, attend, attend_with_probs, causal_mask, run
from shapeshift.attention.backends import flex, packed, triton
from shapeshift.attention.packing import Packing
from shapeshift.data.batching import make_batch
from shapeshift.data.subwords import EOS
from shapeshift.decoding import recording
from shapeshift.decoding.search import beam_search
from shapeshift.model import ModelConfig, build, label_smoothed_loss, transformer
from shapeshift.model.cache import Slots
from shapeshift.model.transformer import padding_mask
from shapeshift.positions import SCHEMES, Part, Representation, Scheme, Stack, place
from shapeshift.training.config import TrainingConfig
from shapeshift.training.step import TrainingStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VOCABULARY = 40

PACKED = {"_flash_attention_forward", "_efficient_attention_forward"}
"""Operators of attention of packed sentences."""


@pytest.fixture(params=SCHEMES)
def twins(request):
    """One model on the CPU and its copy on the GPU, with a padded batch."""
    torch.manual_seed(0)
    config = ModelConfig(size="tiny", dropout=0.0)
    model = build(config, SCHEMES[request.param], VOCABULARY, VOCABULARY)
    twin = build(config, SCHEMES[request.param], VOCABULARY, VOCABULARY).cuda()
    twin.load_state_dict(model.state_dict())
    source = torch.randint(5, VOCABULARY, (3, 70))
    target = torch.randint(5, VOCABULARY, (3, 60))
    source[1, 40:] = target[2, 30:] = 0
    return model, twin, source, target


def test_loss_and_gradients(twins):
    model, twin, source, target = twins
    for each, device in ((model, "cpu"), (twin, "cuda")):
        batch = (source.to(device), target.to(device), target.to(device))
        label_smoothed_loss(each.eval(), *batch, 0.1).smoothed.backward()  # no offset is drawn
    on_gpu = dict(twin.named_parameters())
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            difference = on_gpu[name].grad.cpu() - parameter.grad
            # Rounding moves a few hidden units across ReLU's zero: compare the whole.
            assert difference.norm() <= 2e-3 * parameter.grad.norm() + 1e-6, name


def test_translations(twins):
    model, twin, source, _ = twins
    found = []
    for each, device in ((model, "cpu"), (twin, "cuda")):
        each.eval()
        limits = torch.full((3,), 20, device=device)
        hypotheses = beam_search(each.start(source.to(device), 4), limits, beam=4)
        found.append([best.log_prob for best, *_ in hypotheses])
    assert found[1] == pytest.approx(found[0], abs=1e-2)


@pytest.mark.parametrize("beam", [1, 4])
def test_recorded_steps(twins, beam, monkeypatch):
    """Steps that are repeated from a record give what single steps give, also with more room."""
    _, twin, source, _ = twins
    twin.output.weight.data[EOS] = 0  # so that no hypothesis ends early
    made, found, record = [], [], recording.record
    monkeypatch.setattr(transformer, "ROOM", 8)
    monkeypatch.setattr(recording, "record", lambda work: made.append(1) or record(work))
    for records in (True, False):
        monkeypatch.setattr(recording, "serves", lambda device: records)  # noqa: B023
        limits = torch.tensor([20, 8, 13], device="cuda")
        hypotheses = beam_search(twin.eval().start(source.cuda(), beam), limits, beam=beam)
        found.append([best.log_prob for best, *_ in hypotheses])
    assert len(made) == 3
    assert found[0] == pytest.approx(found[1], abs=1e-2)


def decode(model, source, length=40):
    limits = torch.full((len(source),), length, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return beam_search(model.start(source, 4), limits, beam=4)


def model_for_decoding():
    torch.manual_seed(0)
    return build(ModelConfig(size="small"), SCHEMES["ape"], 1000, 1000).cuda().eval()


def test_what_waits_is_not_recorded(monkeypatch):
    model = model_for_decoding()
    source = torch.randint(5, 1000, (4, 20), device="cuda")
    expected = decode(model, source)
    take = Slots.take

    def reads(self):
        assert self.last.item() >= -1
        return take(self)

    with monkeypatch.context() as patch:
        patch.setattr(Slots, "take", reads)
        patch.setattr(recording, "record", None)
        again = decode(model_for_decoding(), source)
    assert [x.tokens for (x,) in again] == [x.tokens for (x,) in expected]
    last = decode(model, source)  # and recording goes on
    assert [x.tokens for (x,) in last] == [x.tokens for (x,) in expected]


def test_records_keep_little_memory():
    model, reserved = model_for_decoding(), []
    for n in range(30):
        decode(model, torch.randint(5, 1000, (4 + 3 * (n % 10), 20), device="cuda"), 10)
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[10]


def test_bf16_autocast_is_close(twins):
    _, twin, source, target = twins
    twin.eval()
    batch = (source.cuda(), target.cuda(), target.cuda())
    exact = label_smoothed_loss(twin, *batch, 0.1)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        rough = label_smoothed_loss(twin, *batch, 0.1)
    assert float(rough.nll) == pytest.approx(float(exact.nll), rel=1e-2)


@pytest.mark.parametrize("kind", ["alibi", "t5", "kerple"])
def test_flex_attention(kind, ran, monkeypatch):
    """Beyond a block, with padding and offsets, causal and not, with gradients."""
    monkeypatch.setattr(flex, "FLEX_FROM", flex.BLOCK_SIZE)
    monkeypatch.setattr(flex, "MOST_SCORES", 0)
    monkeypatch.setattr(triton, "MAX_ROWS", 0)  # of numbers of t5
    for causal in (False, True):
        stack = Stack("decoder" if causal else "encoder", 64, 2, 1)
        position = place(Scheme(parts=(Part(kind, "self"),)), stack).self_attention[0].cuda()
        heads = [torch.randn(3, 2, 300, 32, device="cuda", requires_grad=True) for _ in range(3)]
        ids = torch.ones(3, 300, dtype=torch.int64, device="cuda")
        ids[1, 200:] = ids[2, 90:] = 0
        mask = padding_mask(ids, torch.float32)
        pos = torch.arange(300, device="cuda") + torch.tensor([[0], [40], [7]], device="cuda")
        total = mask + causal_mask(300, 300, torch.float32, mask.device) if causal else mask
        tensors = [*heads, *position.parameters()]
        outcomes = []
        for out in (
            attend(*heads, mask, position, pos, pos, causal=causal),
            attend_with_probs(*heads, total, position, pos, pos)[0],
        ):
            outcomes.append([out, *torch.autograd.grad(out.square().mean(), tensors)])
        for one, other in zip(*outcomes, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-4)
    assert ran == ["flex"] * 2


class Operators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def never_waiting() -> Iterator[None]:
    """Let PyTorch raise wherever the host would wait for the GPU."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_no_step_waits(twins):
    _, twin, source, _ = twins
    pairs = [[5, 6, 7, 8], [5], [6, 7]], [[5, 6], [7, 8, 9, 10, 4], [5]]
    batch = make_batch(*pairs).to("cuda")
    step = TrainingStep(twin, TrainingConfig())
    with Operators() as seen:
        step(batch)  # what is loaded at first may wait
    assert seen.names & PACKED
    with never_waiting():
        step(batch)
    last = torch.full((3,), 5, device="cuda")
    with torch.inference_mode():
        state = twin.eval().start(source.cuda())
        state.step(last)
        with never_waiting():
            state.step(last)
        state = twin.start(source.cuda())
        state.reserve(1, 20)
        state.step(last)
        with never_waiting():
            state.step(last)


@pytest.mark.parametrize("scheme", ["ape", "rpe", "alibi", "rope"])
def test_compiled_layers(scheme):
    """One graph for all lengths gives the gradients of the plain layers."""
    steps = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = build(
            ModelConfig(size="tiny", dropout=0.0), SCHEMES[scheme], VOCABULARY, VOCABULARY
        )
        config = TrainingConfig(precision="fp32", compile=compiled)
        steps.append(TrainingStep(model.cuda(), config))
    counters = torch._dynamo.utils.counters
    counters.clear()
    for length in (30, 200, 140):
        pairs = [[[*range(5, 35)] * 7] * 3 for _ in range(2)]
        batch = make_batch(*([ids[: length - n] for n, ids in enumerate(side)] for side in pairs))
        grads = []
        for step in steps:
            step.add_gradient(batch.to("cuda"), batch.num_target_tokens)
            grads.append([x.grad.clone() for x in step.model.parameters() if x.grad is not None])
            step.optimizer.zero_grad()
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert counters["stats"]["unique_graphs"] > 0


def test_causal_attention_is_one_kernel_without_a_mask():
    model = build(ModelConfig(size="small"), SCHEMES["rope"], VOCABULARY, VOCABULARY).cuda()
    ids = torch.randint(5, VOCABULARY, (3, 70), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16), Operators() as seen:
        model(ids, ids)
    fast = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"}
    assert seen.names & fast
    assert "_scaled_dot_product_attention_math" not in seen.names


def packed_heads(dtype, *sides):
    """Sentences of these lengths, the longest first, on the sides of queries and keys, and
    projections `(N, 2 · 64)` of queries, keys and values."""
    generator = torch.Generator("cuda").manual_seed(0)
    sentences = []
    for lengths in sides:
        places = [n * lengths[0] + t for n, size in enumerate(lengths) for t in range(size)]
        places = torch.tensor(places, device="cuda")
        sentences.append(Packing(places, (len(lengths), lengths[0])))
    rows = [
        torch.randn(sum(lengths), 2 * 64, device="cuda", dtype=dtype, generator=generator)
        for lengths in (sides[0], sides[1], sides[1])
    ]
    return tuple(sentences), [x.requires_grad_() for x in rows]


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("dtype", "longest", "operator", "tolerance"),
    [
        (torch.bfloat16, 300, "_flash_attention_forward", 1e-2),
        (torch.float16, 300, "_flash_attention_forward", 2e-3),
        (torch.bfloat16, 100, "_efficient_attention_forward", 1e-2),
        (torch.float32, 300, "_efficient_attention_forward", 1e-4),
    ],
)
def test_kernels_of_packed_sentences(dtype, longest, operator, tolerance, causal, ran):
    lengths = [longest, 1, 70, 33, longest - 1]
    others = lengths if causal else [longest - 17, 80, 2, 64, 1]
    packing, rows = packed_heads(dtype, lengths, others)
    pos = [torch.arange(side.width, device="cuda")[None] for side in packing]
    call = Call(rows, Representation(), *pos, num_heads=2, packing=packing, causal=causal)
    with Operators() as seen:
        out = run(call).flatten(1)
    assert ran == ["packed"]
    assert seen.names & PACKED == {operator}
    weights = torch.randn_like(out)
    got = [out, *torch.autograd.grad(out, rows, weights)]
    exact = [x.detach().double().requires_grad_() for x in rows]
    heads = [x.view(1, -1, 2, 64).transpose(1, 2) for x in exact]
    q, k, v = (x.split(n, dim=2) for x, n in zip(heads, (lengths, others, others), strict=True))
    sentences = []
    for query, key, value in zip(q, k, v, strict=True):
        scores = query @ key.transpose(-1, -2) / 8
        if causal:
            scores += causal_mask(*scores.shape[-2:], scores.dtype, scores.device)
        sentences.append((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))
    expected = torch.cat(sentences, dim=1)[0]
    expected = [expected, *torch.autograd.grad(expected, exact, weights.double())]
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == dtype
        assert (one - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("longest", [300, 40])
def test_dropout_of_packed_sentences_has_its_gradients(longest, ran):
    """The output is linear in the values: were other probabilities dropped in the backward pass,
    the two sums would differ by half."""
    packing, rows = packed_heads(torch.bfloat16, [longest, 1, 33], [longest, 20, 30])
    pos = torch.arange(longest, device="cuda")[None]
    how = {"num_heads": 2, "packing": packing, "dropout_p": 0.5}
    call = Call(rows, Representation(), pos, pos, **how)
    out, again = (run(call).flatten(1) for _ in range(2))
    assert ran == ["packed"] * 2
    assert (out - again).norm() > 0.1 * out.norm()
    (grad,) = torch.autograd.grad(out, rows[2], out.detach())
    square = out.double().square().sum()
    assert abs((grad.double() * rows[2]).sum() / square - 1) < 0.02


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])
@pytest.mark.parametrize("length", [200, 30])
@pytest.mark.parametrize("scheme", ["ape", "rope", "rpe", "alibi"])
def test_packed_loss_and_gradients_in_half_precision(scheme, length, padded, monkeypatch):
    """Without padding in the layers, bf16 is no further from float32 than with it."""
    served, name = [], "_flash" if length > 128 else "_efficient"
    kernel = getattr(packed, name)
    monkeypatch.setattr(packed, name, lambda *how: served.append(1) or kernel(*how))
    torch.manual_seed(0)
    model = build(ModelConfig(size="tiny", dropout=0.0), SCHEMES[scheme], VOCABULARY, VOCABULARY)
    model.cuda().train()
    source, target = torch.randint(5, VOCABULARY, (2, 4, length), device="cuda")
    target = target[:, : length - 7]
    if padded:
        source[1, length // 2 :] = source[2, 3:] = target[1, 1:] = target[3, length // 3 :] = 0
    found = []
    for packs, half in ((False, False), (False, True), (True, True)):
        model.packs = packs
        model.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
            loss = label_smoothed_loss(model, source, target, target, 0.1)
        loss.smoothed.backward()
        assert packs or not served
        grads = [x.grad.flatten() for x in model.parameters() if x.grad is not None]
        found.append((loss.smoothed.detach(), torch.cat(grads)))
    exact, rough, without = found
    assert len(served) == (6 if scheme in ("ape", "rope") else 2)  # all, or those to the source
    assert abs(without[0] / exact[0] - 1) < 1e-2
    error = (without[1] - exact[1]).norm()
    assert error <= 1.5 * (rough[1] - exact[1]).norm()
    assert error <= 0.1 * exact[1].norm()


@pytest.mark.parametrize("kind", ["alibi", "t5"])
def test_a_bias_of_all_pairs_is_never_in_memory(kind, ran):
    length, heads = 8192, 8
    stack = Stack("encoder", 512, heads, 1)
    position = place(Scheme(parts=(Part(kind, "self"),)), stack).self_attention[0].cuda()
    q, k, v = (
        torch.randn(1, heads, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    pos = torch.arange(length, device="cuda")[None]
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    attend(q, k, v, None, position, pos, pos).sum().backward()
    assert ran == [{"alibi": "flex", "t5": "triton"}[kind]]
    used = torch.cuda.max_memory_allocated() - before
    assert used < heads * length * length * 2 / 4
