"""The rules by which tests become verdicts, on made-up numbers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from shapeshift.lab.significance import Comparison
from shapeshift.papers import claims

HOLDS, NOT, UNTOLD = "holds", "does not hold", "cannot tell"
UNFINISHED = claims.Untested("no finished run with k = 16")


def against(gain, p, *, base=30.0):
    return Comparison("new", "old", "bleu", base + gain, base, {1: p})


@pytest.mark.parametrize(
    ("gain", "p", "better", "no_worse", "alike"),
    [
        (+2.0, 0.01, HOLDS, HOLDS, NOT),
        (+2.0, 0.20, UNTOLD, HOLDS, UNTOLD),
        (+0.3, 0.01, HOLDS, HOLDS, HOLDS),
        (-0.3, 0.01, NOT, HOLDS, HOLDS),
        (-0.3, 0.40, UNTOLD, HOLDS, HOLDS),
        (-2.0, 0.20, UNTOLD, UNTOLD, UNTOLD),
        (-2.0, 0.01, NOT, NOT, NOT),
    ],
)
def test_one_comparison(gain, p, better, no_worse, alike):
    tests = {"a": against(gain, p)}
    assert claims.better(tests) == better
    assert claims.no_worse(tests) == no_worse
    assert claims.alike(tests) == alike


@pytest.mark.parametrize("judge", [claims.better, claims.no_worse, claims.alike])
def test_what_was_not_measured_or_not_learned_cannot_be_told(judge):
    assert judge({}) == UNTOLD
    assert judge({"a": UNFINISHED}) == UNTOLD
    assert judge({"a": against(0.4, 0.001), "b": UNFINISHED}) == UNTOLD
    assert judge({"a": against(0.4, 0.001, base=0.5)}) == UNTOLD


def test_every_part_of_a_claim_has_to_hold():
    gain = against(2.0, 0.04)
    assert claims.better({"a": gain, "b": gain, "c": gain}) == HOLDS
    assert claims.better({"a": gain, "b": against(2.0, 0.06)}) == UNTOLD


def test_of_many_parts_one_fails_by_chance_sooner_so_that_it_needs_a_smaller_p():
    gain, loss = against(2.0, 0.01), against(-2.0, 0.03)
    assert claims.better({"b": loss}) == NOT
    assert claims.better({"a": gain, "b": loss}) == UNTOLD
    assert claims.better({"a": gain, "b": against(-2.0, 0.02)}) == NOT


def test_one_claim_that_does_not_hold_outweighs_one_that_cannot_be_told():
    assert claims.all_of([HOLDS, UNTOLD, NOT]) == NOT
    assert claims.all_of([HOLDS, UNTOLD]) == UNTOLD
    assert claims.all_of([HOLDS, HOLDS]) == HOLDS
    assert claims.all_of([]) == UNTOLD


def test_numbers_seeds_and_p_are_told():
    three = Comparison("new", "old", "bleu", 31.234, 30.0, {1: 0.01, 2: 0.02, 3: 0.03})
    assert claims.told({"x": three, "y": UNFINISHED}) == (
        "x: 31.23 against 30.00 (+1.23, p = 0.040, 3 seeds);"
        " y: not measured (no finished run with k = 16)"
    )
    assert claims.told({}) == "not measured"
    assert claims.told({"x": against(1.0, 0.0004)}).endswith("(+1.00, p < 0.001, 1 seed)")


def test_many_are_counted_and_told_by_the_two_at_the_ends():
    tests = {
        "a": against(2.0, 0.01),
        "b": against(-1.0, 0.01),
        "c": UNFINISHED,
        "d": against(0.1, 0.60),
        "e": against(3.0, 0.01),
        "f": against(0.2, 0.90),
    }
    assert claims.told(tests) == (
        "of 6 comparisons 2 are significantly better and 1 worse, 2 are neither, 1 not measured (no"
        " finished run with k = 16);"
        " the two at the ends, b: 29.00 against 30.00 (-1.00, p = 0.010, 1 seed); e: 33.00 against"
        " 30.00 (+3.00, p = 0.010, 1 seed)"
    )
    none = dict.fromkeys("abcdef", UNFINISHED)
    assert claims.told(none) == ("of 6 comparisons 6 not measured (no finished run with k = 16)")


def test_a_table_has_each_test_with_what_is_missing():
    test = replace(against(2.0, 0.01), cells=("one", "two"))
    made = claims.table("tests", "All", {"a": test, "b": UNFINISHED})
    assert [[entry.text for entry in row] for row in made.rows] == [
        ["a", "32.00", "30.00", "+2.00*", "0.0100", "1"],
        ["b", *["–"] * 5],
    ]
    assert [entry.cells for entry in made.rows[0]] == [(), *[("one", "two")] * 5]
    assert not any(entry.cells for entry in made.rows[1])


def test_a_remark_says_where_else_unless_the_claim_holds_or_there_is_nowhere_else():
    def remark(verdict, scale):
        study = SimpleNamespace(scale=scale)
        return claims.finding(study, "Better.", verdict, "1", "2", "at scale paper").remark

    assert [remark(verdict, "tiny") for verdict in (HOLDS, NOT, UNTOLD)] == [
        "",
        "at scale paper",
        "at scale paper",
    ]
    assert remark(NOT, "paper") == ""
