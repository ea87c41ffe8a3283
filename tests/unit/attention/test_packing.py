"""The real tokens of a batch alone: where they go, and what must still see whole sentences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention.packing import Packing
from shapeshift.kernels.attention import SentenceAttention
from shapeshift.model import ModelConfig, Transformer, build, label_smoothed_loss
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.positions import Representation


class Neighbours(Representation):
    """Adds to each query what stands left of it in its sentence."""

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return q + torch.nn.functional.pad(q, (0, 0, 1, 0))[:, :-1], k, v


SOURCE = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [9, 4, 3, 0]])
TARGET_INPUT = torch.tensor([[2, 5, 6], [2, 0, 0], [2, 7, 0]])
TARGET_OUTPUT = torch.tensor([[5, 6, 3], [3, 0, 0], [7, 3, 0]])


def loss(model: Transformer) -> Tensor:
    return label_smoothed_loss(model, SOURCE, TARGET_INPUT, TARGET_OUTPUT, 0.1).smoothed


@pytest.mark.parametrize("position", ["ape", "rpe", "rope", "xpos", "t5", "tupe", "neighbours"])
def test_neither_packing_nor_rows_without_a_token_change_anything(
    position, monkeypatch, ran
) -> None:
    spans = []  # of each attention that the kernel has computed
    init = SentenceAttention.__init__
    monkeypatch.setattr(
        SentenceAttention, "__init__", lambda self, *how: spans.append(how[5]) or init(self, *how)
    )
    config = ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=16, dropout=0.0)
    model = build(config, "nope" if position == "neighbours" else position, 10, 10)
    if position == "neighbours":
        for layer in (*model.encoder, *model.decoder):
            layer.attention.position = Neighbours()
    real = [ids.flatten().nonzero().squeeze(1) for ids in (SOURCE, TARGET_OUTPUT)]
    results = []
    for multiple in (None, 1, 4):
        if multiple is None:
            hidden = model(SOURCE, TARGET_INPUT).flatten(0, 1)[real[1]]
        else:
            sides = zip(real, (SOURCE, TARGET_OUTPUT), strict=True)
            both = [Packing(at, (ids.shape[0], ids.shape[1]), multiple) for at, ids in sides]
            hidden = model(SOURCE, TARGET_INPUT, (both[0], both[1]))
            assert hidden.shape[0] == (6 if multiple == 1 else 8)
        targets = TARGET_OUTPUT.flatten()[real[1]]
        smoothed, nll = linear_cross_entropy(hidden, model.output.weight, targets, 0.1)
        grads = torch.autograd.grad(smoothed, list(model.parameters()), materialize_grads=True)
        results.append((smoothed, nll, *grads))
    for padded, *packed in zip(*results, strict=True):
        for each in packed:
            torch.testing.assert_close(each, padded, rtol=0, atol=1e-4)
    assert set(ran) == ({"cpu"} if kernels.is_available(torch.float32) else {"reference"})
    if kernels.is_available(torch.float32):
        sees_sentences = position in ("tupe", "neighbours")
        assert None in spans
        assert (3 * spans.count(None) > len(spans)) == sees_sentences


def test_half_precision_has_few_numbers_of_rows() -> None:
    rows: set[int] = set()
    model = build(ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=16), "ape", 10, 10)
    for layer in (*model.encoder, *model.decoder):
        layer.feed_forward.inner.register_forward_pre_hook(lambda _, x: rows.add(len(x[0])))
    with torch.autocast("cpu", torch.bfloat16):
        loss(model).backward()
    assert rows == {64}
    loss(model)
    assert rows == {64, 9, 6}  # source and target
