"""Analyses as measures of a run."""

import pytest

from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import sha256_lines
from shapeshift.lab.analysis import learning, similarity, swapped_order
from shapeshift.lab.analysis.learning import SHIFTS
from shapeshift.lab.measures import ORIGINAL, SWAPPED, kept_lines

JOINED = ("data.dataset.name=interpolate", "data.dataset.num_joined=3")


@pytest.fixture
def relative(make_run):
    return make_run("position=rpe")


@pytest.fixture
def joined(make_run):
    return make_run("position=ape", *JOINED)


def test_a_relative_model_has_the_same_states_at_every_offset_and_an_absolute_one_has_not(
    relative, joined
):
    invariant, absolute = similarity.measure(*relative), similarity.measure(*joined)
    assert [m.bucket for m in invariant] == ["layer 0", "layer 1"]
    assert [m.value for m in invariant] == pytest.approx([1.0, 1.0], abs=1e-6)
    assert all(m.value < 0.999 for m in absolute)


def test_swapped_order_is_for_joined_pairs_alone(relative, joined):
    assert swapped_order.measure(*relative) == []
    assert {m.metric for m in learning.measure(*relative)} == {"BLEU", "shift_similarity"}
    rows = swapped_order.measure(*joined)
    orders = ["original order", "swapped order"]
    assert [m.bucket for m in rows if m.metric == "BLEU" and m.signature] == orders
    texts = (ORIGINAL, "average"), (SWAPPED, "average"), (ORIGINAL, "references")
    *outputs, references = (kept_lines(joined[0].directory, *each) for each in texts)
    for m, lines in zip(rows, outputs, strict=True):
        kept = lines, references
        assert [m.hypotheses, m.references] == [*map(sha256_lines, kept)]
        assert m.value == pytest.approx(score_corpus(*kept, ("bleu",))[0].value)


def test_learning_measures_the_last_checkpoint_of_each_eighth(make_run):
    kept = ("training.keep_checkpoints=9", "training.average_checkpoints=1")
    settings = ("training.max_updates=16", "training.checkpoint_every=1", *kept)
    run, data = make_run("position=shape", *JOINED, *settings)
    assert run.checkpoints.updates() == list(range(8, 17))
    rows = learning.measure(run, data)
    assert sorted({m.step for m in rows}) == [8, 10, 12, 14, 16]
    last = {(m.metric, m.bucket): m.value for m in rows if m.step == 16}
    layers = [f"layer {layer} to {most}" for most in SHIFTS for layer in (0, 1)]
    assert [bucket for metric, bucket in last if metric == "shift_similarity"] == layers
    assert last["shift_similarity", "layer 1 to 500"] == pytest.approx(
        similarity.measure(run, data)[1].value
    )
    swapped = {(m.metric, m.bucket): m.value for m in swapped_order.measure(run, data)}
    assert swapped.items() <= last.items()
    first = {(m.metric, m.bucket): m.value for m in rows if m.step == 8}
    key = ("shift_similarity", "layer 1 to 500")
    assert first[key] != last[key]
