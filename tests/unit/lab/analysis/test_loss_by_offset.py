import math

import pytest
import torch

from shapeshift.data.batching import collate
from shapeshift.data.config import BatchConfig
from shapeshift.decoding.scoring import score_references
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.loss_by_offset import (
    compute,
    order_sensitivity,
)

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


def losses(model, store, offsets, **options):
    [system] = compute({"it": model}, store, offsets, batch=SMALL, **options).systems
    return system.losses


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


@pytest.mark.parametrize("side", ["both", "source", "target"])
def test_a_shift_changes_sinusoidal_positions_and_leaves_relative_ones(side, make_model, store):
    ape = losses(make_model("ape"), store, (0, 40, 250), side=side)
    rpe = losses(make_model("rpe"), store, (0, 40, 250), side=side)
    assert len({round(loss, 4) for loss in ape}) == 3
    assert rpe == pytest.approx([rpe[0]] * 3, abs=1e-10)


def test_the_side_says_which_positions_are_shifted(make_model, store):
    model = make_model("ape")
    by_side = {side: losses(model, store, (40,), side=side)[0] for side in ("source", "target")}
    assert by_side["source"] != pytest.approx(by_side["target"], abs=1e-6)


def test_a_bag_of_words_does_not_mind_a_random_order(make_model, store):
    bag = order_sensitivity(make_model("nope"), store, batch=SMALL)
    assert bag.difference == pytest.approx(0, abs=1e-10)
    # By itself: the decoder of a model without positions still sees a prefix grow.
    assert bag.plain == pytest.approx(losses(make_model("nope"), store, (0,))[0], abs=1e-12)


def test_a_model_with_positions_does(make_model, store):
    model = make_model("rpe")
    assert abs(order_sensitivity(model, store, batch=SMALL).difference) > 1e-5


def test_the_random_order_depends_on_seed_and_pair_alone(make_model, store):
    model = make_model("ape")
    once, wide, other = (
        order_sensitivity(model, store, batch=BatchConfig(max_tokens=tokens), seed=seed).shuffled
        for tokens, seed in ((16, 1), (4096, 1), (16, 2))
    )
    assert once == pytest.approx(wide, abs=1e-12)
    assert once != pytest.approx(other, abs=1e-6)


def test_a_store_of_another_vocabulary_is_refused(make_model, make_store):
    store = make_store([([5], [6])], "other", vocab=30)
    with pytest.raises(ShapeshiftError, match=r"vocabularies of 30 and 30 .* model 24 and 24"):
        compute({"it": make_model("ape")}, store)


def test_an_empty_store_is_refused(make_model, make_store):
    with pytest.raises(ShapeshiftError, match="holds no pairs"):
        order_sensitivity(make_model("ape"), make_store([], "empty"))


def test_no_offsets_are_refused(make_model, store):
    with pytest.raises(ShapeshiftError, match="1 systems and 0 offsets"):
        compute({"it": make_model("ape")}, store, ())
