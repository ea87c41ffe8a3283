"""A metric by source length as a table and a figure, with the lengths that training never showed.

Kiyono et al. 2021 (SHAPE), Figure 7 (absolute) and Figure 3 (gain over APE); Miyazaki et al. 2024
(NHK), Figure 3. Differs from the papers: each bucket names its number of segments, and buckets with
few are drawn hollow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.evaluation.scores import FEW_SEGMENTS, LengthBucket, Scores, up_to_longest
from shapeshift.evaluation.tables import FEW_MARK, NO_BLEU
from shapeshift.run.measures import Metric
from shapeshift.study.document import Content, DocumentTable, Entry, number, summary, words
from shapeshift.study.figures import Line, Panel, bars_note, draw_lines
from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Bounds, Measured
from shapeshift.study.significance import MARK
from shapeshift.study.spec import ByLengthSpec, Lengths, Where
from shapeshift.study.verdicts import Part, mark_note, significant, with_p_value

UNSEEN_MARK = "‡"
Values = dict[str, list[list[float]]]
"""Name of a line → for each bucket the value of each run (seed); none for an empty bucket."""


@dataclass(frozen=True)
class LengthValues:
    """Values over buckets of source lengths: a panel of the figure, and a group of rows of
    the table.

    Attributes:
        buckets: of all lines.
        lines: values.
        trained: source lengths in training; `None` where they are not limited.
        tests: line → number of a bucket → its comparison with the first line there.
        name: its setting of the axis of panels; empty if there is but one.
    """

    buckets: Sequence[LengthBucket]
    lines: Values
    trained: Bounds | None = None
    tests: Mapping[str, Mapping[int, Part]] = field(default_factory=dict)
    name: str = ""

    def is_unseen(self, bucket: LengthBucket) -> bool:
        """Return whether training had no sentences of a bucket's lengths."""
        low, high = self.trained or (0, None)
        return (high is not None and bucket.low >= high) or (
            bucket.high is not None and bucket.high <= low
        )

    def panel(self, y_title: str = "", number: int = 0, **options: Any) -> Panel:
        """Return a panel of a figure, which has a number if it has a name, with the buckets that
        training never showed shaded; `options` are those of `Panel`."""
        places = range(len(self.buckets))
        small = [place for place in places if self.buckets[place].is_small]
        trained = f", trained on {bounds_label(self.trained)}" if self.trained else ""
        return Panel(
            lines=[Line(name, places, values, small) for name, values in self.lines.items()],
            y_title=y_title,
            title=f"({chr(ord('a') + number)}) {self.name}{trained}" if self.name else "",
            places=[f"{bucket.label}\n{bucket.num_segments:,}" for bucket in self.buckets],
            shaded=[(n - 0.5, n + 0.5) for n in places if self.is_unseen(self.buckets[n])],
            **options,
        )


def gather(
    lines: Mapping[str, Sequence[Scores]], baseline: str = "", *, lower_is_better: bool = False
) -> tuple[Sequence[LengthBucket], Values]:
    """Return the buckets up to the longest segment, and the values of each line. With a baseline,
    values are gains over its mean, because runs are not paired; a gain is above 0 where the value
    is better.

    Raises:
        ShapeshiftError: runs were scored on other references or lengths, or in another way.
    """
    first, *others = (_basis(run) for runs in lines.values() for run in runs)
    if any(other != first for other in others):
        raise ShapeshiftError(
            f"{', '.join(lines)} have different references, source lengths or signatures;"
            " by_length compares runs that translate the same text and are scored alike"
        )
    buckets = up_to_longest(next(iter(lines.values()))[0].by_length or ())
    values = {
        name: [
            [bucket.score.value for bucket in same if bucket.score is not None]
            for same in zip(*((run.by_length or ())[: len(buckets)] for run in runs), strict=True)
        ]
        for name, runs in lines.items()
    }
    if baseline:
        means = [fmean(seeds) if seeds else 0.0 for seeds in values.pop(baseline)]
        sign = -1 if lower_is_better else 1
        for own in values.values():
            own[:] = [[sign * (x - y) for x in xs] for xs, y in zip(own, means, strict=True)]
    return buckets, values


def _basis(scores: Scores) -> object:
    """Return the properties that scores must share to be compared by length."""
    buckets = ((x.low, x.high, x.num_segments, x.score) for x in scores.by_length or ())
    signatures = [(*bounds, score and score.signature) for *bounds, score in buckets]
    return scores.references_sha256, signatures


def trained_lengths(config: Config) -> Bounds | None:
    """Return the source lengths in training, where the dataset limits them."""
    match config.data.recipe:
        case Extrapolate(max_length=longest):
            return 1, longest + 1
        case LengthSlice(min_length=shortest, max_length=end):
            return shortest, end
    return None


def length_bounds(config: Config, lengths: Lengths) -> Bounds | None:
    """Return the source lengths inside or beyond those of training. `None` if there are none, or if
    they lie on both sides of the training lengths, which one test cannot combine."""
    trained = trained_lengths(config)
    if lengths == "inside" or trained is None:
        return trained
    low, high = trained
    if low <= 1:
        return None if high is None else (high, None)
    return (0, low) if high is None else None


def bounds_label(bounds: Bounds | None) -> str:
    """Return lengths as shown to people: `0–9`, `≥ 50`."""
    if bounds is None:
        return "all"
    return LengthBucket(low=bounds[0], high=bounds[1], num_segments=0, score=None).label


def ranges(edges: Sequence[int]) -> list[Bounds]:
    """Return the ranges between edges: the first from 0 on, the last without an end."""
    return [*zip((0, *edges), (*edges, None), strict=True)]


def values_by_length(measured: Measured, spec: ByLengthSpec, name: str) -> Content:
    """Return a metric by source length as a table and a figure with this name; nothing if no run is
    finished."""
    metric = measured.metric(spec.metric, spec.splits[0])
    settings = measured.settings(spec.panels) if spec.panels else [""]
    axes = (spec.only | ({spec.panels: setting} if setting else {}) for setting in settings)
    panels = [panel for each in axes if (panel := _panel(measured, spec, each))]
    if not panels:
        return Content()
    lines = [x for x in measured.settings(spec.lines) if any(x in panel.lines for panel in panels)]
    drawn = [
        panel.panel(
            f"{metric.title} gain over {spec.gain_over}" if spec.gain_over else metric.title,
            n,
            zero=bool(spec.gain_over),
            min_span=metric.min_span,
        )
        for n, panel in enumerate(panels)
    ]
    is_unseen = any(panel.shaded for panel in drawn)
    buckets = [bucket for panel in panels for bucket in panel.buckets]
    is_small = any(bucket.is_small for bucket in buckets)
    marks = ["shaded: unseen in training"] * is_unseen
    marks += [f"hollow: fewer than {FEW_SEGMENTS}"] * is_small
    x_title = "source length in subwords; below it the number of segments"
    if marks:
        x_title += "\n" + "; ".join(marks)
    notes = [*spec.notes]
    notes += [f"{UNSEEN_MARK} longer or shorter than anything in training"] * is_unseen
    notes += [f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments"] * is_small
    notes += [NO_BLEU] * any(x.num_segments > 0 and x.score is None for x in buckets)
    seeds = (each for panel in panels for own in panel.lines.values() for each in own)
    notes.append("mean ± standard deviation over seeds" if max(map(len, seeds)) > 1 else "one seed")
    notes += measured.unfinished_note(spec.only)
    if spec.tested:
        notes += _notes_on_tests(panels, _baseline(measured, spec), metric)
    differing = significant(
        {
            (panel.name, line, place): test
            for panel in panels
            for line, tests in panel.tests.items()
            for place, test in tests.items()
        }
    )

    def field(panel: LengthValues, line: str, place: int) -> Entry:
        seeds = panel.lines[line][place] if line in panel.lines else []
        marks = FEW_MARK * panel.buckets[place].is_small
        marks += MARK * ((panel.name, line, place) in differing)
        entry = summary(seeds, "mean ± stdev", marks, "+" * bool(spec.gain_over), metric.decimals)
        return with_p_value(entry, panel.tests.get(line, {}).get(place))

    rows = []
    for panel in panels:
        for place, bucket in enumerate(panel.buckets):
            label = bucket.label + UNSEEN_MARK * panel.is_unseen(bucket)
            names = words(*filter(None, (panel.name, label)))
            fields = (field(panel, line, place) for line in lines)
            rows.append((*names, number(bucket.num_segments, ","), *fields))
    table = DocumentTable(
        name=name,
        title=spec.title,
        header=(*filter(None, [spec.panels]), "source length", "segments", *lines),
        rows=tuple(rows),
        notes=tuple(notes),
        figure=spec.title + bars_note(line for panel in drawn for line in panel.lines),
        drawing=draw_lines(drawn, x_title),
    )
    return Content([table])


def _notes_on_tests(panels: Sequence[LengthValues], baseline: str, metric: Metric) -> Iterator[str]:
    untested = [
        panel.name or "all"
        for panel in panels
        if not any(part.comparison for own in panel.tests.values() for part in own.values())
    ]
    if len(untested) < len(panels):
        yield mark_note(baseline, [metric], "tests of the table")
    if untested:
        why = f"not tested, as there is no finished run of {baseline} and another"
        yield f"{why}: {', '.join(untested)}"


def _panel(measured: Measured, spec: ByLengthSpec, axes: Where) -> LengthValues | None:
    """Return the panel of these runs, with the lines that have finished runs."""
    first = _baseline(measured, spec)
    if (spec.tested or spec.gain_over) and measured.runs(axes):
        measured.require_baseline(axes | {spec.lines: first}, f"by_length {spec.title!r}")
    finished: dict[str, list[PlannedRun]] = {}
    for name in measured.settings(spec.lines):
        remedy = f"add it to only of by_length {spec.title!r}, or give it as panels"
        measured.require_one_model(axes | {spec.lines: name}, remedy)
        if runs := measured.finished(axes | {spec.lines: name}):
            finished[name] = runs
    if not finished or (spec.gain_over and (spec.gain_over not in finished or len(finished) == 1)):
        return None
    metric = measured.metric(spec.metric, spec.splits[0])
    buckets, values = gather(
        {
            name: [measured.scores(x, spec.splits, metric=metric) for x in own]
            for name, own in finished.items()
        },
        spec.gain_over,
        lower_is_better=metric.better == "lower",
    )
    tests = {
        name: {
            place: measured.compare(
                axes | {spec.lines: name},
                axes | {spec.lines: first},
                spec.splits[0],
                metric=spec.metric,
                lengths=(bucket.low, bucket.high),
            )
            for place, bucket in enumerate(buckets)
            if bucket.num_segments >= FEW_SEGMENTS and bucket.score is not None
        }
        for name in (measured.settings(spec.lines) if spec.tested and first in finished else ())
        if name != first
    }
    found = {trained_lengths(runs[0].config) for runs in finished.values()}
    trained = found.pop() if len(found) == 1 else None  # nothing is unseen by all lines alike
    return LengthValues(buckets, values, trained, tests, axes.get(spec.panels, ""))


def _baseline(measured: Measured, spec: ByLengthSpec) -> str:
    """Return the baseline of the tests, finished or not."""
    return spec.gain_over or measured.settings(spec.lines)[0]
