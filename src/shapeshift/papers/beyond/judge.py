"""What the measurements of many systems say about a claim. All rules, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shapeshift.experiments.significance import LEVEL, Comparison
from shapeshift.papers.claims import all_of, has_learned, shown
from shapeshift.papers.document import Finding, Verdict

MIN_SIMILARITY = 0.9999
MAX_LOSS_RANGE = 1e-3
"""Nats a target token. A model is measured to be shift invariant if under every offset its
encoder's states are this alike in all layers and its loss stays in this range: rounding moves both
by less, and an absolute position by far more."""


def holm(p_values: Mapping[str, float]) -> set[str]:
    """Return which of several tests are significant at `LEVEL` all together (Holm 1979).

    The smallest p-value is compared with `LEVEL` / n, the next with `LEVEL` / (n − 1), and so on
    until one fails: the chance of any false alarm among the n tests stays below `LEVEL`.
    """
    significant: set[str] = set()
    for number, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] >= LEVEL / (len(p_values) - number):
            break
        significant.add(name)
    return significant


@dataclass(frozen=True)
class Shifts:
    """How a system takes shifted positions.

    Attributes:
        declared: whether the library says that it is shift invariant.
        similarity: of the encoder's states, in the layer where it is lowest.
        loss_range: from the lowest to the highest loss under offsets, nats a target token.
    """

    declared: bool
    similarity: float
    loss_range: float

    @property
    def measured(self) -> bool:
        """Whether it is measured to be shift invariant."""
        return self.similarity >= MIN_SIMILARITY and self.loss_range <= MAX_LOSS_RANGE


def all_better(
    claim: str,
    comparisons: Sequence[Comparison],
    expected: Collection[str],
    remark: str = "",
) -> Finding:
    """Judge that some systems are better than the baseline.

    It holds if each is better, and does not hold if one is worse, both significantly (`holm` over
    all comparisons); else nobody can tell, as where neither has learned anything.

    Args:
        claim: the sentence.
        comparisons: of all systems that were tested against the baseline.
        expected: the systems of the claim, tested or not.
        remark: of the finding.
    """
    return _compared(claim, comparisons, expected, remark, all_of)


def any_better(
    claim: str,
    comparisons: Sequence[Comparison],
    expected: Collection[str],
    remark: str = "",
) -> Finding:
    """Judge that one of some systems at least is better than the baseline; see `all_better`, with
    which it shares all but who decides: it does not hold if each is worse."""
    return _compared(claim, comparisons, expected, remark, any_of)


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge that one of several claims holds at least. No claims at all cannot be told."""
    found = list(verdicts)
    if "holds" in found:
        return "holds"
    fails = found and all(verdict == "does not hold" for verdict in found)
    return "does not hold" if fails else "cannot tell"


def _compared(
    claim: str,
    comparisons: Sequence[Comparison],
    expected: Collection[str],
    remark: str,
    decide: Callable[[Iterable[Verdict]], Verdict],
) -> Finding:
    sure = holm({each.system: each.p_value for each in comparisons})
    tested = [each for each in comparisons if each.system in expected]
    sure -= {each.system for each in tested if not has_learned(each)}
    better = [each for each in tested if each.system in sure and each.difference > 0]
    worse = [each for each in tested if each.system in sure and each.difference < 0]
    open_ = [each for each in tested if each not in better and each not in worse]
    verdicts: dict[str, Verdict] = dict.fromkeys(expected, "cannot tell")
    verdicts |= {each.system: "holds" for each in better}
    verdicts |= {each.system: "does not hold" for each in worse}
    groups = {"better": better, "worse": worse, "no difference shown": open_}
    parts = [f"{name}: {_differences(group)}" for name, group in groups.items() if group]
    missing = sorted(set(expected) - {each.system for each in tested})
    parts += [f"not finished: {', '.join(missing)}"] if missing else []
    if comparisons:
        seeds = ", ".join(map(str, sorted(comparisons[0].p_values)))
        parts.append(f"paired bootstrap, seeds {seeds}, Holm over {len(comparisons)} systems")
    return Finding(
        claim=claim,
        verdict=decide(verdicts.values()),
        measured="; ".join(parts),
        paper="none",
        remark=remark,
    )


def as_declared(shifts: Mapping[str, Shifts], expected: Collection[str]) -> Finding:
    """Judge that systems are shift invariant where the library declares it, and nowhere else.

    It does not hold if one measured system is not what is declared, and holds if all are measured
    and none differs.

    Args:
        shifts: system → what was measured.
        expected: all systems, measured or not.
    """
    wrong = [name for name, shift in shifts.items() if shift.measured != shift.declared]
    missing = sorted(set(expected) - set(shifts))
    verdict: Verdict = "does not hold" if wrong else "cannot tell" if missing else "holds"
    invariant = [name for name, shift in shifts.items() if shift.measured]
    others = [
        f"{name} {shift.similarity:.3f} / {shift.loss_range:.3f}"
        for name, shift in shifts.items()
        if not shift.measured
    ]
    parts = [f"shift invariant: {', '.join(invariant) or 'none'}"]
    parts += [f"not (similarity / loss range): {', '.join(others)}"] if others else []
    parts += [f"not as declared: {', '.join(wrong)}"] if wrong else []
    parts += [f"not finished: {', '.join(missing)}"] if missing else []
    return Finding(
        claim="A system is shift invariant exactly where the library declares it.",
        verdict=verdict,
        measured="; ".join(parts),
        paper="none",
        remark=f"measured: similarity at least {MIN_SIMILARITY} in every layer, and a loss that"
        f" moves by at most {MAX_LOSS_RANGE} nats a token",
    )


def all_export(reasons: Mapping[str, str | None], expected: Collection[str]) -> Finding:
    """Judge that the model of every system can be exported.

    Args:
        reasons: system → why it cannot, or `None` if it can.
        expected: all systems, tried or not.
    """
    failed = {name: reason for name, reason in reasons.items() if reason is not None}
    missing = sorted(set(expected) - set(reasons))
    verdict: Verdict = "does not hold" if failed else "cannot tell" if missing else "holds"
    parts = [f"{len(reasons) - len(failed)} of {len(reasons)} export"]
    parts += [f"{name}: {reason}" for name, reason in failed.items()]
    parts += [f"not finished: {', '.join(missing)}"] if missing else []
    return Finding(
        claim="The model of every preset exports with torch.export, for any batch and length.",
        verdict=verdict,
        measured="; ".join(parts),
        paper="none",
    )


def _differences(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(
        f"{each.system} {each.difference:+.2f} ({shown(each.p_value)})"
        for each in sorted(comparisons, key=lambda each: -each.difference)
    )
