"""The results that a study may ask for, the measures that make them, and whether the runs have
those that a study shows, before anything is run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift.study.by_length import bounds_label
from shapeshift.study.grid import Grid, PlannedRun
from shapeshift.study.measured import Axes, fits
from shapeshift.study.spec import ALL, ClaimSpec, ColumnSpec, StudySpec, TableSpec


@dataclass(frozen=True)
class Metric:
    """A result.

    Attributes:
        meaning: what it is, for people.
        measures: of a grid; one of them makes it. None for what every run has, and for scores.
        setting: of a score: the name in `evaluation.metrics`, without which it is not computed.
        bucket: such as there are, where it is measured in parts alone.
        is_whole: whether it is a whole number, and is shown as one.
    """

    meaning: str
    measures: tuple[str, ...] = ()
    setting: str = ""
    bucket: str = ""
    is_whole: bool = False

    @property
    def is_score(self) -> bool:
        """Whether it scores translations of a split, by the measure `score-SPLIT`."""
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
    "parameters": Metric("number of trained parameters", is_whole=True),
    "training_s": Metric("seconds of training"),
    "tokens_per_s": Metric("median target tokens per second in training"),
    "valid_loss": Metric("validation loss at the end of training"),
    "valid_perplexity": Metric("validation perplexity at the end of training"),
    "speed": Metric("training speed relative to `ape`, on the same batches", ("speed",)),
    "decoding_speed": Metric("decoding speed relative to `ape`", ("decoding-speed",)),
    "step_bytes": Metric(
        "peak memory of a training step in bytes",
        ("step-memory",),
        bucket="length 256",
        is_whole=True,
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
"""Metrics that are no results: what the library declares, what the settings say."""


_ORDERS = ("original order", "swapped order")
"""Buckets of BLEU by the measure `swapped-order`, on training text."""

_TOOLKITS = {"fairseq": "fairseq", "opennmt-py": "OpenNMT-py"}
"""Measure → its bucket of BLEU."""


def check_measurements(spec: StudySpec, grid: Grid, runs: Sequence[PlannedRun], path: Path) -> None:
    """Raise a `ShapeshiftError` for results that a study asks for and some run lacks. A score
    that the grid computes in other profiles alone is a dash at this one.

    Args:
        spec: of the study.
        grid: of the runs.
        runs: the study's, in one profile, with all overrides.
        path: of the study's file, for the error.
    """
    elsewhere = set[str]().union(*grid.metrics.values()) - grid.metrics[runs[0].profile]
    lines = dict[str, None]()
    for place, axes, problem_of in _asked(spec, elsewhere):
        found = {
            planned.name: problem_of(planned)
            for planned in runs
            if fits(planned.axes, planned.seed, axes)
        }
        lacking = {name: problem for name, problem in found.items() if problem}
        if lacking:
            name, problem = next(iter(lacking.items()))
            where = f" (in the run {name})" if len(lacking) < len(found) else ""
            lines[f"{place}: {problem}{where}"] = None
    if lines:
        raise ShapeshiftError("; ".join(lines), path=path)


def _asked(
    spec: StudySpec, elsewhere: Collection[str]
) -> Iterator[tuple[str, Axes, Callable[[PlannedRun], str]]]:
    """Yield each place that shows or tests results, the settings of its runs, and a function
    that returns why a run lacks them; empty if it has them."""
    for number, table in enumerate(spec.tables):
        for title, column in table.columns.items():
            if not (column.count or column.gain_of or column.difference):
                place, axes = f"tables.{number}.columns.{title}", table.only | column.only
                yield place, axes, partial(_column_problem, table, column, elsewhere)
    for number, figure in enumerate(spec.by_length):
        for split in figure.splits:
            yield f"by_length.{number}", figure.only, partial(_lacks_measure, "BLEU", split)
    for number, claim in enumerate(spec.claims):
        place = f"claims.{number}"
        each = {axis: wanted for axis, wanted in claim.each.items() if wanted != (ALL,)}
        if claim.rule != "threshold":
            yield place, {**each, **claim.test}, partial(_lacks_measure, "BLEU", claim.split)
        elif claim.metric in METRICS or not spec.analyses:  # they name their values as they like
            yield place, {**each, **claim.test}, partial(_claim_problem, claim, elsewhere)


def _column_problem(
    table: TableSpec, column: ColumnSpec, elsewhere: Collection[str], planned: PlannedRun
) -> str:
    name = column.metric
    if name in FACTS and table.plot and column is table.columns[table.plot.y]:
        return f"{name} is no number; choose another column as y of plot"
    is_score = name in METRICS and METRICS[name].is_score
    buckets = [*table.buckets.values()] if is_score and table.buckets else [column.bucket]
    if name in FACTS and (column.split or column.bucket or column.layers):
        return f"{name} is a fact of the settings; leave split, bucket and layers out"
    if column.layers and name in METRICS and not METRICS[name].bucket.startswith("layer"):
        return f"layers is for a result of each layer, such as shift_similarity, not {name}"
    for split in ("valid", "test") if column.split == "each set" else (column.split,):
        for bucket in buckets:
            is_part = bool(bucket or table.buckets or column.layers)
            if problem := _problem(planned, name, split, bucket, elsewhere, is_part=is_part):
                return problem
    return ""


def _claim_problem(claim: ClaimSpec, elsewhere: Collection[str], planned: PlannedRun) -> str:
    name = claim.metric
    if name in FACTS or (name in METRICS and METRICS[name].bucket):
        return f"metric: {name} is not one number of a run; test a value that an analysis returns"
    is_score = name in METRICS and METRICS[name].is_score
    return _problem(
        planned, name, claim.split if is_score else None, None, elsewhere, is_part=False
    )


def _problem(
    planned: PlannedRun,
    name: str,
    split: str | None,
    bucket: str | None,
    elsewhere: Collection[str],
    *,
    is_part: bool,
) -> str:
    """Return why a run lacks a result of a split, or of the run; empty if it has it.

    Args:
        run: the run.
        name: of the metric.
        split, bucket: of which it is.
        elsewhere: scores that are computed in other profiles alone.
        is_part: whether a part of the result is asked for.
    """
    metric, has_own_measures = METRICS.get(name), _has_own_measures(planned)
    if metric is None:
        if has_own_measures or name in FACTS:
            return ""
        return unknown("metric: unknown", name, [*METRICS, *FACTS])
    if metric.is_score:
        evaluation = planned.config.evaluation
        if metric.setting not in {*evaluation.metrics, *elsewhere}:
            return f"{name} is not computed; add {metric.setting} to evaluation.metrics of the runs"
        if bucket in _ORDERS and split is None:
            return _lacks_measure(name, "original-order", planned)
        bounds = pairwise([0, *evaluation.length_buckets, None])
        lengths = [bounds_label((low or 0, high)) for low, high in bounds]
        if split is None and not (has_own_measures and bucket and bucket not in lengths):
            return f"split: missing; say which text {name} is of: valid or test"
        known = [
            *lengths,
            *(own for measure, own in _TOOLKITS.items() if measure in planned.measures),
        ]
        if bucket and not has_own_measures and name == "BLEU" and bucket not in known:
            return unknown(f"bucket: {name} of {split} has none that is called", bucket, known)
        if not bucket or name == "BLEU":
            return _lacks_measure(name, split, planned) if split else ""
    elif split is not None:
        return f"split: {name} is not measured on translations; leave split out"
    if metric.bucket and not is_part:
        return f"bucket: missing; {name} has one, such as {metric.bucket!r}"
    if bucket and not metric.bucket and not has_own_measures:
        return f"bucket: {name} is not measured in parts; leave bucket out"
    return _lacks_measure(name, None, planned) if metric.measures else ""


def _lacks_measure(name: str, split: str | None, planned: PlannedRun) -> str:
    """Return that a run has no measure that makes a result; empty if it has one."""
    needed = METRICS[name].measures
    if split:
        needed = ("swapped-order" if split == "original-order" else f"score-{split}",)
    if _has_own_measures(planned) or set(needed) & set(planned.measures):
        return ""
    return (
        f"{name} needs the measure {' or '.join(needed)}, which is not among the grid's measures"
        f" ({', '.join(planned.measures)}); add it there"
    )


def _has_own_measures(planned: PlannedRun) -> bool:
    """Return whether there are measures of one's own, which measure what they like."""
    return any(":" in measure for measure in planned.measures)
