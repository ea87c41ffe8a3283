"""From measurements to verdicts, by one set of rules for all papers.

| rule | supported | contradicted |
|---|---|---|
| better | every part is significantly better | some part is significantly worse |
| no worse | every difference is above −margin | some part is worse, by more than the margin |
| equivalent | every difference is within ±margin | some part differs by more than the margin |
| threshold | every value is beyond the limit | some value is on its other side |

*Significantly* is the paired bootstrap of `lab.significance`, with Holm's correction over the parts
of the claim. The other rules ask for a confidence interval over seeds (Student's t, paired by seed,
90 %: two one-sided tests at 5 %): all of it has to be on one side of the margin or limit. A
difference that shows no effect is no evidence that there is none.

Everything else is "inconclusive", or says why no test was made: "not run", "one run" and
"two runs" (a verdict takes three seeds), "not tested at this scale" (the claim says which scales
can).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from shapeshift.lab.significance import LEVEL, MARK, Comparison
from shapeshift.papers.document import Entry, Finding, Verdict
from shapeshift.papers.spec import ClaimSpec

_Name = TypeVar("_Name")

LEARNED = 2.0
"""BLEU: two systems that are both below have learned nothing, and their comparison says nothing."""

MIN_SEEDS = 3

NO_RUNS = "no runs at this scale"

FEW = 5
"""Parts of a claim that a sentence can name one by one and still be read."""

_T = (2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""95 % quantiles of Student's t for 2, 3, … degrees of freedom."""


@dataclass(frozen=True)
class Part:
    """One of the comparisons that a claim is about.

    Attributes:
        values: seed → what the rule is about: a difference or a value.
        comparison: the paired bootstrap, for rules about two systems; `None` without runs of both.
        reason: why there are no values.
    """

    values: Mapping[int, float]
    comparison: Comparison | None = None
    reason: str = ""

    @property
    def mean(self) -> float:
        """Of the values."""
        return statistics.fmean(self.values.values())

    @property
    def interval(self) -> tuple[float, float]:
        """The 90 % confidence interval of the mean over seeds."""
        values = list(self.values.values())
        half = _quantile(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
        return self.mean - half, self.mean + half


def _quantile(degrees: int) -> float:
    """Return the 95 % quantile of Student's t for 2 or more degrees of freedom: beyond the table
    Fisher's expansion about the normal one, Abramowitz & Stegun 26.7.5, to three decimals."""
    if degrees - 2 < len(_T):
        return _T[degrees - 2]
    z = statistics.NormalDist().inv_cdf(0.95)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def judge(claim: ClaimSpec, parts: Mapping[str, Part], scale: str) -> Verdict:
    """Return what the measurements say about a claim; see the module."""
    if claim.scales and scale not in claim.scales:
        return "not tested at this scale"
    if not parts or not all(part.values for part in parts.values()):
        return "not run"
    num_seeds = min(len(part.values) for part in parts.values())
    if num_seeds < MIN_SEEDS:
        return "one run" if num_seeds == 1 else "two runs"
    tests = [part.comparison for part in parts.values() if part.comparison is not None]
    if any(map(_is_untrained, tests)):
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
    beyond = [p for p in parts.values() if p.interval[1] < low or p.interval[0] > high]
    return "contradicted" if beyond else "inconclusive"


def finding(claim: ClaimSpec, parts: Mapping[str, Part], scale: str) -> Finding:
    """Return a claim with its verdict and what was measured."""
    return Finding(
        claim=claim.claim,
        verdict=judge(claim, parts, scale),
        measured=describe(claim, parts) or NO_RUNS,
        paper=claim.expected,
        p_values={label: p.comparison.p_value for label, p in parts.items() if p.comparison},
    )


def significant(parts: Mapping[_Name, Part]) -> set[_Name]:
    """Return which of several systems differ from their baseline at `LEVEL`, all tests taken
    together (Holm 1979).

    The smallest p-value is compared with `LEVEL` / n, the next with `LEVEL` / (n − 1), and so on
    until one fails: the chance of any false alarm among the n tests stays below `LEVEL`.
    """
    p_values = {name: x.comparison.p_value for name, x in parts.items() if x.comparison}
    found: set[_Name] = set()
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] >= LEVEL / (len(p_values) - place):
            break
        found.add(name)
    return found


def marked(parts: Mapping[_Name, Part]) -> set[_Name]:
    """Return those of `significant` that a table marks: not where both systems are below `LEARNED`,
    whose difference is real and says nothing."""
    tests = {name: part.comparison for name, part in parts.items()}
    return {x for x in significant(parts) if (test := tests[x]) and not _is_untrained(test)}


def with_p_value(entry: Entry, part: Part | None) -> Entry:
    """Return a field of a table with the p-value of its test, if there is one."""
    if part is None or part.comparison is None:
        return entry
    return entry.model_copy(update={"p_value": part.comparison.p_value})


def mark_note(baseline: str, tests: str = "tests of the column") -> str:
    """Return the note of a table that says what `MARK` means."""
    return (
        f"{MARK} significantly different from {baseline}: paired bootstrap, p < {LEVEL} after"
        f" Holm's correction over the {tests}; not where both are below {LEARNED:g} BLEU"
    )


def _is_untrained(test: Comparison) -> bool:
    """Return whether neither system has learned anything."""
    return max(test.score, test.baseline_score) < LEARNED


def _by_sign(parts: Mapping[str, Part]) -> tuple[int, int]:
    """Return how many parts are significantly better, and how many worse."""
    tests = (parts[label].comparison for label in significant(parts))
    signs = [test.difference > 0 for test in tests if test is not None]
    return signs.count(True), signs.count(False)


def describe(claim: ClaimSpec, parts: Mapping[str, Part]) -> str:
    """Return the measurements as a sentence: scores, difference, p and seeds of each part, or of
    the lowest and the highest where they are many."""
    if len(parts) <= FEW:
        return "; ".join(f"{label}: {_described(claim, part)}" for label, part in parts.items())
    ordered = sorted(
        (label for label, part in parts.items() if part.values), key=lambda x: parts[x].mean
    )
    counted = [f"{len(parts)} comparisons"]
    if len(ordered) < len(parts):
        counted.append(f"{len(parts) - len(ordered)} without runs")
    if claim.rule == "better" and ordered:
        counted.append("{} significantly better and {} worse".format(*_by_sign(parts)))
    untrained = [p for p in parts.values() if p.comparison and _is_untrained(p.comparison)]
    if untrained and not claim.minus:
        counted.append(f"{len(untrained)} of systems that have both learned nothing")
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
    if claim.rule != "better" and len(part.values) >= MIN_SEEDS:
        spread = ", 90 % interval {:.2f} to {:.2f}".format(*part.interval)
    test = part.comparison
    if test is None:
        return f"{part.mean:.3f}{spread} ({seeds})"
    text = (
        f"{test.score:.2f} against {test.baseline_score:.2f} ({test.difference:+.2f},"
        f" {shown(test.p_value)}{spread}, {seeds})"
    )
    if _is_untrained(test):
        why = f"both are under {LEARNED:g} BLEU and have learned nothing"
        if claim.minus:
            why = f"both lose less than {LEARNED:g} BLEU"
        text += f": {why}, so that no verdict can be formed"
    return text
