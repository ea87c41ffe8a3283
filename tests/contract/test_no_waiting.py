"""No training step and no step of decoding makes a GPU wait for the host, or the host for it.

The `meta` device stands for a GPU: its tensors have no numbers, so whatever reads one raises, and
what is made on the CPU and copied is counted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention import Call
from shapeshift.data.batching import make_batch
from shapeshift.decoding import recording
from shapeshift.decoding.search import beam_search
from shapeshift.model import DecoderState, ModelConfig, build, label_smoothed_loss
from shapeshift.model import loss as loss_module
from shapeshift.model.attention import Attention
from shapeshift.positions import SCHEMES, Part, Scheme
from shapeshift.positions.base import AT_ATTENTION

from .conftest import READS, Watch

META = torch.device("meta")
ONE_LAYER = {"encoder_layers": 1, "decoder_layers": 1}


@contextmanager
def nothing_on_the_cpu() -> Iterator[None]:
    """Assert that no operator computes on the CPU, but for single numbers."""
    operators = []

    def see(operator, _, out):
        if isinstance(out, Tensor) and out.device.type == "cpu" and out.ndim:
            operators.append(str(operator))

    with Watch(see):
        yield
    assert operators == []


@pytest.fixture
def batch():
    """Three pairs of different lengths."""
    pairs = ([[5, 6, 7, 8], [5], [6, 7]], [[5, 6], [7, 8, 9, 10, 4], [5]])
    return make_batch(*pairs).to(META)


@torch.no_grad()
@pytest.mark.parametrize("reserved", [False, True], ids=["growing", "reserved"])
def test_no_step_of_decoding_waits(reserved, varied_scheme, make_model):
    model = make_model(varied_scheme, **ONE_LAYER).to(META)
    source = torch.empty((3, 9), dtype=torch.int64, device=META)
    state = model.start(source, beam=2)
    if reserved:
        if not state.reserves:
            pytest.skip("position ids depend on the tokens, or a kind has a state")
        state.reserve(1, 12)
    last = torch.empty(6, dtype=torch.int64, device=META)
    for module in model.modules():
        for name in {"_borders", "_theta"} & vars(module).keys():  # copied once to another device
            setattr(module, name, getattr(module, name).to(META))
    for _ in range(2):
        with nothing_on_the_cpu(), recording._Waits() as waits:
            assert state.step(last).shape == (6, 11)
    assert not waits.found


def test_reserved_places_are_no_more_than_positions(make_model):
    """On a GPU the length says which positions there are, for to read them would wait."""
    tupe = Scheme(parts=(Part("tupe", options={"num_positions": 100}),))
    model = make_model(tupe).to(META)
    state = model.start(torch.empty((3, 9), dtype=torch.int64, device=META))
    assert state.reserve(65, 100) == 100
    assert state.step(torch.empty(3, dtype=torch.int64, device=META)).shape == (3, 11)


def test_no_training_step_waits(varied_scheme, make_model, batch):
    model = make_model(varied_scheme, **ONE_LAYER, dropout=0.1).to(META).train()
    with nothing_on_the_cpu():
        loss = label_smoothed_loss(
            model, batch.source, batch.target_input, batch.target_output, 0.1, batch.real
        )
        loss.smoothed.backward()
    assert loss.num_tokens == 11
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_no_training_step_without_padding_waits(scheme, make_model, batch, monkeypatch, ran):
    """As on a GPU, where attention has kernels of packed sentences."""
    operators = []
    monkeypatch.setattr(Call, "has_varlen", True)
    monkeypatch.setattr(loss_module, "has_varlen", lambda _: True)
    model = make_model(scheme, **ONE_LAYER, dropout=0.1).to(META, torch.bfloat16).train()
    ids = batch.source, batch.target_input, batch.target_output
    with nothing_on_the_cpu(), Watch(lambda operator, *_: operators.append(operator)):
        label_smoothed_loss(model, *ids, 0.1, batch.real).smoothed.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    aten = torch.ops.aten
    forward = operators.count(aten._efficient_attention_forward.default)
    assert forward == operators.count(aten._efficient_attention_backward.default)
    attentions = [x for x in model.modules() if isinstance(x, Attention)]
    plain = [x for x in attentions if not any(map(x.position.acts, AT_ATTENTION))]
    assert len(plain) <= forward <= len(attentions)
    assert ran.count("packed") == forward


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("fixed", [False, True], ids=["rows leave", "rows stay"])
def test_search_reads_every_few_steps(beam, fixed, make_model, sentences):
    """What a GPU does, counted on a CPU: between checks nothing is read."""
    model = make_model(SCHEMES["shape"], vocabulary=1000)
    source, _ = sentences
    num_reads = [0]  # after each step

    class Counted(DecoderState):
        def step(self, tokens):
            num_reads.append(0)
            return super().step(tokens)

        def _check_range(self, rows):
            """Rows are checked on a CPU alone."""

    def see(operator, *_):
        num_reads[-1] += operator.overloadpacket.__name__ in READS

    with torch.inference_mode():
        state = Counted(model, model.encode(source), beam)
    limits = torch.tensor([14, 6, 11])
    with Watch(see):
        beam_search(state, limits, beam=beam, check_every=4, fixed_rows=fixed)
    num_reads = num_reads[1:-1]
    assert len(num_reads) >= 10
    between = [count for step, count in enumerate(num_reads, 1) if step % 4]
    assert set(between) == {0}
    assert sum(num_reads) > 0, "nothing was counted"


@pytest.mark.parametrize("name", ["ape", "shape", "rope", "nope"])
def test_a_causal_kernel_is_given_no_mask(name, batch, monkeypatch):
    """FlashAttention takes no mask: in the decoder's self-attention there is none."""
    calls = []

    def spy(*args, attn_mask=None, **rest):
        calls.append((attn_mask is None, rest.get("is_causal", False)))
        return kernel(*args, attn_mask=attn_mask, **rest)

    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = build(ModelConfig(size="tiny"), SCHEMES[name], 11, 11).to(META)
    model(batch.source, batch.target_input)
    layers = len(model.decoder)
    assert calls.count((True, True)) == layers
    assert calls.count((False, False)) == len(model.encoder) + layers  # only padding is masked


@pytest.mark.parametrize("scheme", ["ape", "rpe", "t5", "alibi"])
def test_in_half_precision_no_mask_casts_the_scores(scheme, monkeypatch):
    """A sum in place of two tensors of different types casts the larger one twice."""
    monkeypatch.setattr(kernels, "serves", lambda _: False)  # as on a GPU
    model = build(ModelConfig(size="tiny"), scheme, 20, 20)
    is_mixed = []

    def see(operator, given, _):
        arguments = given[0]
        if operator is torch.ops.aten.add_.Tensor and isinstance(arguments[1], Tensor):
            is_mixed.append(arguments[0].dtype != arguments[1].dtype)

    source = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), Watch(see):
        model(source, torch.tensor([[2, 5, 6], [2, 7, 0]]))
    assert is_mixed
    assert not any(is_mixed)
