"""The rules by which results become verdicts, on made-up numbers."""

import pytest
from scipy import stats

from shapeshift.run.measures import BLEU, Metric
from shapeshift.study.document import Entry
from shapeshift.study.power import PlannedTest
from shapeshift.study.significance import Comparison
from shapeshift.study.spec import ClaimSpec
from shapeshift.study.verdicts import (
    Part,
    describe,
    findings,
    mark_note,
    significant,
    with_p_value,
)


def claim(rule="better", **given):
    pair = {} if rule == "threshold" else {"test": {"k": "16"}, "against": {"k": "0"}}
    return ClaimSpec(claim="It is.", rule=rule, expected="said so", **pair, **given)


def compared(*gains, error=0.1, p=0.01, base=30.0):
    """A part of one value for each seed; `error` is that over sentences."""
    scores = {seed: base + gain for seed, gain in enumerate(gains, 1)}
    test = Comparison(scores, dict.fromkeys(scores, base), dict.fromkeys(scores, p), error)
    return Part(dict(enumerate(gains, 1)), test, metric=BLEU)


def finding(given, parts):
    [found] = findings([(PlannedTest(given, True), parts)])
    return found


def verdict(given, *parts):
    return finding(given, dict(zip("abcdefgh", parts, strict=False))).verdict


@pytest.mark.parametrize(
    ("rule", "gains", "error", "expected"),
    [
        ("better", (2.0, 2.1, 1.9), 0.1, "supported"),
        ("better", (2.0, 2.1, 1.9), 1.1, "inconclusive"),  # other sentences
        ("better", (0.5, 1.0, 4.5), 0.1, "inconclusive"),  # other seeds
        ("better", (-2.0, -2.1, -1.9), 0.1, "contradicted"),
        ("better", (-2.0, -2.1, -1.9), 1.1, "inconclusive"),
        ("no worse", (-0.1, 0.0, -0.2), 0.1, "supported"),
        ("no worse", (-0.1, 0.0, -0.2), 0.3, "inconclusive"),
        ("no worse", (3.0, 3.1, 2.9), 0.1, "supported"),
        ("no worse", (-2.0, -2.1, -1.9), 0.1, "contradicted"),
        ("no worse", (-0.4, 0.4, -0.9), 0.1, "inconclusive"),
        ("equivalent", (0.1, 0.0, -0.1), 0.1, "supported"),
        ("equivalent", (0.1, 0.0, -0.1), 0.3, "inconclusive"),
        ("equivalent", (2.0, 2.1, 1.9), 0.1, "contradicted"),
        ("equivalent", (-2.0, -2.1, -1.9), 0.1, "contradicted"),
        ("equivalent", (0.1, 2.0, -2.0), 0.1, "inconclusive"),  # no effect is not no difference
    ],
)
def test_each_rule_in_both_directions(rule, gains, error, expected):
    assert verdict(claim(rule), compared(*gains, error=error)) == expected


@pytest.mark.parametrize(
    ("limits", "values", "expected"),
    [
        ({"at_least": 50.0}, (55.0, 56.0, 57.0), "supported"),
        ({"at_least": 50.0}, (45.0, 46.0, 47.0), "contradicted"),
        ({"at_least": 50.0}, (49.0, 51.0, 53.0), "inconclusive"),
        ({"at_most": 1.0}, (0.90, 0.91, 0.92), "supported"),
        ({"at_most": 1.0}, (1.20, 1.21, 1.22), "contradicted"),
        ({"at_most": 1.0}, (0.90, 1.00, 1.10), "inconclusive"),
    ],
)
def test_a_threshold_in_both_directions(limits, values, expected):
    assert verdict(claim("threshold", **limits), Part(dict(enumerate(values)))) == expected


def test_a_verdict_takes_three_seeds():
    assert verdict(claim(), compared(0.1)) == "one run"
    assert verdict(claim(), compared(0.1, 0.1)) == "two runs"
    assert verdict(claim(), compared(0.1, 0.1, 0.1), compared(0.1)) == "one run"


@pytest.mark.parametrize("values", [(1.0, 2.5), (1.0, 2.0, 4.0), (0.5, 0.1, 0.3, 0.2, 0.9)])
def test_over_seeds_alone_it_is_students_test(values):
    part, test = Part(dict(enumerate(values))), stats.ttest_1samp(values, 0.2)
    assert part.p_value(0.2) == pytest.approx(test.pvalue)
    assert part.interval == pytest.approx(tuple(test.confidence_interval(0.95)))


def test_over_sentences_alone_it_is_the_normal_distributions():
    part = compared(1.0, 1.0, 1.0, error=0.5)
    assert part.interval == pytest.approx(stats.norm.interval(0.95, 1.0, 0.5))
    assert part.p_value(0.2) == pytest.approx(2 * stats.norm.sf(0.8 / 0.5))


@pytest.mark.parametrize("end", [0, 1])
def test_the_interval_allows_for_both_and_ends_where_p_is_5_percent(end):
    values, mean = (1.0, 2.0, 4.0), 7 / 3
    both, seeds = compared(*values, error=0.7), Part(dict(enumerate(values)))
    widths = [part.interval[1] - mean for part in (both, seeds)]
    assert widths[0] ** 2 == pytest.approx(widths[1] ** 2 + (1.959964 * 0.7) ** 2)
    assert both.p_value(both.interval[end]) == pytest.approx(0.05)


def test_what_never_varies_is_certain():
    same = compared(0.2, 0.2, 0.2, error=0.0)
    assert same.interval == pytest.approx((0.2, 0.2))
    assert same.p_value() < 1e-6
    assert compared(0.0, 0.0, 0.0, error=0.0).p_value() == 1.0


def test_some_part_is_corrected_for_the_number_of_parts_and_every_part_is_not():
    one = compared(*[-1.0, -1.1, -0.8], error=0.0)
    assert one.p_value() == pytest.approx(0.0082, abs=1e-4)
    alike = [compared(0.1, 0.0, -0.1)] * 6
    assert verdict(claim(), one, *alike[:5]) == "contradicted"
    assert verdict(claim(), one, *alike) == "inconclusive"
    better = [compared(*[1.0, 1.1, 0.8], error=0.0)] * 8
    assert verdict(claim(), *better) == "supported"
    assert verdict(claim("equivalent"), alike[0], compared(0.1, 2.0, -2.0)) == "inconclusive"
    assert verdict(claim("equivalent"), alike[0], compared(2.0, 2.1, 1.9)) == "contradicted"


def test_the_claims_of_a_study_are_corrected_together():
    """Those that the profile tests, finished or not: each of five has to have a p-value below 0.01,
    or 0.0125 of four."""
    gain, nothing = {"a": compared(1.0, 1.1, 0.75, error=0.0)}, {"a": compared(0.1, -0.2, 0.3)}
    assert gain["a"].p_value() == pytest.approx(0.0118, abs=1e-4)
    untested = [
        (PlannedTest(claim(), False), gain),
        (PlannedTest(claim(), True), {"a": compared(1.0)}),
    ]
    for others, expected in ((2, "supported"), (3, "inconclusive")):
        tested = [(PlannedTest(claim(), True), parts) for parts in (gain, *[nothing] * others)]
        found = findings([*tested, *untested])
        assert found[0].verdict == expected
        assert found[0].measured.endswith(f"for the verdict, of {others + 2} tested in the study")
        assert [x.verdict for x in found[-2:]] == ["not tested in this profile", "one run"]
        assert not any("for the verdict" in x.measured for x in found[-2:])
    alone = finding(claim(), gain).measured
    assert "for the verdict" not in alone
    assert found[-2].measured == alone  # the numbers, if no verdict


def test_what_has_no_runs_or_has_learned_nothing():
    good = compared(2.0, 2.0, 2.0)
    assert finding(claim(), {}).verdict == "not run"
    assert verdict(claim(), good, Part({}, reason="no finished run")) == "not run"
    made = finding(claim(), {"x": compared(0.5, 0.5, 0.5, base=0.4)})
    assert made.verdict == "inconclusive"
    assert made.measured.endswith(
        "both are under 2 BLEU and have learned nothing, so that no verdict can be formed"
    )
    assert verdict(claim(), good) == "supported"


def test_numbers_seeds_and_p_are_named():
    made = finding(claim("equivalent"), {"x": compared(1.0, 1.2, 1.4)})
    for part in ("x: 31.20 against 30.00", "+1.20", "p = 0.020", "3 seeds", "95 % interval"):
        assert part in made.measured
    assert made.p_values == {"x": 0.02}
    reason = Part({}, reason="no finished run with k = 16")
    assert describe(claim(), {"x": reason}) == "x: no finished run with k = 16"
    assert finding(claim(), {}).measured == "no runs in this profile"


def test_where_lower_is_better_the_interval_has_the_sign_of_the_difference():
    """Gains of 0.0012 or so, each a lower value; a metric may ask for more decimals."""
    scores = {1: 0.0088, 2: 0.0087, 3: 0.0089}
    gains = {seed: 0.01 - score for seed, score in scores.items()}
    metric = Metric("error", better="lower", decimals=4)
    part = Part(gains, Comparison(scores, dict.fromkeys(scores, 0.01), {}), metric=metric)
    told = describe(claim(), {"x": part})
    assert told.startswith("x: 0.0088 against 0.0100 (-0.0012, p = 0.002, 95 % interval -0.0014 to")


def test_students_t_of_two_seeds_is_no_test():
    values = {1: 1.0, 2: 2.0}
    part = Part(values, Comparison(values, dict.fromkeys(values, 0.0), {}), metric=Metric("speed"))
    made = finding(claim(), {"x": part})
    assert (made.p_values, made.measured) == ({}, "x: 1.50 against 0.00 (+1.50, 2 seeds)")
    assert with_p_value(Entry(text="1.50"), part).p_value is None


def test_what_has_not_run_is_counted_as_neither_better_nor_worse():
    parts = {str(n): Part({}, reason="no finished run") for n in range(6)}
    assert describe(claim(), parts) == "6 comparisons, 6 without runs"


def test_many_parts_are_counted_and_the_extremes_named():
    parts = {str(n): compared(n - 3.0, n - 3.0, n - 3.0, p=0.001) for n in range(7)}
    parts["none"] = Part({}, reason="no finished run")
    told = describe(claim(), parts)
    assert told.startswith("8 comparisons, 1 without runs, 3 better and 3 worse (each p < 0.05)")
    assert "0: 27.00 against 30.00" in told
    assert "6: 33.00 against 30.00" in told
    assert "3: " not in told


def test_a_table_marks_no_difference_of_systems_that_have_learned_nothing():
    parts = {"none": compared(-0.07, p=0.0005, base=0.07), "some": compared(2.0, p=0.0005)}
    assert significant(parts) == {"some"}
    many = {str(n): Part({}, reason="no finished run") for n in range(97)}
    assert significant(parts | many) == {"some"}
    assert significant(parts | many | {"another": Part({})}) == set()  # 100 · 0.0005
    assert "not where both are below 2 BLEU" in mark_note("ape", [BLEU])
