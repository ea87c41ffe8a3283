import math

import pytest
import torch

from shapeshift.data.batching import collate
from shapeshift.data.config import BatchConfig
from shapeshift.decoding.scoring import score_references
from shapeshift.lab.analysis.loss_by_offset import in_order, mean_loss

PAIRS = [
    ([5, 6, 7, 8, 9, 10], [11, 12, 13]),
    ([14, 15], [16, 17, 18, 19]),
    ([20, 21, 22, 23, 5, 6, 7], [8]),
    ([9], [10, 11]),
]


@pytest.fixture
def losses(make_store):
    store = make_store(PAIRS)

    def measure(model, *offsets):
        batch = BatchConfig(max_tokens=16)
        return [mean_loss(model, in_order(store, batch=batch), offset) for offset in offsets]

    return measure


def test_the_loss_of_a_uniform_model_is_the_logarithm_of_the_vocabulary(make_model, losses):
    model = make_model("ape")
    with torch.no_grad():
        model.output.weight.zero_()
    assert losses(model, 0, 9) == pytest.approx([math.log(24)] * 2, abs=1e-12)


def test_the_loss_is_the_mean_over_all_tokens_of_all_batches(make_model, make_store, losses):
    model = make_model("ape")
    scores = score_references(model, collate(make_store(PAIRS, "other"), range(4)))
    num_tokens = sum(len(target) + 1 for _, target in PAIRS)
    assert losses(model, 0) == pytest.approx([-float(scores.sum()) / num_tokens], abs=1e-6)


def test_a_shift_changes_sinusoidal_positions_and_leaves_relative_ones(make_model, losses):
    ape, rpe = (losses(make_model(name), 0, 40, 250) for name in ("ape", "rpe"))
    assert len({round(loss, 4) for loss in ape}) == 3
    assert rpe == pytest.approx([rpe[0]] * 3, abs=1e-10)
