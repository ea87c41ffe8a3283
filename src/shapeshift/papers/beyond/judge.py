"""What the measurements of many systems say about a claim. All rules, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shapeshift.lab.significance import Comparison
from shapeshift.papers.claims import all_of, has_learned, holm, shown
from shapeshift.papers.document import Finding, Verdict

MIN_SIMILARITY = 0.9999
MAX_LOSS_RANGE = 1e-3
"""Nats a target token. A model is measured to be shift invariant if under every offset its
encoder's states are this alike in all layers and its loss stays in this range: rounding moves both
by less, and an absolute position by far more."""

LATER: Mapping[str, str] = {
    "tiny": "runs of minutes on a small grammar end before a position has learned all that it can"
    " of order; if it is so, longer runs on real text should show it: see scale small",
    "small": "some thousand updates on 29,000 short captions are few; if it is so, 200,000 updates"
    " and more on millions of pairs should show it: see scale paper",
}
"""Scale → why a claim may not show there, and where it should."""

_ALWAYS = "it should be so at every scale"
"""Said of what is no matter of training."""


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
    elsewhere: str = "",
) -> Finding:
    """Judge that some systems are better than the baseline.

    It holds if each is better, and does not hold if one is worse, both significantly (`holm` over
    all comparisons); else nobody can tell, as where neither has learned anything.

    Args:
        claim: the sentence.
        comparisons: of all systems that were tested against the baseline.
        expected: the systems of the claim, tested or not.
        elsewhere: where the claim should show; left out if it holds.
    """
    return _compared(claim, comparisons, expected, elsewhere, all_of)


def any_better(
    claim: str,
    comparisons: Sequence[Comparison],
    expected: Collection[str],
    elsewhere: str = "",
) -> Finding:
    """Judge that one of some systems at least is better than the baseline; see `all_better`, with
    which it shares all but who decides: it does not hold if each is worse."""
    return _compared(claim, comparisons, expected, elsewhere, any_of)


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
    elsewhere: str,
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
    if missing:
        parts.append(f"not finished, or their baseline is not: {', '.join(missing)}")
    if comparisons:
        seeds = ", ".join(map(str, sorted(comparisons[0].p_values)))
        parts.append(f"paired bootstrap, seeds {seeds}, Holm over {len(comparisons)} systems")
    verdict = decide(verdicts.values())
    return Finding(
        claim=claim,
        verdict=verdict,
        measured="; ".join(parts),
        paper="none",
        remark="" if verdict == "holds" else elsewhere,
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
    limits = (
        f"measured: similarity at least {MIN_SIMILARITY} in every layer, and a loss that moves by"
        f" at most {MAX_LOSS_RANGE} nats a token"
    )
    return Finding(
        claim="A system is shift invariant exactly where the library declares it.",
        verdict=verdict,
        measured="; ".join(parts),
        paper="none",
        remark=limits if verdict == "holds" else f"{limits}; {_ALWAYS}",
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
        remark="" if verdict == "holds" else _ALWAYS,
    )


def _differences(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(
        f"{each.system} {each.difference:+.2f} ({shown(each.p_value)})"
        for each in sorted(comparisons, key=lambda each: -each.difference)
    )
