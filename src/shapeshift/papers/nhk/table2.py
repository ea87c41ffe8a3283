"""Table 2: positions in self-attention and in cross-attention, one layer."""

from __future__ import annotations

from shapeshift.papers.claims import Tests, beside, better, finding, no_worse, told
from shapeshift.papers.column import note
from shapeshift.papers.document import Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.layout import Heads, Layout, Published, ours, published
from shapeshift.papers.nhk.shared import LONG_RUNS, ORIGINALS, READINGS
from shapeshift.papers.study import Axes, Study

GRID = "nhk-table2"

LAYOUT = Layout(("self-attention", "cross-attention"))

PUBLISHED: dict[str, Published] = {
    "original": ((29.05, 29.13, 0.16), (-8.07, -7.52, 1.12)),
    "original-cross-pe": ((29.02, 29.03, 0.15), (-8.87, -8.91, 0.46)),
    "less-feeding": ((36.59, 36.65, 0.29), (34.14, 34.49, 0.48)),
    "less-feeding-cross-pe": ((38.11, 38.32, 0.27), (38.78, 39.00, 0.88)),
    "none": ((10.59, 10.57, 0.18), (-73.42, -73.40, 0.74)),
    "none-cross-pe": ((10.43, 10.41, 0.10), (-73.57, -74.09, 1.17)),
}

_ELSEWHERE = (
    "short sentences of English and German are nearly in the same order, so that positions in"
    f" cross-attention alone say most; {LONG_RUNS}"
)


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    systems: dict[Heads, list[Axes]] = {
        heads(system): [{"system": system}] for system in study.settings(GRID, "system")
    }
    title = "Positions in self- and cross-attention, one layer"
    theirs: dict[Heads, list[Published]] = {
        heads(system): [scores] for system, scores in PUBLISHED.items()
    }
    return Content(
        tables=[
            ours(
                study,
                GRID,
                LAYOUT,
                systems,
                name="table2",
                title=title,
                notes=[READINGS, note(f"{ORIGINALS[0].upper()} without CROSS-PE")],
                tested=("system", ORIGINALS[0]),
            ),
            published(LAYOUT, theirs, name="table2-paper", title=f"{title}, in the paper"),
        ],
        findings=[
            *(
                judged(study, original)
                for judged in (_self_attention, _less_feeding, _best)
                for original in ORIGINALS
            ),
            _cross(study),
        ],
    )


def heads(system: str) -> Heads:
    """Return what a system does in self-attention and in cross-attention."""
    inside = system.removesuffix("-cross-pe")
    return inside, "none" if inside == system else "cross-pe"


def _tests(study: Study, *pairs: tuple[str, str]) -> Tests:
    return beside(study, GRID, "system", pairs)


def _self_attention(study: Study, original: str) -> Finding:
    tests = _tests(study, (original, "none"), (original, "none-cross-pe"))
    return finding(
        study,
        "Positions work in self-attention above all: without them there, CROSS-PE or not, a model"
        f" is far behind {original.upper()}.",
        better(tests),
        told(tests),
        "median 29.05 against 10.59 and 10.43",
        _ELSEWHERE,
    )


def _less_feeding(study: Study, original: str) -> Finding:
    tests = _tests(
        study, ("less-feeding", original), ("less-feeding-cross-pe", f"{original}-cross-pe")
    )
    return finding(
        study,
        "Positions in Q and K of self-attention (LESS-FEEDING) are better than"
        f" {original.upper()}.",
        better(tests),
        told(tests),
        "median 36.59 against 29.05, and 38.11 against 29.02 with CROSS-PE",
        _ELSEWHERE,
    )


def _cross(study: Study) -> Finding:
    tests = _tests(study, ("less-feeding-cross-pe", "less-feeding"))
    return finding(
        study,
        "Positions in cross-attention (CROSS-PE) add to LESS-FEEDING.",
        better(tests),
        told(tests),
        "median 38.11 against 36.59",
        _ELSEWHERE,
    )


def _best(study: Study, original: str) -> Finding:
    tests = _tests(study, ("less-feeding-cross-pe", original))
    return finding(
        study,
        f"LESS-FEEDING with CROSS-PE is at least as good as {original.upper()}.",
        no_worse(tests),
        told(tests),
        "median 38.11 against 29.05",
        _ELSEWHERE,
    )


ITEM = Item("Table 2: which attention needs positions", (GRID,), build)
