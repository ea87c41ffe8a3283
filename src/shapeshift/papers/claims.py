"""From tests to verdicts, by the same rules for every claim of a paper.

- A claim that one system is better *holds* if the paired bootstrap calls the gain significant,
  *does not hold* if it calls a loss significant, and cannot be told otherwise.
- A claim that two systems are alike, or that one loses nothing, cannot be proved by a test that
  finds no difference. It *holds* if the difference is within `MARGIN`, *does not hold* if it is
  beyond and significant, and cannot be told otherwise.
- A claim of several parts holds if all of them do, each at the full level of significance (an
  intersection-union test). One part that fails is enough, so failing shares the level among them
  (Bonferroni).
- A test that could not be made, for want of runs, leaves its claim untold; so does one of two
  systems that both have learned nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from shapeshift.lab.significance import LEVEL, MARK, Comparison
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import missing, words
from shapeshift.papers.study import NO_AXES, Axes, Study, Texts

MARGIN = 0.5
"""BLEU: the smallest difference that Shaw et al. (2018) call one, values alone in their Table 3."""

FEW = 5
"""Tests that a finding can tell one by one and still be read."""

LEARNED = 2.0
"""BLEU: a test of two systems that are both below says nothing."""

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Untested:
    """Two systems that could not be compared, and why."""

    reason: str


Tests = Mapping[str, Comparison | Untested]
"""What is compared with what, for people, → the test."""


def versus(
    study: Study,
    grid: str,
    axis: str,
    pair: tuple[str, str],
    axes: Axes = NO_AXES,
    *,
    split: Texts = "test",
    lengths: tuple[int, int | None] | None = None,
    minus: str | None = None,
) -> Comparison | Untested:
    """Test one setting of an axis against another, on the seeds that both have finished.

    Args:
        study: with the cells.
        grid: their grid.
        axis: that the two settings are of.
        pair: the system and its baseline.
        axes: one setting for each other axis.
        split, lengths, minus: see `Study.comparisons`.
    """
    system, baseline = pair
    places: list[Axes] = [{**axes, axis: setting} for setting in pair]
    finished = [{cell.seed for cell in study.finished(grid, place)} for place in places]
    missing = [_place(place) for place, seeds in zip(places, finished, strict=True) if not seeds]
    if missing:
        return Untested(f"no finished run with {' or with '.join(missing)}")
    if not set.intersection(*finished):
        return Untested(f"no finished seed of both {_place(places[0])} and {_place(places[1])}")
    chosen: Axes = {**axes, axis: pair}
    found = study.comparisons(
        grid, axis, baseline, chosen, split=split, lengths=lengths, minus=minus
    )
    tests = [test for group in found.values() for test in group if test.system == system]
    assert len(tests) <= 1, f"{axes} leaves an axis open"
    return tests[0] if tests else Untested("these runs have not kept their translations")


def _place(axes: Axes) -> str:
    return ", ".join(f"{axis} = {setting}" for axis, setting in axes.items())


def beside(
    study: Study, grid: str, axis: str, pairs: Iterable[tuple[str, str]], axes: Axes = NO_AXES
) -> Tests:
    """Test pairs of settings of an axis; the labels name both, after those of the other axes.

    Args:
        study, grid, axis, axes: see `versus`.
        pairs: systems and their baselines.
    """
    return {
        " ".join([*map(str, axes.values()), f"{system} beside {baseline}"]): versus(
            study, grid, axis, (system, baseline), axes
        )
        for system, baseline in pairs
    }


def together(tests: Mapping[str, Tests]) -> Tests:
    """Return all tests of several claims."""
    return {label: test for each in tests.values() for label, test in each.items()}


def better(tests: Tests) -> Verdict:
    """Judge that each system is better than its baseline; see the module."""
    return _judge(tests, lambda gain: gain > 0, lambda gain: gain < 0, needs_significance=True)


def no_worse(tests: Tests, margin: float = MARGIN) -> Verdict:
    """Judge that no system loses against its baseline; see the module."""
    return _judge(tests, lambda gain: gain >= -margin, lambda gain: gain < -margin)


def alike(tests: Tests, margin: float = MARGIN) -> Verdict:
    """Judge that each system is as good as its baseline; see the module."""
    return _judge(tests, lambda gain: abs(gain) <= margin, lambda gain: abs(gain) > margin)


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """Judge that several claims hold together: one that does not hold decides, then one that
    cannot be told. No claims at all cannot be told."""
    found = list(verdicts)
    if "does not hold" in found:
        return "does not hold"
    return "holds" if found and all(verdict == "holds" for verdict in found) else "cannot tell"


def holm(p_values: Mapping[str, float]) -> set[str]:
    """Return which of several tests are significant at `LEVEL` all together (Holm 1979).

    The smallest p-value is compared with `LEVEL` / n, the next with `LEVEL` / (n − 1), and so on
    until one fails: the chance of any false alarm among the n tests stays below `LEVEL`.
    """
    significant: set[str] = set()
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        if p_values[name] >= LEVEL / (len(p_values) - place):
            break
        significant.add(name)
    return significant


def told(tests: Tests) -> str:
    """Say what was measured: scores, difference, p and seeds of each test, or of the two at the
    ends where they are many; see `table`."""
    if len(tests) <= FEW:
        return "; ".join(f"{label}: {_told(test)}" for label, test in tests.items()) or NOT_MEASURED
    made = {label: test for label, test in tests.items() if isinstance(test, Comparison)}
    reasons = list(dict.fromkeys(x.reason for x in tests.values() if isinstance(x, Untested)))
    more = f"; {len(reasons) - FEW} more reasons" if len(reasons) > FEW else ""
    untested = f"{len(tests) - len(made)} {NOT_MEASURED}"
    untested += f" ({'; '.join(reasons[:FEW])}{more})" if reasons else ""
    if not made:
        return f"of {len(tests)} comparisons {untested}"
    ordered = sorted(made, key=lambda label: made[label].difference)
    better = sum(test.significant and test.difference > 0 for test in made.values())
    worse = sum(test.significant and test.difference < 0 for test in made.values())
    ends = "; ".join(f"{label}: {_told(made[label])}" for label in (ordered[0], ordered[-1]))
    return (
        f"of {len(tests)} comparisons {better} are significantly better and {worse} worse,"
        f" {len(made) - better - worse} are neither, {untested};"
        f" the two at the ends, {ends}"
    )


def table(name: str, title: str, tests: Tests) -> DocumentTable:
    """Return all tests as a table, for a finding of many.

    Args:
        name, title: of the table.
        tests: what it shows, in this order.
    """
    rows = []
    for label, test in tests.items():
        if isinstance(test, Untested):
            rows.append((*words(label), *(missing() for _ in range(5))))
            continue
        mark = MARK if test.significant else ""
        fields = (
            (f"{test.score:.2f}", test.score),
            (f"{test.baseline_score:.2f}", test.baseline_score),
            (f"{test.difference:+.2f}{mark}", test.difference),
            (f"{test.p_value:.4f}", test.p_value),
            (str(len(test.p_values)), len(test.p_values)),
        )
        entries = (Entry(text=text, value=value, cells=test.cells) for text, value in fields)
        rows.append((*words(label), *entries))
    return DocumentTable(
        name=name,
        title=title,
        header=("comparison", "BLEU", "beside", "difference", "p", "seeds"),
        rows=tuple(rows),
        notes=(f"{MARK} p < {LEVEL}, paired bootstrap",),
    )


def shown(p_value: float) -> str:
    """Return a p-value for people."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def difference(test: Comparison) -> str:
    """Return the difference with p and the number of seeds: `+1.23, p = 0.040, 3 seeds`."""
    num_seeds = len(test.p_values)
    seeds = f"{num_seeds} seed" + "s" * (num_seeds > 1)
    return f"{test.difference:+.2f}, {shown(test.p_value)}, {seeds}"


def has_learned(test: Comparison) -> bool:
    """Return whether one system at least translates at all."""
    return max(test.score, test.baseline_score) >= LEARNED


def finding(
    study: Study, claim: str, verdict: Verdict, measured: str, paper: str, elsewhere: str
) -> Finding:
    """Make a finding; `elsewhere` says where the claim should show, and is left out if it holds or
    if this is the paper's own scale."""
    remark = "" if verdict == "holds" or study.scale == "paper" else elsewhere
    return Finding(claim=claim, verdict=verdict, measured=measured, paper=paper, remark=remark)


def _judge(
    tests: Tests,
    agrees: Callable[[float], bool],
    contradicts: Callable[[float], bool],
    *,
    needs_significance: bool = False,
) -> Verdict:
    """Judge by each test's difference; what contradicts has to be significant, in any case."""
    verdicts: list[Verdict] = []
    for test in tests.values():
        if isinstance(test, Untested) or not has_learned(test):
            verdicts.append("cannot tell")
            continue
        if agrees(test.difference) and (test.significant or not needs_significance):
            verdicts.append("holds")
        else:
            fails = contradicts(test.difference) and test.p_value < LEVEL / len(tests)
            verdicts.append("does not hold" if fails else "cannot tell")
    return all_of(verdicts)


def _told(test: Comparison | Untested) -> str:
    if isinstance(test, Untested):
        return f"{NOT_MEASURED} ({test.reason})"
    return f"{test.score:.2f} against {test.baseline_score:.2f} ({difference(test)})"
