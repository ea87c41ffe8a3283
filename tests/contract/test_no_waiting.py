"""No training step and no step of decoding makes a GPU wait for the host, or the host for it.

The `meta` device stands for a GPU: its tensors have no numbers, so whatever reads one raises, and
what is made on the CPU and copied is counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from shapeshift.data.batching import Batch, make_batch
from shapeshift.decoding.search import Stepper, beam_search
from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.positions import PRESETS, Scheme

from .conftest import Reads

META = torch.device("meta")


class Elsewhere(TorchDispatchMode):
    """Collects the operators that compute on the CPU, but for single numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.device.type == "cpu" and out.ndim:
            self.operators.append(str(func))
        return out


@pytest.fixture
def batch() -> Batch:
    """Three pairs of different lengths."""
    pairs = ([[5, 6, 7, 8], [5], [6, 7]], [[5, 6], [7, 8, 9, 10, 4], [5]])
    return make_batch(*pairs).to(META)


@torch.no_grad()
def test_no_step_of_decoding_waits(scheme: Scheme, make_model: Callable[..., Transformer]) -> None:
    model = make_model(scheme).to(META)
    source = torch.empty((3, 9), dtype=torch.int64, device=META)
    state = model.start(source, beam=2)
    last = torch.empty(6, dtype=torch.int64, device=META)
    for _ in range(2):
        with Elsewhere() as elsewhere:
            assert state.step(last).shape == (6, 11)
        assert elsewhere.operators == []


def test_no_training_step_waits(
    scheme: Scheme, make_model: Callable[..., Transformer], batch: Batch
) -> None:
    model = make_model(scheme, dropout=0.1).to(META).train()
    with Elsewhere() as elsewhere:
        loss = label_smoothed_loss(
            model, batch.source, batch.target_input, batch.target_output, 0.1, batch.real
        )
        loss.smoothed.backward()
    assert loss.num_tokens == 11
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert elsewhere.operators == []


class CountedStepper:
    """Notes how many reads there had been at each step."""

    def __init__(self, stepper: Stepper, reads: Reads):
        self.stepper, self.reads = stepper, reads
        self.reorder = stepper.reorder
        self.before: list[int] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.before.append(self.reads.count)
        return self.stepper.step(tokens)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("fixed", [False, True], ids=["rows leave", "rows stay"])
def test_search_reads_every_few_steps(
    beam: int, fixed: bool, make_model: Callable[..., Transformer], sentences: tuple[Tensor, Tensor]
) -> None:
    """What a GPU does, counted on a CPU: between checks nothing is read."""
    model = make_model(PRESETS["shape"], vocabulary=1000)
    source, _ = sentences
    with Reads() as reads:
        counted = CountedStepper(model.start(source, beam), reads)
        limits = torch.tensor([14, 6, 11])
        beam_search(counted, limits, beam=beam, check_every=4, fixed_rows=fixed)
    num_reads = [after - before for before, after in itertools.pairwise(counted.before)]
    assert len(num_reads) >= 10
    between = [count for step, count in enumerate(num_reads, 1) if step % 4]
    assert set(between) == {0}
    assert sum(num_reads) > 0, "nothing was counted"


@pytest.mark.parametrize("name", ["ape", "shape", "rope", "nope"])
def test_a_causal_kernel_is_given_no_mask(
    name: str, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FlashAttention takes no mask: in the decoder's self-attention there is none."""
    calls = []

    def spy(*args: Tensor, attn_mask: Tensor | None = None, **rest: Any) -> Tensor:
        calls.append((attn_mask is None, rest.get("is_causal", False)))
        return kernel(*args, attn_mask=attn_mask, **rest)

    kernel = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    model = build(ModelConfig(size="tiny"), PRESETS[name], 11, 11).to(META)
    model(batch.source, batch.target_input)
    layers = len(model.decoder)
    assert calls.count((True, True)) == layers
    assert calls.count((False, False)) == len(model.encoder) + layers  # only padding is masked
