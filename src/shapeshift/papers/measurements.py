"""The measurements that a study may ask for, the steps that make them, and whether a grid has
those that a study shows, before anything is run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from shapeshift.errors import ShapeshiftError, nearest, unknown
from shapeshift.lab.grid import Grid
from shapeshift.papers.spec import ItemSpec


@dataclass(frozen=True)
class Metric:
    """A measurement.

    Attributes:
        meaning: what it is, for people.
        steps: of a grid; one of them makes it. None for what every run has, and for scores.
        setting: of a score: the name in `evaluation.metrics`, without which it is not computed.
        bucket: such as there are, where it is measured in parts alone.
    """

    meaning: str
    steps: tuple[str, ...] = ()
    setting: str = ""
    bucket: str = ""

    @property
    def is_score(self) -> bool:
        """Whether it scores translations of a split, by the step `score-SPLIT`."""
        return bool(self.setting)


_PARTED = "on Interpolate, where the joined sentences are scored one by one"

METRICS: dict[str, Metric] = {
    "BLEU": Metric("sacreBLEU", setting="bleu"),
    "chrF2": Metric("sacreBLEU's chrF", setting="chrf"),
    "chrF2++": Metric("sacreBLEU's chrF++", setting="chrf++"),
    "COMET": Metric("COMET, times 100", setting="comet"),
    "BLEU by sentence": Metric(f"BLEU {_PARTED}", setting="bleu"),
    "chrF2 by sentence": Metric(f"chrF {_PARTED}", setting="chrf"),
    "chrF2++ by sentence": Metric(f"chrF++ {_PARTED}", setting="chrf++"),
    "parameters": Metric("number of trained parameters"),
    "training_s": Metric("seconds of training"),
    "tokens_per_s": Metric("median target tokens per second in training"),
    "valid_loss": Metric("validation loss at the end of training"),
    "valid_perplexity": Metric("validation perplexity at the end of training"),
    "speed": Metric("training speed relative to `ape`, on the same batches", ("speed",)),
    "decoding_speed": Metric("decoding speed relative to `ape`", ("decoding-speed",)),
    "step_bytes": Metric(
        "peak memory of a training step in bytes", ("step-memory",), bucket="length 256"
    ),
    "step_memory": Metric("peak memory relative to `ape`", ("step-memory",), bucket="length 256"),
    "shift_similarity": Metric(
        "how similar the encoder's states are under different offsets",
        ("similarity", "learning"),
        bucket="layer 1",
    ),
}
"""Name → what it is."""

FACTS = {
    "shift invariant": "whether the library declares the position shift invariant",
    "trained lengths": "source lengths in training",
}
"""Metrics that are no measurements: what the library declares, what the settings say."""


def check_measurements(spec: ItemSpec, grid: Grid, path: Path) -> None:
    """Raise a `ShapeshiftError` for measurements that an item asks for and no run of the grid
    has."""
    scales, steps = grid.config.scales, grid.config.steps
    scores = {
        score
        for scale in scales
        for config in {id(x.config): x.config for x in grid.cells(scale)}.values()
        for score in config.evaluation.metrics
    }
    problems: list[tuple[str, str]] = []

    def check(place: str, name: str, split: str | None, *, is_part: bool = False) -> None:
        problems.append((place, _problem(steps, scores, name, split, is_part=is_part)))

    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if column.count or column.gain_of or column.difference:
                continue
            is_part = bool(column.bucket or column.lengths or column.layers)
            for split in ("valid", "test") if column.split == "each set" else (column.split,):
                check(f"tables.{number}.columns.{title}", column.metric, split, is_part=is_part)
    for number, figure in enumerate(spec.by_length):
        for split in figure.splits:
            check(f"by_length.{number}", "BLEU", split)
    for number, claim in enumerate(spec.claims):
        for scale in (scale for scale in claim.scales if scale not in scales):
            hint, known = nearest(scale, scales), ", ".join(scales)
            problem = f"scales: the grid has no scale {scale!r}{hint} (it has {known})"
            problems.append((f"claims.{number}", problem))
        name = claim.metric
        if name in METRICS or not spec.analyses:  # which name their values as they like
            is_score = name in METRICS and METRICS[name].is_score
            check(f"claims.{number}", name, claim.split if is_score else None, is_part=True)
    if lines := [f"{place}: {problem}" for place, problem in problems if problem]:
        raise ShapeshiftError("; ".join(lines), path=path)


def _problem(
    steps: Collection[str], scores: Collection[str], name: str, split: str | None, *, is_part: bool
) -> str:
    """Return why a measurement of a split, or of the run, cannot be had; empty if it can.

    Args:
        steps: of the grid.
        scores: that the runs compute.
        is_part: whether a part of the measurement is asked for.
    """
    metric = METRICS.get(name)
    has_own_steps = any(":" in step for step in steps)  # which measure what they like
    if metric is None:
        if has_own_steps or name in FACTS:
            return ""
        return unknown("metric: unknown", name, [*METRICS, *FACTS])
    needed = metric.steps
    if metric.is_score:
        if metric.setting not in scores:
            return f"{name} is not computed; add {metric.setting} to evaluation.metrics of the runs"
        if split is None:
            return "" if is_part else f"split: missing; say which text {name} is of: valid or test"
        needed = ("swapped-order" if split == "original-order" else f"score-{split}",)
    elif split is not None:
        return f"split: {name} is not measured on translations; leave split out"
    elif metric.bucket and not is_part:
        return f"bucket: missing; {name} has one, such as {metric.bucket!r}"
    if not needed or has_own_steps or set(needed) & set(steps):
        return ""
    return (
        f"{name} needs the step {' or '.join(needed)}, which is not among the grid's steps"
        f" ({', '.join(steps)}); add it there"
    )
