"""From results to verdicts, by one set of rules for all papers.

| rule | supported | contradicted |
|---|---|---|
| better | every part is significantly better | some part is significantly worse |
| no worse | every difference is above −margin | some part is worse, by more than the margin |
| equivalent | every difference is within ±margin | some part differs by more than the margin |
| threshold | every value is beyond the limit | some value is on its other side |

Two kinds of chance can make a difference, and *significantly* rules out both: other sentences (the
paired bootstrap of `significance`) and other seeds (Student's t, paired by seed). The larger of
the two p-values counts. The other rules ask for a confidence interval over seeds (Student's t,
90 %: two one-sided tests at 5 %): all of it has to be on one side of the margin or limit. A
difference that shows no effect is no evidence that there is none.

A claim of many parts is not contradicted by the one part in twenty that chance puts beyond a limit:
*some part* is so after Holm's correction over all tests of the claim, under every rule. *Every
part* needs no correction: a wrong verdict takes an error in each part for which the claim is false.

Everything else is "inconclusive", or says why no test was made: "not run", "one run" and "two runs"
(a verdict takes three seeds), "not tested in this profile" (the claim says which profiles can).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from shapeshift.run.measures import Metric
from shapeshift.study.document import Entry, Finding, Verdict
from shapeshift.study.significance import (
    LEVEL,
    MARK,
    MIN_SEEDS,
    Comparison,
    holm,
    student,
    student_quantile,
)
from shapeshift.study.spec import ClaimSpec

_Name = TypeVar("_Name")

NO_RUNS = "no runs in this profile"

FEW = 5
"""Parts of a claim that a sentence can name one by one and still be read."""


@dataclass(frozen=True)
class Part:
    """One of the comparisons that a claim is about.

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
    def is_untrained(self) -> bool:
        """Whether neither side has learned anything."""
        test, floor = self.comparison, None if self.metric is None else self.metric.floor
        return floor is not None and test is not None and max(test.scores_of_both) < floor

    @property
    def mean(self) -> float:
        """Of the values."""
        return statistics.fmean(self.values.values())

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % confidence interval of the mean over seeds, of which there are two or more."""
        half = student_quantile(LEVEL, len(self.values) - 1) * self._error
        return self.mean - half, self.mean + half

    def p_value(self, limit: float, sign: int = 0) -> float:
        """Return how probable a mean as far from a limit is over seeds where the true one is there.

        Args:
            limit: of the values.
            sign: 1 or -1 if only values above or below the limit are far from it; 0: both.
        """
        distance = (self.mean - limit) * sign if sign else abs(self.mean - limit)
        if not self._error:
            return float(distance <= 0)
        tail = student(distance / self._error, len(self.values) - 1)
        return tail if sign else 2 * tail

    @property
    def _error(self) -> float:
        """The standard error of the mean."""
        return statistics.stdev(self.values.values()) / math.sqrt(len(self.values))


def judge(claim: ClaimSpec, parts: Mapping[str, Part], profile: str) -> Verdict:
    """Return what the results say about a claim; see the module."""
    if not claim.is_tested_in(profile):
        return "not tested in this profile"
    if not parts or not all(part.values for part in parts.values()):
        return "not run"
    num_seeds = min(len(part.values) for part in parts.values())
    if num_seeds < MIN_SEEDS:
        return "one run" if num_seeds == 1 else "two runs"
    if any(part.is_untrained for part in parts.values()):
        return "inconclusive"
    if claim.rule == "better":
        better, worse = _by_sign(parts)
        return "contradicted" if worse else "supported" if better == len(parts) else "inconclusive"
    low, high = -claim.margin, claim.margin if claim.rule == "equivalent" else math.inf
    if claim.rule == "threshold":
        low = -math.inf if claim.at_least is None else claim.at_least
        high = math.inf if claim.at_most is None else claim.at_most
    if all(low < part.interval[0] and part.interval[1] < high for part in parts.values()):
        return "supported"
    limits = [(limit, sign) for limit, sign in ((low, -1), (high, 1)) if math.isfinite(limit)]
    beyond = {
        (label, sign): part.p_value(limit, sign)
        for label, part in parts.items()
        for limit, sign in limits
    }
    return "contradicted" if min(holm(beyond).values()) < LEVEL else "inconclusive"


def finding(claim: ClaimSpec, parts: Mapping[str, Part], profile: str) -> Finding:
    """Return a claim with its verdict and what was measured."""
    return Finding(
        claim=claim.claim,
        verdict=judge(claim, parts, profile),
        measured=describe(claim, parts) or NO_RUNS,
        paper=claim.expected,
        p_values={label: p.comparison.p_value for label, p in parts.items() if p.comparison},
    )


def significant(parts: Mapping[_Name, Part]) -> set[_Name]:
    """Return which of several lines or rows differ from their baseline at `LEVEL` on other
    sentences, all tests taken together. Two that have both learned nothing do not, whatever the
    test says."""
    p_values = {
        name: x.comparison.p_value
        for name, x in parts.items()
        if x.comparison and not x.is_untrained
    }
    return {name for name, p_value in holm(p_values).items() if p_value < LEVEL}


def with_p_value(entry: Entry, part: Part | None) -> Entry:
    """Return a field of a table with the p-value of its test, if there is one."""
    if part is None or part.comparison is None:
        return entry
    return entry.model_copy(update={"p_value": part.comparison.p_value})


def mark_note(baseline: str, metrics: Sequence[Metric], tests: str = "tests of the column") -> str:
    """Return the note of a table that says what `MARK` means."""
    named = dict.fromkeys("paired bootstrap" if x.examples else "Student's t" for x in metrics)
    floors = dict.fromkeys(f"{x.floor:g} {x.name}" for x in metrics if x.floor is not None)
    note = (
        f"{MARK} significantly different from {baseline}: {' or '.join(named)}, p < {LEVEL} after"
        f" Holm's correction over the {tests}"
    )
    return note + (f"; not where both are below {' or '.join(floors)}" if floors else "")


def _by_sign(parts: Mapping[str, Part]) -> tuple[int, int]:
    """Return how many parts are significantly better, and how many worse; see the module."""
    p_values = {
        label: max(part.comparison.p_value, part.p_value(0))
        for label, part in parts.items()
        if part.comparison and len(part.values) >= MIN_SEEDS
    }
    found = [label for label, p_value in holm(p_values).items() if p_value < LEVEL]
    better = sum(parts[label].mean > 0 for label in found)
    return better, len(found) - better


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
    if claim.rule == "better" and all(len(parts[x].values) >= MIN_SEEDS for x in ordered):
        counted.append("{} significantly better and {} worse".format(*_by_sign(parts)))
    untrained = [part for part in parts.values() if part.is_untrained]
    if untrained and not claim.minus:
        counted.append(f"{len(untrained)} of runs that have both learned nothing")
    extremes = [f"{x}: {_described(claim, parts[x])}" for x in (*ordered[:1], *ordered[-1:])]
    return "; ".join([", ".join(counted), *dict.fromkeys(extremes)])


def shown(p_value: float) -> str:
    """Return a p-value for people."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def _described(claim: ClaimSpec, part: Part) -> str:
    if not part.values:
        return part.reason
    seeds = f"{len(part.values)} seed{'s' * (len(part.values) > 1)}"
    spread = ""
    if len(part.values) >= MIN_SEEDS:
        spread = ", 90 % interval {:.2f} to {:.2f}".format(*part.interval)
        if claim.rule == "better":
            spread = f", over seeds {shown(part.p_value(0))}"
    test = part.comparison
    if test is None:
        return f"{part.mean:.3f}{spread} ({seeds})"
    text = (
        f"{test.score:.2f} against {test.baseline_score:.2f} ({test.difference:+.2f},"
        f" {shown(test.p_value)}{spread}, {seeds})"
    )
    if part.metric and part.is_untrained:
        least = f"{part.metric.floor:g} {part.metric.name}"
        why = f"both are under {least} and have learned nothing"
        if claim.minus:
            why = f"both lose less than {least}"
        text += f": {why}, so that no verdict can be formed"
    return text
