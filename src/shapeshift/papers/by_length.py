"""BLEU by source length as a table and a figure, with the lengths that training never showed.

Kiyono et al. 2021 (SHAPE), Figure 7 (absolute) and Figure 3 (gain over APE); Miyazaki et al. 2024
(NHK), Figure 3. Differs from the papers: each bucket names its number of segments, and buckets with
few are drawn hollow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import numpy as np

from shapeshift.config import Config
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.evaluation.lengths import FEW_SEGMENTS, LengthBucket
from shapeshift.evaluation.scores import Scores, length_columns
from shapeshift.evaluation.tables import FEW_MARK
from shapeshift.lab.figures import Line, Panel, bars_note, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import MARK
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, missing, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import ByLengthSpec, Lengths
from shapeshift.papers.study import Bounds, Study
from shapeshift.papers.verdicts import Part, mark_note, significant, with_p_value

UNSEEN_MARK = "‡"
_MIN_SPAN = 2.0  # of the vertical axis, BLEU: less is within the noise of a few hundred segments

Values = Mapping[str, Sequence[Sequence[float]]]
"""System → for each bucket the BLEU of each run (seed); none for an empty bucket."""


@dataclass(frozen=True)
class LengthBleu:
    """BLEU of systems over buckets of source lengths: a panel of the figure, and a group of rows of
    the table.

    Attributes:
        buckets: of the first system; bounds and counts are the same for all.
        systems: BLEU.
        trained: source lengths in training; `None` where they are not limited.
        runs: system → its finished cells, one for each seed.
        tests: system → number of a bucket → its comparison with the first there.
        name: the lengths in training; empty if there is but one panel.
    """

    buckets: Sequence[LengthBucket]
    systems: Values
    trained: Bounds | None = None
    runs: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    tests: Mapping[str, Mapping[int, Part]] = field(default_factory=dict)
    name: str = ""

    def is_unseen(self, bucket: LengthBucket) -> bool:
        """Return whether training has shown none of a bucket's lengths."""
        low, high = self.trained or (0, None)
        return (high is not None and bucket.low >= high) or (
            bucket.high is not None and bucket.high <= low
        )

    def panel(self, y_title: str = "BLEU", title: str = "", *, zero: bool = False) -> Panel:
        """Return the panel of a figure, with the lengths that training never showed shaded."""
        small = [place for place, bucket in enumerate(self.buckets) if bucket.is_small]
        places = range(len(self.buckets))
        return Panel(
            lines=[Line(name, places, values, small) for name, values in self.systems.items()],
            y_title=y_title,
            title=title,
            places=[f"{bucket.label}\n{bucket.num_segments:,}" for bucket in self.buckets],
            shaded=self._unseen_spans(),
            zero=zero,
            min_span=_MIN_SPAN,
        )

    def _unseen_spans(self) -> list[tuple[float, float]]:
        low, high = self.trained or (0, None)
        lows = [bucket.low for bucket in self.buckets]
        left, right = -0.5, len(lows) - 0.5
        start = left if low <= 1 else place_of(low, lows)  # no sentence has length 0
        end = right if high is None else place_of(high, lows)
        return [span for span in ((left, start), (end, right)) if span[0] < span[1]]


def place_of(length: int, lows: Sequence[int]) -> float:
    """Return where a length is on an axis of buckets that begin at `lows`: bucket i spans i ± 0.5;
    the last one, which has no end, runs as fast as the one before it."""
    width = lows[-1] - lows[-2] if len(lows) > 1 else 1
    return float(np.interp(length, [*lows, lows[-1] + width], np.arange(len(lows) + 1) - 0.5))


def gather(systems: Mapping[str, Sequence[Scores]]) -> tuple[Sequence[LengthBucket], Values]:
    """Return the buckets of systems and their BLEU in each.

    Raises:
        ShapeshiftError: scores that cannot be compared.
    """
    columns = length_columns(
        {f"{name} (run {n})": x for name, runs in systems.items() for n, x in enumerate(runs, 1)}
    )
    values = {
        name: [
            [bucket.bleu for bucket in same if bucket.bleu is not None]
            for same in zip(*(run.by_length or () for run in runs), strict=True)
        ]
        for name, runs in systems.items()
    }
    return next(iter(columns.values())), values


def gains(systems: Values, baseline: str) -> Values:
    """Return BLEU minus the mean of the baseline, for every other system: their runs do not come in
    pairs."""
    return {
        name: [
            [value - fmean(base) for value in values]
            for values, base in zip(buckets, systems[baseline], strict=True)
        ]
        for name, buckets in systems.items()
        if name != baseline
    }


def trained_lengths(config: Config) -> Bounds | None:
    """Return the source lengths in training, where the dataset limits them."""
    match config.data.dataset:
        case Extrapolate(max_length=longest):
            return 1, longest + 1
        case LengthSlice(min_length=shortest, max_length=end):
            return shortest, end
    return None


def length_bounds(config: Config, lengths: Lengths) -> Bounds | None:
    """Return the source lengths that training has shown, or has not; `None` where there are none,
    or they are on both sides of those in training, which one test cannot take together."""
    trained = trained_lengths(config)
    if lengths == "inside" or trained is None:
        return trained
    low, high = trained
    if low <= 1:
        return None if high is None else (high, None)
    return (0, low) if high is None else None


def bounds_label(bounds: Bounds | None) -> str:
    """Return what people call lengths, and measurements the bucket of these: `0–9`, `≥ 50`."""
    if bounds is None:
        return "all"
    return LengthBucket(low=bounds[0], high=bounds[1], num_segments=0, score=None).label


def bleu_by_length(study: Study, spec: ByLengthSpec, name: str) -> Content:
    """Return BLEU by source length as a table and a figure of this name; nothing where no run is
    finished."""
    panels = _panels(study, spec)
    if not panels:
        return Content()
    systems = list(dict.fromkeys(system for panel in panels for system in panel.systems))
    heads = ["trained on", "source length"] if spec.panels else ["source length"]
    sign = "+" if spec.gain_over else ""
    table = DocumentTable(
        name=name,
        title=spec.title,
        header=(*heads, "segments", *systems),
        rows=tuple(row for panel in panels for row in _rows(panel, systems, sign)),
        notes=tuple(_notes(panels, spec.notes)),
    )
    shaded = any(panel.trained for panel in panels)
    marks = ["shaded: unseen in training"] if shaded else []
    if any(bucket.is_small for panel in panels for bucket in panel.buckets):
        marks.append(f"hollow: fewer than {FEW_SEGMENTS}")
    note = "; lengths that training has not shown are shaded" if shaded else ""
    y_title = f"BLEU gain over {spec.gain_over}" if spec.gain_over else "BLEU"
    drawn = [
        panel.panel(
            y_title,
            f"({letter}) trained on {panel.name} lengths" if panel.name else "",
            zero=bool(spec.gain_over),
        )
        for letter, panel in zip("abcdefgh", panels, strict=False)
    ]
    about = DocumentFigure(
        name=name,
        title=spec.title + note + bars_note(line for panel in drawn for line in panel.lines),
        table=name,
        alt=f"{spec.title}: {'; '.join(map(_spoken, panels))}{note}.",
    )
    x_title = ["source length in subwords; below it the number of segments", "; ".join(marks)]
    return Content([table], [Figure(about, draw_lines(drawn, "\n".join(filter(None, x_title))))])


def _panels(study: Study, spec: ByLengthSpec) -> list[LengthBleu]:
    """Return the panels with the systems that are finished for each one that has any."""
    groups = []
    for setting in study.settings(spec.panels) if spec.panels else [""]:
        axes = spec.only | ({spec.panels: setting} if setting else {})
        runs = {
            system: cells
            for system in study.settings(spec.systems)
            if (cells := study.finished(axes | {spec.systems: system}))
        }
        if runs:
            groups.append((axes, runs))
    shared = set.intersection(*(set(runs) for _, runs in groups)) if groups else set()
    if not shared or (spec.gain_over and (spec.gain_over not in shared or len(shared) == 1)):
        return []
    panels = []
    for axes, all_runs in groups:
        runs = {system: cells for system, cells in all_runs.items() if system in shared}
        trained = trained_lengths(next(iter(runs.values()))[0].config)
        buckets, bleu = gather(
            {system: [study.scores(x, *spec.splits) for x in own] for system, own in runs.items()}
        )
        panels.append(
            LengthBleu(
                buckets,
                gains(bleu, spec.gain_over) if spec.gain_over else bleu,
                trained,
                runs,
                _tests(study, buckets, axes, spec.systems, [*runs]) if spec.tested else {},
                bounds_label(trained) if spec.panels else "",
            )
        )
    return panels


def _rows(panel: LengthBleu, systems: Sequence[str], sign: str) -> list[tuple[Entry, ...]]:
    cells = [cell for own in panel.runs.values() for cell in own]
    marked = {system: significant(tests) for system, tests in panel.tests.items()}
    rows = []
    for place, bucket in enumerate(panel.buckets):
        fields = [number(bucket.num_segments, ",", cells)]
        for system in systems:
            seeds = panel.systems[system][place]
            if not seeds:  # no sentence is so long
                fields.append(missing())
                continue
            text = f"{fmean(seeds):{sign}.2f}"
            text += f" ± {stdev(seeds):.2f}" if len(seeds) > 1 else ""
            text += FEW_MARK * bucket.is_small + MARK * (place in marked.get(system, ()))
            field = number(fmean(seeds), cells=panel.runs[system])
            field = field.model_copy(update={"text": text})
            fields.append(with_p_value(field, panel.tests.get(system, {}).get(place)))
        label = bucket.label + UNSEEN_MARK * panel.is_unseen(bucket)
        rows.append((*words(*filter(None, (panel.name, label))), *fields))
    return rows


def _notes(panels: Sequence[LengthBleu], notes: Sequence[str]) -> list[str]:
    lines = [*notes]
    buckets = [(panel, bucket) for panel in panels for bucket in panel.buckets]
    if any(panel.is_unseen(bucket) for panel, bucket in buckets):
        lines.append(f"{UNSEEN_MARK} longer or shorter than anything in training")
    if any(bucket.is_small for _, bucket in buckets):
        lines.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    seeds = [len(each) for panel in panels for own in panel.systems.values() for each in own]
    lines.append("mean ± standard deviation over seeds" if max(seeds) > 1 else "one seed")
    if panels[0].tests:
        lines.append(mark_note(next(iter(panels[0].runs)), "lengths of the system"))
    return lines


def _tests(
    study: Study,
    buckets: Sequence[LengthBucket],
    axes: Mapping[str, str],
    axis: str,
    systems: Sequence[str],
) -> dict[str, dict[int, Part]]:
    """Return system → number of a bucket → comparison with the first system there."""
    first, *others = systems
    return {
        system: {
            place: study.compare(
                {**axes, axis: system}, {**axes, axis: first}, lengths=(bucket.low, bucket.high)
            )
            for place, bucket in enumerate(buckets)
            if bucket.num_segments >= FEW_SEGMENTS
        }
        for system in others
    }


def _spoken(panel: LengthBleu) -> str:
    """Return where each line begins and ends, for those who cannot see it."""
    parts = []
    for system, values in panel.systems.items():
        pairs = zip(panel.buckets, values, strict=True)
        points = [(bucket.label, fmean(seeds)) for bucket, seeds in pairs if seeds]
        if points:
            (first, begin), (last, end) = points[0], points[-1]
            parts.append(f"{system} goes from {begin:.1f} at {first} to {end:.1f} at {last}")
    text = "; ".join(parts)
    return f"trained on {panel.name} lengths: {text}" if panel.name else text
