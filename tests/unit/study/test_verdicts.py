"""The rules by which results become verdicts, on made-up numbers."""

from statistics import stdev

import pytest

from shapeshift.run.measures import BLEU
from shapeshift.study.significance import Comparison, student
from shapeshift.study.spec import ClaimSpec
from shapeshift.study.verdicts import Part, describe, finding, judge, significant


def claim(rule="better", **given):
    pair = {} if rule == "threshold" else {"test": {"k": "16"}, "against": {"k": "0"}}
    return ClaimSpec(claim="It is.", rule=rule, expected="said so", **pair, **given)


def compared(*gains, p=0.01, base=30.0):
    """A part of one value for each seed."""
    scores = {seed: base + gain for seed, gain in enumerate(gains, 1)}
    test = Comparison(scores, dict.fromkeys(scores, base), dict.fromkeys(scores, p))
    return Part(dict(enumerate(gains, 1)), test, metric=BLEU)


def verdict(given, *parts):
    return judge(given, dict(zip("abcdefgh", parts, strict=False)), "tiny")


@pytest.mark.parametrize(
    ("rule", "gains", "p", "expected"),
    [
        ("better", (2.0, 2.1, 1.9), 0.01, "supported"),
        ("better", (2.0, 2.1, 1.9), 0.05, "inconclusive"),
        ("better", (-2.0, -2.1, -1.9), 0.01, "contradicted"),
        ("better", (-2.0, -2.1, -1.9), 0.05, "inconclusive"),
        ("no worse", (-0.1, 0.0, -0.2), 0.01, "supported"),
        ("no worse", (3.0, 3.1, 2.9), 0.01, "supported"),
        ("no worse", (-2.0, -2.1, -1.9), 0.01, "contradicted"),
        ("no worse", (-0.4, 0.4, -0.9), 0.01, "inconclusive"),
        ("equivalent", (0.1, 0.0, -0.1), 0.01, "supported"),
        ("equivalent", (2.0, 2.1, 1.9), 0.01, "contradicted"),
        ("equivalent", (-2.0, -2.1, -1.9), 0.9, "contradicted"),
        ("equivalent", (0.1, 2.0, -2.0), 0.9, "inconclusive"),  # no effect is not no difference
    ],
)
def test_each_rule_in_both_directions(rule, gains, p, expected):
    assert verdict(claim(rule), compared(*gains, p=p)) == expected


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
    assert verdict(claim(), compared(0.1, p=0.001)) == "one run"
    assert verdict(claim(), compared(0.1, 0.1, p=0.001)) == "two runs"
    assert verdict(claim(), compared(0.1, 0.1, 0.1), compared(0.1)) == "one run"


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 6.314), (2, 2.920), (9, 1.833), (10, 1.812), (20, 1.725), (30, 1.697), (120, 1.658)],
)
def test_the_interval_is_students_for_any_number_of_seeds(degrees, quantile):
    values = [float(n % 3) for n in range(degrees + 1)]
    low, high = Part(dict(enumerate(values))).interval
    found = (high - low) / 2 / (stdev(values) / len(values) ** 0.5)
    assert found == pytest.approx(quantile, abs=6e-4)


@pytest.mark.parametrize(
    ("t", "degrees", "expected"),
    [(1.0, 1, 0.25), (12.706, 1, 0.025), (4.303, 2, 0.025), (-2.3534, 3, 0.95), (3.365, 5, 0.01)],
)
def test_students_probabilities_are_those_of_its_tables(t, degrees, expected):
    assert student(t, degrees) == pytest.approx(expected, abs=1e-5)


def test_some_part_beyond_a_limit_is_corrected_for_the_number_of_parts():
    """One of two limits of one of four parts: its p-value has to be below 0.05 / 8."""
    beyond, inside = (0.70, 0.74, 0.80), (0.1, 0.0, -0.1)
    assert Part(dict(enumerate(beyond))).p_value(0.5, 1) == pytest.approx(0.0068, abs=1e-5)
    assert verdict(claim("equivalent"), compared(*beyond)) == "contradicted"
    assert verdict(claim("equivalent"), compared(*beyond), compared(*inside)) == "contradicted"
    parts = [compared(*beyond), *[compared(*inside)] * 3]
    assert verdict(claim("equivalent"), *parts) == "inconclusive"
    assert verdict(claim("no worse"), *[compared(-x, -y, -z) for x, y, z in [beyond] * 8]) == (
        "inconclusive"
    )


def test_better_needs_other_seeds_as_well_as_other_sentences():
    """Of equal systems three seeds agree in sign once in four times."""
    assert verdict(claim(), compared(0.5, 1.0, 4.5, p=0.0005)) == "inconclusive"
    assert verdict(claim(), compared(1.9, 2.0, 2.1, p=0.0005)) == "supported"


def test_what_has_no_runs_or_has_learned_nothing():
    good = compared(2.0, 2.0, 2.0)
    assert judge(claim(), {}, "tiny") == "not run"
    assert verdict(claim(), good, Part({}, reason="no finished run")) == "not run"
    nothing = {"x": compared(0.5, 0.5, 0.5, base=0.4)}
    made = finding(claim(), nothing, "tiny")
    assert made.verdict == "inconclusive"
    assert made.measured.endswith(
        "both are under 2 BLEU and have learned nothing, so that no verdict can be formed"
    )
    assert verdict(claim(), good) == "supported"


def test_a_claim_is_judged_at_the_profiles_that_can_test_it():
    limited = claim(profiles=("paper",))
    for profile, expected in (("tiny", "not tested in this profile"), ("paper", "supported")):
        assert judge(limited, {"a": compared(2.0, 2.0, 2.0)}, profile) == expected


@pytest.mark.parametrize("gain", [-4.0, 4.0])
@pytest.mark.parametrize(
    ("rule", "effect", "is_tested"),
    [("better", 3.0, True), ("better", 2.9, False), ("equivalent", 5.0, False)],
)
def test_what_a_profile_can_test_depends_on_the_papers_effect_not_on_ours(
    rule, effect, is_tested, gain
):
    parts = {"a": compared(gain, gain + 0.1, gain - 0.1)}
    tiny, paper = (judge(claim(rule, effect=effect), parts, x) for x in ("tiny", "paper"))
    assert paper in ("supported", "contradicted")
    assert tiny == (paper if is_tested else "not tested in this profile")


def test_all_parts_of_a_claim_have_to_be_significant_together():
    """Holm's correction: of two tests the smaller p has to be below 0.025."""
    gain = compared(2.0, 2.0, 2.0, p=0.02)  # twice the mean of the p-values of the seeds
    assert verdict(claim(), gain) == "supported"
    assert verdict(claim(), gain, gain) == "inconclusive"
    loss = compared(-2.0, -2.0, -2.0, p=0.001)
    assert verdict(claim(), gain, loss) == "contradicted"
    alike = compared(0.1, 0.0, -0.1)
    assert verdict(claim("equivalent"), alike, compared(0.1, 2.0, -2.0)) == "inconclusive"
    assert verdict(claim("equivalent"), alike, compared(2.0, 2.1, 1.9)) == "contradicted"


def test_numbers_seeds_and_p_are_named():
    made = finding(claim("equivalent"), {"x": compared(1.0, 1.2, 1.4)}, "tiny")
    for part in ("x: 31.20 against 30.00", "+1.20", "p = 0.020", "3 seeds", "90 % interval"):
        assert part in made.measured
    assert made.p_values == {"x": 0.02}
    reason = Part({}, reason="no finished run with k = 16")
    assert describe(claim(), {"x": reason}) == "x: no finished run with k = 16"
    assert finding(claim(), {}, "tiny").measured == "no runs in this profile"


def test_many_parts_are_counted_and_the_extremes_named():
    parts = {str(n): compared(n - 3.0, n - 3.0, n - 3.0, p=0.001) for n in range(7)}
    parts["none"] = Part({}, reason="no finished run")
    told = describe(claim(), parts)
    assert told.startswith("8 comparisons, 1 without runs, 3 significantly better and 3 worse")
    assert "0: 27.00 against 30.00" in told
    assert "6: 33.00 against 30.00" in told
    assert "3: " not in told


def test_a_table_marks_no_difference_of_systems_that_have_learned_nothing():
    parts = {"none": compared(-0.07, p=0.0005, base=0.07), "some": compared(2.0, p=0.0005)}
    assert significant(parts) == {"some"}
