"""Table 3: absolute and relative positions in four directions of translation."""

from __future__ import annotations

from shapeshift.papers.claims import Tests, better, finding, no_worse, told, versus
from shapeshift.papers.column import note
from shapeshift.papers.document import Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.layout import Heads, Layout, Published, ours, published
from shapeshift.papers.nhk.shared import LONG_RUNS, ORIGINALS, READINGS
from shapeshift.papers.study import Axes, Study

GRID = "nhk-table3"

HEADS = ("PE", "LESS-FEEDING", "CROSS-PE")

SYSTEMS: dict[str, tuple[str, str, str]] = {
    "original": ("absolute", "", ""),
    "original-qkv": ("absolute, Q, K and V", "", ""),
    "original-embedding": ("absolute, embedding", "", ""),
    "less-feeding": ("absolute", "yes", ""),
    "less-feeding-cross-pe": ("absolute", "yes", "yes"),
    "relative": ("relative", "yes", ""),
    "relative-cross-pe": ("relative", "yes", "yes"),
}
"""System, ours or the paper's, → `HEADS`. Relative positions never touch V: LESS-FEEDING."""

DIRECTIONS = ("fr-de", "de-fr", "ja-en", "en-ja")

# system -> fr-de, de-fr, ja-en, en-ja -> BLEU and COMET
PUBLISHED: dict[str, tuple[Published, ...]] = {
    "original": (
        ((37.15, 37.15, 0.04), (36.51, 37.34, 1.58)),
        ((26.36, 26.32, 0.13), (16.24, 16.39, 0.69)),
        ((18.82, 18.87, 0.49), (15.39, 15.10, 0.51)),
        ((20.09, 20.06, 0.18), (37.00, 36.46, 1.13)),
    ),
    "less-feeding": (
        ((38.82, 38.82, 0.12), (39.37, 39.81, 0.96)),
        ((26.56, 26.57, 0.21), (19.11, 18.93, 0.97)),
        ((18.35, 18.16, 0.69), (14.54, 14.73, 0.45)),
        ((20.31, 20.29, 0.04), (38.43, 38.18, 0.69)),
    ),
    "less-feeding-cross-pe": (
        ((38.86, 38.85, 0.26), (41.13, 41.06, 0.45)),
        ((26.54, 26.55, 0.42), (18.92, 19.38, 1.25)),
        ((18.13, 18.32, 0.34), (15.86, 15.19, 1.19)),
        ((20.46, 20.50, 0.17), (38.27, 38.42, 0.34)),
    ),
    "relative": (
        ((38.79, 38.92, 0.33), (40.29, 40.37, 0.65)),
        ((26.41, 26.56, 0.27), (19.67, 19.28, 0.86)),
        ((17.80, 17.97, 1.30), (14.91, 15.04, 1.67)),
        ((20.38, 20.29, 0.27), (37.66, 37.50, 0.62)),
    ),
    "relative-cross-pe": (
        ((38.89, 38.86, 0.05), (41.22, 41.47, 1.29)),
        ((26.52, 26.55, 0.13), (19.10, 19.05, 0.38)),
        ((19.18, 19.05, 0.25), (17.66, 17.22, 1.08)),
        ((20.35, 20.33, 0.28), (37.76, 37.98, 0.62)),
    ),
}

_ELSEWHERE = (
    "the paper's own differences are under two BLEU and not in every direction alike; its models"
    f" have six layers, and {LONG_RUNS}"
)


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    directions = study.settings(GRID, "languages")
    systems: dict[Heads, list[Axes]] = {
        SYSTEMS[system]: [{"system": system, "languages": each} for each in directions]
        for system in study.settings(GRID, "system")
    }
    theirs: dict[Heads, tuple[Published, ...]] = {
        SYSTEMS[system]: scores for system, scores in PUBLISHED.items()
    }
    title = "Absolute and relative positions in the first layer"
    tables = [
        ours(
            study,
            GRID,
            Layout(HEADS, tuple(directions)),
            systems,
            name="table3",
            title=title,
            notes=[
                f"{READINGS} (here absolute, neither LESS-FEEDING nor CROSS-PE)",
                note(f"{ORIGINALS[0].upper()} in its direction"),
            ],
            tested=("system", ORIGINALS[0]),
        ),
        published(
            Layout(HEADS, DIRECTIONS),
            theirs,
            name="table3-paper",
            title=f"{title}, in the paper",
            notes=("fr-de, de-fr, ja-en, en-ja: WMT 2022",),
        ),
    ]
    findings = [
        judged(study, original) for judged in (_absolute, _relative) for original in ORIGINALS
    ]
    return Content(tables=tables, findings=[*findings, _cross(study)])


def _tests(study: Study, system: str, baseline: str) -> Tests:
    return {
        direction: versus(study, GRID, "system", (system, baseline), {"languages": direction})
        for direction in study.settings(GRID, "languages")
    }


def _absolute(study: Study, original: str) -> Finding:
    tests = _tests(study, "less-feeding-cross-pe", original)
    return finding(
        study,
        f"LESS-FEEDING with CROSS-PE, absolute, is at least as good as {original.upper()} in every"
        " direction.",
        no_worse(tests),
        told(tests),
        "medians 38.86 and 37.15, 26.54 and 26.36, 18.13 and 18.82 (ja-en, the exception), 20.46"
        " and 20.09",
        _ELSEWHERE,
    )


def _relative(study: Study, original: str) -> Finding:
    tests = _tests(study, "relative-cross-pe", original)
    return finding(
        study,
        f"Relative positions with CROSS-PE are better than {original.upper()} in every direction.",
        better(tests),
        told(tests),
        "medians 38.89 and 37.15, 26.52 and 26.36, 19.18 and 18.82, 20.35 and 20.09; not tested",
        _ELSEWHERE,
    )


def _cross(study: Study) -> Finding:
    tests = _tests(study, "relative-cross-pe", "relative")
    return finding(
        study,
        "CROSS-PE takes nothing from relative positions in any direction.",
        no_worse(tests),
        told(tests),
        "medians 38.89 and 38.79, 26.52 and 26.41, 19.18 and 17.80, 20.35 and 20.38",
        _ELSEWHERE,
    )


ITEM = Item("Table 3: absolute and relative positions", (GRID,), build)
