"""What many tests say about a claim."""

import pytest

from shapeshift.lab.significance import Comparison
from shapeshift.papers.beyond.judge import (
    Shifts,
    all_better,
    all_export,
    any_better,
    any_of,
    as_declared,
)
from shapeshift.papers.claims import holm
from shapeshift.papers.column import Column


def against(system, difference, p_value):
    return Comparison(system, "ape", "bleu", 20.0 + difference, 20.0, {1: p_value})


SURELY = 0.001


@pytest.mark.parametrize(
    ("p_values", "significant"),
    [
        ({}, ""),
        ({"a": 0.049}, "a"),
        ({"a": 0.05}, ""),
        ({"a": 0.03, "b": 0.04}, ""),  # each alone would be, both together are not
        ({"a": 0.024, "b": 0.049}, "ab"),
        ({"a": 0.9, "b": 0.016, "c": 0.024}, "bc"),  # 0.05 / 3, then 0.05 / 2, then 0.05
        ({"a": 0.001, "b": 0.026, "c": 0.027}, "a"),  # b fails, so that c is not looked at
    ],
)
def test_holm_takes_the_tests_together(p_values, significant):
    assert holm(p_values) == set(significant)


def judged(*comparisons, expected):
    return all_better("Better.", comparisons, expected)


def test_better_holds_where_every_system_is_significantly_better():
    found = judged(
        against("rpe", 4.0, SURELY),
        against("t5", 2.0, SURELY),
        against("xpos", -1.0, 0.4),  # which the claim is not about
        expected=["rpe", "t5"],
    )
    assert found.verdict == "holds"
    assert "better: rpe +4.00 (p = 0.001), t5 +2.00 (p = 0.001)" in found.measured
    assert "Holm over 3 systems" in found.measured
    assert "xpos" not in found.measured


def test_better_cannot_be_told_from_chance_or_without_a_run():
    by_chance = judged(against("rpe", 4.0, 0.3), expected=["rpe"])
    missing = judged(against("rpe", 4.0, SURELY), expected=["rpe", "t5"])
    nothing = judged(expected=["rpe"])
    assert [f.verdict for f in (by_chance, missing, nothing)] == ["cannot tell"] * 3
    assert "no difference shown: rpe" in by_chance.measured
    assert "baseline is not: t5" in missing.measured
    assert judged(expected=[]).verdict == "cannot tell"


def test_better_does_not_hold_where_one_system_is_significantly_worse():
    found = judged(
        against("rpe", 4.0, SURELY),
        against("t5", -3.0, SURELY),
        expected=["rpe", "t5", "alibi"],
    )
    assert found.verdict == "does not hold"
    assert "worse: t5 -3.00" in found.measured


INVARIANT = Shifts(declared=True, similarity=1.0, loss_range=1e-6)
ABSOLUTE = Shifts(declared=False, similarity=0.7, loss_range=0.8)


@pytest.mark.parametrize(
    ("shift", "measured"),
    [
        (INVARIANT, True),
        (ABSOLUTE, False),
        (Shifts(True, similarity=0.999, loss_range=0.0), False),  # the encoder moves
        (Shifts(True, similarity=1.0, loss_range=0.01), False),  # the decoder moves
    ],
)
def test_invariance_needs_both_encoder_and_loss(shift, measured):
    assert shift.measured is measured


def test_declared_and_measured_agree():
    found = as_declared({"rpe": INVARIANT, "ape": ABSOLUTE}, ["rpe", "ape"])
    assert found.verdict == "holds"
    assert found.measured == (
        "shift invariant: rpe; not (similarity / loss range): ape 0.700 / 0.800"
    )
    assert as_declared({"rpe": INVARIANT}, ["rpe", "ape"]).verdict == "cannot tell"


@pytest.mark.parametrize("declared", [True, False])
def test_one_system_that_is_not_as_declared_is_enough(declared):
    wrong = Shifts(declared, 0.7 if declared else 1.0, 0.8 if declared else 0.0)
    found = as_declared({"x": wrong, "rpe": INVARIANT}, ["x", "rpe", "ape"])
    assert found.verdict == "does not hold"
    assert "not as declared: x" in found.measured


def test_exports():
    assert all_export({"ape": None}, ["ape"]).verdict == "holds"
    assert all_export({"ape": None}, ["ape", "rpe"]).verdict == "cannot tell"
    failed = all_export({"ape": None, "rpe": "UserError: no"}, ["ape", "rpe", "t5"])
    assert failed.verdict == "does not hold"
    assert failed.measured == "1 of 2 export; rpe: UserError: no; not finished: t5"


def test_a_column_marks_what_differs_and_has_dashes_for_the_rest():
    column = Column([against("rpe", 4.0, SURELY), against("t5", 2.0, 0.2)])
    texts = {name: column.entry(name, []).text for name in ("ape", "rpe", "t5", "alibi")}
    assert texts == {"ape": "20.00", "rpe": "24.00*", "t5": "22.00", "alibi": "–"}
    assert column.entry("rpe", []).value == 24.0
    assert Column([against("rpe", 0.0, SURELY)]).entry("rpe", []).text == "20.00"
    assert Column([]).entry("ape", []).value is None


def test_better_than_a_baseline_that_has_learned_nothing_says_nothing():
    tiny = Comparison("rpe", "ape", "bleu", 1.9, 0.6, {1: SURELY})
    assert judged(tiny, expected=["rpe"]).verdict == "cannot tell"


YES, NO, OPEN = "holds", "does not hold", "cannot tell"


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [([], OPEN), ([NO, YES], YES), ([NO, NO], NO), ([NO, OPEN], OPEN), ([OPEN, YES], YES)],
)
def test_one_of_several_claims(verdicts, together):
    assert any_of(verdicts) == together


def test_one_better_system_is_enough_and_all_have_to_be_worse():
    better, worse = against("a", 4.0, SURELY), against("b", -4.0, SURELY)
    by_chance = against("c", 1.0, 0.06)
    assert any_better("One.", [better, worse], ["a", "b"]).verdict == YES
    assert any_better("One.", [worse], ["b"]).verdict == NO
    assert any_better("One.", [worse, by_chance], ["b", "c"]).verdict == OPEN
    assert any_better("One.", [worse], ["b", "a"]).verdict == OPEN


def test_a_remark_is_left_out_where_the_claim_holds():
    def remark(*comparisons):
        return all_better("Better.", comparisons, ["rpe"], "at scale small").remark

    assert remark(against("rpe", 4.0, SURELY)) == ""
    assert remark(against("rpe", 4.0, 0.3)) == remark() == "at scale small"


def test_what_needs_no_training_should_be_so_at_every_scale():
    everywhere = "it should be so at every scale"
    assert "scale" not in as_declared({"rpe": INVARIANT}, ["rpe"]).remark
    unfinished = as_declared({"rpe": INVARIANT}, ["rpe", "ape"])
    assert unfinished.remark.endswith(f"nats a token; {everywhere}")
    assert all_export({"ape": None}, ["ape"]).remark == ""
    assert all_export({"ape": "UserError: no"}, ["ape"]).remark == everywhere
