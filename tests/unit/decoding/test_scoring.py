"""Forced scoring of large batches and in half precision; that search agrees is in `contract`."""

import pytest
import torch

from shapeshift.data.batching import make_batch
from shapeshift.decoding import scoring
from shapeshift.decoding.scoring import score_references
from shapeshift.model import ModelConfig, build


def test_pieces_of_a_large_batch_are_put_together_in_order(monkeypatch):
    model = build(ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=8), "ape", 9, 9)
    targets = [[4 + (i + t) % 5 for t in range(1 + i % 7)] for i in range(12)]
    batch = make_batch([[4 + i % 5] for i in range(12)], targets)
    whole = score_references(model, batch)
    assert (whole != 0).sum() == sum(len(target) + 1 for target in targets)
    monkeypatch.setattr(scoring, "_TOKENS_AT_ONCE", 36)
    torch.testing.assert_close(score_references(model, batch), whole)
    assert model.training


def test_half_precision_is_normalised_in_single():
    model = build(ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=8), "ape", 2000, 2000)
    model.bfloat16().eval()
    batch = make_batch([[4]], [[5, 6, 7]])
    scores = score_references(model, batch)
    logits = model.project(model(batch.source, batch.target_input)).double()[0]
    expected = logits.log_softmax(-1).gather(1, batch.target_output.T).T
    assert scores.dtype == torch.float32
    assert scores.tolist()[0] == pytest.approx(expected.tolist()[0], rel=1e-5)
