"""BLEU by source length for several systems, with the lengths that training never showed.

Kiyono et al. 2021 (SHAPE), Figure 7 (absolute) and Figure 3 (gain over APE); Miyazaki et al. 2024
(NHK), Figure 3. Differs from the papers: each bucket names its number of segments, and buckets with
few are drawn hollow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from shapeshift.evaluation.lengths import FEW_SEGMENTS, LengthBucket
from shapeshift.evaluation.scores import Scores, length_columns
from shapeshift.lab.figures import Line, Panel

Bounds = tuple[int, int | None]
"""Of source lengths, `[from, to)`; `None` has no end."""

_MIN_SPAN = 2.0  # BLEU: less is within the noise of a few hundred segments


@dataclass(frozen=True)
class LengthBleu:
    """BLEU of systems over buckets of source lengths.

    Attributes:
        buckets: of the first system; bounds and counts are the same for all.
        systems: name → for each bucket the BLEU of each run (seed); none for an empty bucket.
        trained: source lengths in training; `None` where it is not known or not of interest.
    """

    buckets: tuple[LengthBucket, ...]
    systems: Mapping[str, tuple[tuple[float, ...], ...]]
    trained: Bounds | None

    def mean(self, system: str) -> list[float]:
        """Return the mean over runs for each bucket; NaN for an empty one."""
        return [fmean(values) if values else math.nan for values in self.systems[system]]

    def gains(self, baseline: str) -> LengthBleu:
        """Return BLEU minus the mean of the baseline, for every other system: runs of two systems
        do not come in pairs."""
        base = self.mean(baseline)
        gains = {
            name: tuple(
                tuple(value - mean for value in values)
                for values, mean in zip(buckets, base, strict=True)
            )
            for name, buckets in self.systems.items()
            if name != baseline
        }
        return replace(self, systems=gains)

    def is_unseen(self, bucket: LengthBucket) -> bool:
        """Return whether training has shown none of a bucket's lengths."""
        if self.trained is None:
            return False
        low, high = self.trained
        return (high is not None and bucket.low >= high) or (
            bucket.high is not None and bucket.high <= low
        )

    def panel(self, y_title: str = "BLEU", title: str = "", *, zero: bool = False) -> Panel:
        """Return the panel of a figure, with the lengths that training never showed shaded."""
        small = [place for place, bucket in enumerate(self.buckets) if bucket.is_small]
        return Panel(
            lines=[
                Line(name, range(len(self.buckets)), values, small)
                for name, values in self.systems.items()
            ],
            y_title=y_title,
            title=title,
            places=[f"{bucket.label}\n{bucket.num_segments:,}" for bucket in self.buckets],
            shaded=self._unseen_spans(),
            zero=zero,
            min_span=_MIN_SPAN,
        )

    @property
    def x_title(self) -> str:
        """Title of the horizontal axis, which says what the marks in the panel mean."""
        marks = ["below: segments"]
        if self.trained:
            marks.append("shaded: unseen in training")
        if any(bucket.is_small for bucket in self.buckets):
            marks.append(f"hollow: fewer than {FEW_SEGMENTS}")
        return f"source length ({'; '.join(marks)})"

    def _unseen_spans(self) -> list[tuple[float, float]]:
        if self.trained is None:
            return []
        low, high = self.trained
        left, right = -0.5, len(self.buckets) - 0.5
        start = left if low <= 1 else self._place(low)  # no sentence has length 0
        end = right if high is None else self._place(high)
        return [span for span in ((left, start), (end, right)) if span[0] < span[1]]

    def _place(self, length: int) -> float:
        """Return where a length stands on the x axis, on which bucket i spans i ± 0.5."""
        for place, bucket in enumerate(self.buckets):
            if bucket.high is not None and length < bucket.high:
                return place - 0.5 + (length - bucket.low) / (bucket.high - bucket.low)
        # The last bucket has no end: let its axis run as fast as that of the bucket before it.
        low = self.buckets[-1].low
        width = low - self.buckets[-2].low if len(self.buckets) > 1 else 1
        return len(self.buckets) - 1.5 + min(1.0, (length - low) / width)


def compute(
    systems: Mapping[str, Sequence[Scores]], *, trained: Bounds | None = None
) -> LengthBleu:
    """Gather BLEU by length.

    Args:
        systems: name → its scores with `by_length`, one for each run (seed).
        trained: source lengths seen in training, in the unit of the buckets.
            `Extrapolate(max_length=50)` is `(1, 51)`.

    Raises:
        ShapeshiftError: no BLEU by length, or scores that cannot be compared.
    """
    columns = length_columns(
        {
            name if len(runs) == 1 else f"{name} (run {number})": scores
            for name, runs in systems.items()
            for number, scores in enumerate(runs, start=1)
        }
    )
    values = {
        name: tuple(
            tuple(bucket.bleu for bucket in same if bucket.bleu is not None)
            for same in zip(*(run.by_length or () for run in runs), strict=True)
        )
        for name, runs in systems.items()
    }
    return LengthBleu(next(iter(columns.values())), values, trained)
