"""Table 5: which of Q, K and V get positions, one layer."""

from __future__ import annotations

from shapeshift.papers.claims import MARGIN, Tests, alike, beside, better, finding, told
from shapeshift.papers.column import note
from shapeshift.papers.document import Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.layout import Heads, Layout, Published, ours, published
from shapeshift.papers.nhk.shared import TENTH
from shapeshift.papers.study import Axes, Study

GRID = "nhk-table5"

LAYOUT = Layout(("Q", "K", "V"))

PUBLISHED: dict[str, Published] = {
    "none": ((7.51, 7.57, 0.18), (-103.40, -102.84, 0.95)),
    "q": ((12.61, 12.61, 0.03), (-85.41, -85.37, 0.08)),
    "k": ((12.84, 12.57, 0.54), (-78.46, -78.27, 0.78)),
    "v": ((12.03, 12.29, 0.22), (-85.99, -85.97, 0.36)),
    "qk": ((24.05, 24.12, 0.13), (-36.88, -37.05, 1.04)),
    "kv": ((13.31, 13.20, 0.22), (-78.37, -78.73, 1.87)),
    "qv": ((12.79, 12.76, 0.07), (-86.81, -86.65, 0.33)),
    "qkv": ((23.86, 23.81, 0.23), (-38.77, -38.47, 0.67)),
}

_ONE = ("q", "k", "v")
_ELSEWHERE = f"runs as short as these still differ in how fast they learn order; {TENTH}"


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    systems: dict[Heads, list[Axes]] = {
        heads(subset): [{"positions_in": subset}] for subset in study.settings(GRID, "positions_in")
    }
    theirs: dict[Heads, list[Published]] = {
        heads(subset): [scores] for subset, scores in PUBLISHED.items()
    }
    title = "Positions in Q, K and V of all attentions, one layer"
    return Content(
        tables=[
            ours(
                study,
                GRID,
                LAYOUT,
                systems,
                name="table5",
                title=title,
                notes=[note("positions in Q, K and V")],
                tested=("positions_in", "qkv"),
            ),
            published(LAYOUT, theirs, name="table5-paper", title=f"{title}, in the paper"),
        ],
        findings=[_any(study), _both(study), _values(study)],
    )


def heads(subset: str) -> Heads:
    """Return the fields that say which of Q, K and V get positions."""
    return tuple("yes" if subset != "none" and each in subset else "" for each in _ONE)


def _tests(study: Study, *pairs: tuple[str, str]) -> Tests:
    return beside(study, GRID, "positions_in", pairs)


def _any(study: Study) -> Finding:
    tests = _tests(study, *((one, "none") for one in _ONE))
    return finding(
        study,
        "Positions in any one of Q, K and V are better than none.",
        better(tests),
        told(tests),
        "medians 12.61 (Q), 12.84 (K) and 12.03 (V) against 7.51",
        _ELSEWHERE,
    )


def _both(study: Study) -> Finding:
    tests = _tests(study, *(("qk", other) for other in (*_ONE, "kv", "qv")))
    return finding(
        study,
        "Positions in Q and K are better than in one of the three, and than in V and one of them.",
        better(tests),
        told(tests),
        "median 24.05 against 12.61 (Q), 12.84 (K), 12.03 (V), 13.31 (K, V) and 12.79 (Q, V)",
        _ELSEWHERE,
    )


def _values(study: Study) -> Finding:
    tests = _tests(study, ("qkv", "qk"))
    return finding(
        study,
        f"To add them to V as well changes little: {MARGIN} BLEU at most.",
        alike(tests),
        told(tests),
        "median 23.86 (Q, K, V) against 24.05 (Q, K)",
        _ELSEWHERE,
    )


ITEM = Item("Table 5: positions in Q, K and V", (GRID,), build)
