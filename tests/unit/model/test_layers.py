"""What layers keep for the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss, layers
from shapeshift.positions import PRESETS


def loss_of(model: Transformer, dtype: torch.dtype) -> Tensor:
    ids = torch.randint(5, 9, (2, 4), generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        return label_smoothed_loss(model, ids, ids, ids, 0.1).smoothed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("scheme", ["ape", "rpe"])
def test_outputs_of_norms_are_not_kept_but_computed_again_to_the_same_bits(
    scheme: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(
        size="tiny", dim=8, num_heads=2, ff_dim=16, encoder_layers=1, decoder_layers=1
    )
    torch.manual_seed(0)
    model, normed = build(config, PRESETS[scheme], 9, 9), layers._normed
    outputs: list[weakref.ref[Tensor]] = []

    @contextmanager
    def spy(norm: nn.LayerNorm, x: Tensor) -> Iterator[Tensor]:
        with normed(norm, x) as out:
            outputs.append(weakref.ref(out))
            yield out

    monkeypatch.setattr(layers, "_normed", spy)
    loss = loss_of(model, dtype)
    assert [each() for each in outputs] == [None] * 5
    fresh = torch.autograd.grad(loss, [*model.parameters()])
    monkeypatch.setattr(layers, "_normed", lambda norm, x: nullcontext(norm(x)))
    kept = torch.autograd.grad(loss_of(model, dtype), [*model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(fresh, kept, strict=True))
