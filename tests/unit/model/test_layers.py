"""What layers keep for the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.model import (
    ModelConfig,
    Transformer,
    attention,
    build,
    label_smoothed_loss,
    layers,
    recompute,
)
from shapeshift.positions import PRESETS


def loss_of(model: Transformer, dtype: torch.dtype) -> Tensor:
    ids = torch.randint(5, 9, (2, 4), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return label_smoothed_loss(model, ids, ids, ids, 0.1).smoothed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("scheme", ["ape", "t5", "rpe"])
def test_norms_and_heads_are_not_kept_but_computed_again_to_the_same_bits(
    scheme: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(
        size="tiny", dim=8, num_heads=2, ff_dim=16, encoder_layers=1, decoder_layers=1
    )
    torch.manual_seed(0)
    model = build(config, PRESETS[scheme], 9, 9)
    tensors: list[weakref.ref[Tensor]] = []

    @contextmanager
    def spy(x: Tensor, again: Callable[[], Tensor]) -> Iterator[None]:
        tensors.append(weakref.ref(x))
        with recompute.recomputed(x, again):
            yield

    for module in (layers, attention):
        monkeypatch.setattr(module, "recomputed", spy)
    loss = loss_of(model, dtype)
    assert [each() for each in tensors] == [None] * (
        5 + 3 * kernels.is_available(dtype)
    )  # norms, attentions
    fresh = torch.autograd.grad(loss, [*model.parameters()])
    for module in (layers, attention):
        monkeypatch.setattr(module, "recomputed", lambda x, again: nullcontext())
    kept = torch.autograd.grad(loss_of(model, dtype), [*model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(fresh, kept, strict=True))
