"""The rules by which the claims of the SHAPE paper are judged, on made-up numbers."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from shapeshift.evaluation.lengths import FEW_SEGMENTS, LengthBucket
from shapeshift.lab.analysis.curves import RunCurve
from shapeshift.lab.analysis.length_bleu import Curve, LengthBleu
from shapeshift.lab.analysis.token_gain import TokenGain
from shapeshift.lab.significance import Comparison
from shapeshift.papers.shape import (
    curves,
    figure3,
    figure4,
    offsets,
    shared,
    similarity,
    table1,
    table2,
    table5,
    table6,
)

HOLDS, NOT, UNTOLD = "holds", "does not hold", "cannot tell"


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ([True, True], HOLDS),
        ([False], NOT),
        ([True, False], UNTOLD),
        ([True, None], UNTOLD),
        ([None], UNTOLD),
        ([], UNTOLD),
    ],
)
def test_without_a_test_all_have_to_agree(votes, verdict):
    assert shared.unanimous(votes) == verdict


@pytest.mark.parametrize(
    ("ape", "shape", "verdict"),
    [
        ({1: 6.0}, {1: 2.0}, HOLDS),
        ({1: 5.9}, {1: 2.0}, NOT),
        ({1: 2.0}, {1: -1.0}, HOLDS),  # SHAPE gains: it loses nothing
        ({1: -2.0}, {1: 3.0}, NOT),
        ({1: 0.9}, {1: 0.1}, UNTOLD),  # neither loses anything to speak of
        ({1: 6.0, 2: 2.0}, {1: 2.0, 2: 2.0}, UNTOLD),  # seeds disagree
        ({1: 6.0, 2: 0.0}, {1: 2.0, 3: 9.0}, HOLDS),  # one seed in common
        ({1: 6.0}, {2: 1.0}, UNTOLD),
        ({}, {}, UNTOLD),
    ],
)
def test_swapped_order(ape, shape, verdict):
    assert table1.judge(ape, shape) == verdict
    surely, perhaps = (Comparison("ape", "shape", "bleu", 6, 2, {1: p}) for p in (0.049, 0.05))
    assert table1.judge(ape, shape, surely) == verdict
    assert table1.judge(ape, shape, perhaps) == (UNTOLD if verdict == HOLDS else verdict)


@pytest.mark.parametrize(
    ("ape", "shape", "verdict"),
    [
        ([0.9, 0.8], [0.99, 1.0], HOLDS),
        ([0.9, 0.8], [0.989, 1.0], NOT),  # one layer is not invariant
        ([0.99, 0.98], [0.99, 1.0], NOT),  # neither is APE's far off
        ([], [], UNTOLD),
    ],
)
def test_similarity(ape, shape, verdict):
    assert similarity.judge(ape, shape) == verdict


@pytest.mark.parametrize(
    ("found", "as_fast", "slower"),
    [
        ([0.95, 1.1], HOLDS, NOT),
        ([0.94, 1.0], NOT, NOT),
        ([0.9, 0.5], NOT, HOLDS),
        ([0.95, None], UNTOLD, NOT),  # on every dataset, and one is missing
        ([0.9, None], NOT, UNTOLD),
        ([None], UNTOLD, UNTOLD),
    ],
)
def test_speed(found, as_fast, slower):
    assert table2.judge_speed(found) == as_fast
    assert table6.judge_slower(found) == slower


def test_no_speed_is_no_verdict():
    assert table2.judge_speed([]) == table6.judge_slower([]) == UNTOLD


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({"valid": 0.1, "test": 2.0}, HOLDS),
        ({"valid": -0.1, "test": 2.0}, NOT),
        ({"valid": 0.0, "test": 2.0}, UNTOLD),
        ({"valid": None, "test": 2.0}, UNTOLD),
        ({"valid": None, "test": -2.0}, NOT),
        ({}, UNTOLD),
    ],
)
def test_every_set(gains, verdict):
    assert table5.judge(gains, 30.0) == verdict
    assert table5.judge(gains, 1.0) == UNTOLD


@pytest.mark.parametrize(
    ("base", "others", "verdict"),
    [
        (1e6, [1.019e6, 0.981e6], HOLDS),
        (1e6, [1.03e6], NOT),
        (1e6, [1.03e6, None], NOT),
        (1e6, [1e6, None], UNTOLD),
        (1e6, [], UNTOLD),
        (None, [1], UNTOLD),
    ],
)
def test_sizes(base, others, verdict):
    assert table6.judge_sizes(base, others) == verdict


def lengths(gains, counts):
    """BLEU by length with APE at 20 everywhere."""
    buckets = tuple(
        LengthBucket(low=10 * n, high=10 * n + 10, num_segments=count, score=None)
        for n, count in enumerate(counts)
    )
    flat = (0.0,) * len(gains)
    ape = Curve("ape", (20.0,) * len(gains), flat, 1)
    shape = Curve("shape", tuple(20 + gain for gain in gains), flat, 1)
    return LengthBleu(buckets, (ape, shape), "ape", None)


@pytest.mark.parametrize(
    ("gains", "counts", "verdict"),
    [
        ([1, 2], [50, 50], HOLDS),
        ([1, -2], [50, 50], NOT),
        ([1, -2], [50, FEW_SEGMENTS - 1], HOLDS),
        ([1, math.nan], [50, 0], HOLDS),
        ([0, 1], [50, 50], UNTOLD),
        ([1, 1], [1, 1], UNTOLD),
    ],
)
def test_every_length(gains, counts, verdict):
    assert figure3.judge_lengths(lengths(gains, counts), "shape") == verdict


def test_lengths_that_neither_translates_are_left_aside():
    data = lengths([1, -2], [50, 50])
    low = [replace(curve, mean=(curve.mean[0], curve.mean[1] - 19)) for curve in data.curves]
    assert figure3.judge_lengths(replace(data, curves=tuple(low)), "shape") == HOLDS


def test_lengths_that_were_not_measured():
    assert figure3.judge_lengths(None, "shape") == UNTOLD
    assert figure3.judge_lengths(lengths([1], [50]), "rpe") == UNTOLD


@pytest.mark.parametrize(
    ("shares", "verdict"),
    [([51.0, 60.0], HOLDS), ([50.9, 60.0], UNTOLD), ([50.9, 40.0], NOT), ([None, 60.0], UNTOLD)],
)
def test_more_than_half_of_the_tokens(shares, verdict):
    assert figure4.judge_over_half(shares) == verdict


@pytest.mark.parametrize(
    ("rare", "other", "verdict"),
    [
        ([60.0], [59.0], HOLDS),
        ([60.0], [59.5], NOT),
        ([60.0, 50.0], [50.0, 60.0], UNTOLD),
        ([None], [50.0], UNTOLD),
    ],
)
def test_rare_tokens(rare, other, verdict):
    assert figure4.judge_rare(rare, other) == verdict


def test_shares_of_some_tokens():
    gain = TokenGain(
        system="shape",
        baseline="ape",
        position_edges=(10,),
        frequency_edges=(1_000,),
        higher=((60, 10), (20, 0)),
        ties=((0, 20), (0, 0)),
        total=((100, 40), (50, 10)),
    )
    assert figure4.share(gain) == pytest.approx(50.0)
    assert figure4.share(gain, begin=10) == pytest.approx(40.0)
    assert figure4.share(gain, below=1_000) == pytest.approx(100 * 80 / 140)
    assert figure4.share(gain, below=-1_000) == pytest.approx(100 * 20 / 60)
    assert figure4.share(gain, begin=10, below=-1_000) is None  # ten tokens are too few


def run(*perplexities):
    updates = tuple(100 * n for n in range(1, len(perplexities) + 1))
    return RunCurve(updates, None, perplexities, (math.nan,) * len(perplexities))


@pytest.mark.parametrize(
    ("perplexities", "update"),
    [
        ((20.0, 10.0, 5.2, 5.1, 5.0), 300),
        ((5.0, 9.0, 5.1, 5.0), 300),  # it was there before, and left again
        ((9.0, 5.0), 200),
        ((5.0,), 100),
        ((4.0, 5.0), 100),  # what rises stays within, too
    ],
)
def test_where_a_run_has_settled(perplexities, update):
    assert curves.settled(run(*perplexities)) == update


def test_convergence_is_compared_on_the_seeds_that_all_have(monkeypatch):
    early, late = run(5.0, 5.0, 5.0), run(9.0, 5.0, 5.0)  # settled after 100 and 200 updates
    monkeypatch.setattr(curves, "positions", lambda *_: ["ape", "shape"])
    study = SimpleNamespace(scale="tiny")
    runs = {"ape": {1: (None, early), 2: (None, late)}, "shape": {1: (None, early)}}
    found = curves._converge_alike(study, {"vanilla": runs})
    assert found.verdict == HOLDS
    assert "ape 100, shape 100" in found.measured
    runs["shape"] = {3: (None, early)}
    assert curves._converge_alike(study, {"vanilla": runs}).verdict == UNTOLD


@pytest.mark.parametrize(
    ("updates", "verdict"),
    [
        ({"vanilla": {"ape": 400, "rpe": 500, "shape": 320}}, HOLDS),
        ({"vanilla": {"ape": 400, "rpe": 501}}, NOT),
        ({"vanilla": {"ape": 400, "shape": 319}}, NOT),
        ({"vanilla": {"ape": 400}, "extrapolate": {"ape": 4, "rpe": 4}}, HOLDS),
        ({"vanilla": {"rpe": 400, "shape": 400}}, UNTOLD),
        ({"vanilla": {}}, UNTOLD),
    ],
)
def test_convergence(updates, verdict):
    assert curves.judge_convergence(updates) == verdict


@pytest.mark.parametrize(
    ("means", "verdict"),
    [
        ({"10": 22.0, "40": 23.0, "500": 22.5}, HOLDS),
        ({"10": 21.9, "40": 23.0, "500": 22.5}, NOT),
        ({"10": 22.0, "40": 23.0}, UNTOLD),  # the third may be worse
        ({"10": 20.0, "40": 23.0}, NOT),
        ({"10": 0.1, "40": 1.9, "500": 0.2}, UNTOLD),  # nothing is learned
        ({}, UNTOLD),
    ],
)
def test_the_choice_of_k(means, verdict):
    assert offsets.judge(means, ["10", "40", "500"]) == verdict
