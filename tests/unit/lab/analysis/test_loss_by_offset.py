import math

import pytest
import torch

from shapeshift.data.batching import collate
from shapeshift.data.config import BatchConfig
from shapeshift.decoding.scoring import score_references
from shapeshift.lab.analysis.loss_by_offset import compute

PAIRS = [
    ([5, 6, 7, 8, 9, 10], [11, 12, 13]),
    ([14, 15], [16, 17, 18, 19]),
    ([20, 21, 22, 23, 5, 6, 7], [8]),
    ([9], [10, 11]),
]
SMALL = BatchConfig(max_tokens=16)


@pytest.fixture
def store(make_store):
    return make_store(PAIRS)


def measured(*given, **options):
    """Return metric → the values of it."""
    values = {}
    for each in compute(*given, **options):
        values.setdefault(each.metric, []).append(each.value)
    return values


def losses(model, store, offsets):
    return measured(model, store, offsets, batch=SMALL)["shifted_loss"]


def test_the_loss_of_a_uniform_model_is_the_logarithm_of_the_vocabulary(make_model, store):
    model = make_model("ape")
    with torch.no_grad():
        model.output.weight.zero_()
    assert losses(model, store, (0, 9)) == pytest.approx([math.log(24)] * 2, abs=1e-12)


def test_the_loss_is_the_mean_over_all_tokens_of_all_batches(make_model, store):
    model = make_model("ape")
    scores = score_references(model, collate(store, range(4)))
    num_tokens = sum(len(target) + 1 for _, target in PAIRS)
    expected = -float(scores.sum()) / num_tokens
    assert losses(model, store, (0,)) == pytest.approx([expected], abs=1e-6)


def test_a_shift_changes_sinusoidal_positions_and_leaves_relative_ones(make_model, store):
    ape = losses(make_model("ape"), store, (0, 40, 250))
    rpe = losses(make_model("rpe"), store, (0, 40, 250))
    assert len({round(loss, 4) for loss in ape}) == 3
    assert rpe == pytest.approx([rpe[0]] * 3, abs=1e-10)


def test_a_random_order_matters_to_a_model_with_positions_only(make_model, store):
    bag = measured(make_model("nope"), store, (0,), batch=SMALL)
    assert bag["shuffled_loss"] == pytest.approx(bag["plain_loss"], abs=1e-10)
    assert bag["shifted_loss"] == pytest.approx(bag["plain_loss"], abs=1e-12)
    ordered = measured(make_model("rpe"), store, (), batch=SMALL)
    assert abs(ordered["shuffled_loss"][0] - ordered["plain_loss"][0]) > 1e-5


def test_the_random_order_depends_on_seed_and_pair_alone(make_model, store):
    model = make_model("ape")
    once, wide, other = (
        measured(model, store, (), batch=BatchConfig(max_tokens=tokens), seed=seed)["shuffled_loss"]
        for tokens, seed in ((16, 1), (4096, 1), (16, 2))
    )
    assert once == pytest.approx(wide, abs=1e-12)
    assert once != pytest.approx(other, abs=1e-6)
