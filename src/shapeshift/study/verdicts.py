"""From results to verdicts, by one set of rules for all papers.

| rule | supported | contradicted |
|---|---|---|
| better | every difference is above 0 | some part is worse |
| no worse | every difference is above −margin | some part is worse, by more than the margin |
| equivalent | every difference is within ±margin | some part differs by more than the margin |
| threshold | every value is beyond the limit | some value is on its other side |

Two kinds of chance make a difference: other seeds (Student's t, paired by seed) and other sentences
(the paired bootstrap of `significance`). The 95 % confidence interval of a difference allows for
both: its half-width is the root of the sum of their squared half-widths (Zou and Donner 2008,
"Construction of confidence limits about effect measures"). All of it has to be on one side of zero,
of the margin or of the limit; a value that has no test on sentences has an interval over seeds
alone. A difference that shows no effect is no evidence that there is none.

At most one study in twenty has any wrong verdict, whatever is true:

- All p-values are two-sided: what lies on a limit is above it in 2.5 % of the cases, and below it
  in 2.5 %.
- *Some part*: the smallest p-value is multiplied by the number of parts, as one of many is beyond a
  limit by chance. *Every part* needs no correction: a wrong verdict takes an error in each part for
  which the claim is false. So the largest counts.
- The claims of a study are reported together, and the p-values of their verdicts are corrected
  together (Holm 1979). Those whose runs are not finished count as well, with a p-value of 1, so
  that no verdict gets stronger because runs are missing.

Everything else is "inconclusive", or says why no test was made: "not run", "one run" and "two runs"
(a verdict takes three seeds), "not tested in this profile" (see `power`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from shapeshift.run.measures import Metric
from shapeshift.study.document import Entry, Finding, Verdict
from shapeshift.study.power import PlannedTest, Spread, pooled
from shapeshift.study.significance import LEVEL, MARK, MIN_SEEDS, Comparison, holm
from shapeshift.study.spec import ClaimSpec

_Name = TypeVar("_Name")

NO_RUNS = "no runs in this profile"

FEW = 5
"""Parts of a claim that a sentence can name one by one and still be read."""


@dataclass(frozen=True)
class Part:
    """One comparison of a claim.

    Attributes:
        values: seed → what the rule is about: a difference or a value.
        comparison: the paired bootstrap, for rules that compare runs; `None` without runs of both.
        reason: why there are no values.
        metric: of the values; they are differences by which a run is better.
    """

    values: Mapping[int, float]
    comparison: Comparison | None = None
    reason: str = ""
    metric: Metric | None = None

    @property
    def tested(self) -> float | None:
        """The p-value of the comparison; None if there is none."""
        test = self.comparison
        return test.p_value if test and test.is_tested else None

    @property
    def is_untrained(self) -> bool:
        """Whether neither side has learned anything (both are below the metric's floor)."""
        test, floor = self.comparison, None if self.metric is None else self.metric.floor
        return (
            floor is not None and test is not None and max(test.score, test.baseline_score) < floor
        )

    @cached_property
    def mean(self) -> float:
        """The mean of the values."""
        return statistics.fmean(self.values.values())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the mean, of two seeds or more; see the module."""
        half = self._half_width(LEVEL)
        return self.mean - half, self.mean + half

    def p_value(self, limit: float = 0.0) -> float:
        """Return how probable a mean as far from a limit, on either side, is where the true one is
        there: one minus the confidence of the interval that ends at the limit."""
        distance, least = abs(self.mean - limit), 1e-9
        if self._half_width(least) <= distance:
            return least if distance else 1.0
        return float(brentq(lambda p_value: self._half_width(p_value) - distance, least, 1.0))

    def _half_width(self, p_value: float) -> float:
        """Return half the width of the interval with a confidence of one minus `p_value`."""
        error, test = self.deviation / math.sqrt(len(self.values)), self.comparison
        over_seeds = stdtrit(len(self.values) - 1, p_value / 2) * error
        return math.hypot(over_seeds, ndtri(p_value / 2) * test.error if test else 0.0)

    @cached_property
    def deviation(self) -> float:
        """The standard deviation over seeds, of two or more."""
        return statistics.stdev(self.values.values())


def findings(claims: Sequence[tuple[PlannedTest, Mapping[str, Part]]]) -> list[Finding]:
    """Return the claims of a study with their verdicts and what was measured; see the module."""
    untested = [_untested(test, parts) for test, parts in claims]
    tests = {
        number: _test(test.claim, parts)
        for number, ((test, parts), why) in enumerate(zip(claims, untested, strict=True))
        if why is None
    }
    planned = [number for number, (test, _) in enumerate(claims) if test.is_made]
    p_values = holm({number: tests[number][1] if number in tests else 1.0 for number in planned})
    found = []
    for number, (test, parts) in enumerate(claims):
        claim = test.claim
        verdict, measured = untested[number] or "inconclusive", describe(claim, parts) or NO_RUNS
        if number in tests and p_values[number] < LEVEL:
            verdict = tests[number][0]
        if number in tests and len(planned) > 1:
            p_value, count = shown(p_values[number]), len(planned)
            measured += f"; {p_value} for the verdict, of {count} tested in the study"
        found.append(
            Finding(
                claim=claim.claim,
                verdict=verdict,
                measured=measured,
                paper=claim.expected,
                p_values={x: p for x, y in parts.items() if (p := y.tested) is not None},
                power=test.power,
                spread=_spread(parts.values()),
            )
        )
    return found


def _spread(parts: Iterable[Part]) -> tuple[float, float, int] | None:
    """Return how much results vary: the fields of a `power.Spread`."""
    spreads = [
        Spread("", "", "", part.deviation, part.comparison.error if part.comparison else 0.0, n - 1)
        for part in parts
        if (n := len(part.values)) >= MIN_SEEDS and not part.is_untrained
    ]
    found = pooled(spreads)
    return None if found is None else (found.seeds, found.sentences, found.degrees)


def _untested(test: PlannedTest, parts: Mapping[str, Part]) -> Verdict | None:
    """Return the verdict on a claim that cannot be tested, None if it can."""
    if not test.is_made:
        return "not tested in this profile"
    if not parts or not all(part.values for part in parts.values()):
        return "not run"
    num_seeds = min(len(part.values) for part in parts.values())
    if num_seeds < MIN_SEEDS:
        return "one run" if num_seeds == 1 else "two runs"
    if any(part.is_untrained for part in parts.values()):
        return "inconclusive"
    return None


def _test(claim: ClaimSpec, parts: Mapping[str, Part]) -> tuple[Verdict, float]:
    """Return the verdict that the results point to, and its p-value."""
    low, high = claim.limits
    inside, outside = list[float](), list[float]()
    for part in parts.values():
        p_value = max(part.p_value(limit) for limit in (low, high) if math.isfinite(limit))
        (inside if low < part.mean < high else outside).append(p_value)
    if outside:
        return "contradicted", min(1.0, len(parts) * min(outside))
    return "supported", max(inside)


def significant(parts: Mapping[_Name, Part]) -> set[_Name]:
    """Return which of several lines or rows differ from their baseline at `LEVEL` on other
    sentences, all tests taken together, also those whose runs are not finished. Two that have both
    learned nothing do not, whatever the test says."""
    p_values = {
        name: 1.0 if part.tested is None or part.is_untrained else part.tested
        for name, part in parts.items()
    }
    return {name for name, p_value in holm(p_values).items() if p_value < LEVEL}


def with_p_value(entry: Entry, part: Part | None) -> Entry:
    """Return a field with the p-value of its test, if it has one."""
    return entry if part is None else entry.model_copy(update={"p_value": part.tested})


def mark_note(baseline: str, metrics: Sequence[Metric], tests: str = "tests of the column") -> str:
    """Return the table note that explains `MARK`."""
    named = dict.fromkeys("paired bootstrap" if x.examples else "Student's t" for x in metrics)
    floors = dict.fromkeys(f"{x.floor:g} {x.name}" for x in metrics if x.floor is not None)
    note = (
        f"{MARK} significantly different from {baseline}: {' or '.join(named)}, p < {LEVEL} after"
        f" Holm's correction over the {tests}"
    )
    return note + (f"; not where both are below {' or '.join(floors)}" if floors else "")


def describe(claim: ClaimSpec, parts: Mapping[str, Part]) -> str:
    """Return the results as a sentence: scores, difference, p and seeds of each part, or of
    the lowest and the highest where they are many."""
    if len(parts) <= FEW:
        return "; ".join(f"{label}: {_described(claim, part)}" for label, part in parts.items())
    ordered = sorted(
        (label for label, part in parts.items() if part.values), key=lambda x: parts[x].mean
    )
    counted = [f"{len(parts)} comparisons"]
    if len(ordered) < len(parts):
        counted.append(f"{len(parts) - len(ordered)} without runs")
    tested = [x for x in ordered if len(parts[x].values) >= MIN_SEEDS]
    if claim.rule == "better" and ordered and tested == ordered:
        means = [parts[x].mean for x in ordered if parts[x].p_value() < LEVEL]
        better = sum(mean > 0 for mean in means)
        counted.append(f"{better} better and {len(means) - better} worse (each p < {LEVEL:g})")
    untrained = [part for part in parts.values() if part.is_untrained]
    if untrained and not claim.minus:
        counted.append(f"{len(untrained)} of runs that have both learned nothing")
    extremes = [f"{x}: {_described(claim, parts[x])}" for x in (*ordered[:1], *ordered[-1:])]
    return "; ".join([", ".join(counted), *dict.fromkeys(extremes)])


def shown(p_value: float) -> str:
    """Return a p-value as text."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def _described(claim: ClaimSpec, part: Part) -> str:
    if not part.values:
        return part.reason
    seeds = f"{len(part.values)} seed{'s' * (len(part.values) > 1)}"
    spread = ""
    test, digits = part.comparison, part.metric.decimals if part.metric else 2
    if len(part.values) >= MIN_SEEDS:
        low, high = part.interval
        if test and part.metric and part.metric.better == "lower":  # of gains
            low, high = -high, -low
        spread = f", 95 % interval {low:.{digits}f} to {high:.{digits}f}"
    if test is None:
        return f"{part.mean:.3f}{spread} ({seeds})"
    tested = f", {shown(test.p_value)}" if test.is_tested else ""
    text = (
        f"{test.score:.{digits}f} against {test.baseline_score:.{digits}f}"
        f" ({test.difference:+.{digits}f}{tested}{spread}, {seeds})"
    )
    if part.metric and part.is_untrained:
        least = f"{part.metric.floor:g} {part.metric.name}"
        why = f"both are under {least} and have learned nothing"
        if claim.minus:
            why = f"both lose less than {least}"
        text += f": {why}, so that no verdict can be formed"
    return text
