"""The runs that a study is made from, and what was measured on them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import TypeAdapter

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read, save
from shapeshift._system.hashes import digest
from shapeshift._system.own_modules import definition_sha256
from shapeshift.data.prepare import prepare
from shapeshift.data.prepared import Prepared
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.run.folder import Run, prepared_directory
from shapeshift.run.identity import other_tokenizer
from shapeshift.run.measures import OPTIONAL, ORIGINAL, TRAIN, kept_lines
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.results import Row, collect, tabulate
from shapeshift.study.significance import (
    METHOD,
    NUM_SAMPLES,
    Comparison,
    compare_runs,
    translations,
)
from shapeshift.study.spec import Split
from shapeshift.study.verdicts import Part

if TYPE_CHECKING:
    import pandas as pd

_Data = TypeVar("_Data")

Wanted = str | int | Collection[str | int]
"""A setting of an axis (or a seed), or several."""

Axes = Mapping[str, Wanted]
"""Axis, or `seed`, → what it is to be."""

NO_AXES: Axes = {}

Bounds = tuple[int, int | None]
"""Of source lengths, `[from, to)`; `None` has no end."""

Texts = Literal["valid", "test", "original-order"]
"""What a run keeps translations and references of; see `run.measures`."""


class Measured:
    """The runs of a study: which are finished, what was measured, what can be computed.

    Args:
        runs: of one grid, in one profile.
        root: folder of the runs' folders.
        prepared_root: see `run.train.train`.
    """

    def __init__(self, runs: Sequence[PlannedRun], root: Path, prepared_root: Path):
        self._runs, self._root, self._prepared_root = runs, root, prepared_root
        self._data: dict[Path, Prepared] = {}

    @property
    def profile(self) -> str:
        """Of all runs."""
        return self._runs[0].profile

    @cached_property
    def results(self) -> list[Row]:
        """All that was measured on runs that are finished."""
        return collect(filter(self.is_finished, self._runs), self._root)

    def frame(self) -> pd.DataFrame:
        """Return `results` as a DataFrame with a column for each field and each axis (`axis:NAME`):
        what results.csv has."""
        import pandas as pd

        header, *lines = tabulate(self.results)
        return pd.DataFrame(lines, columns=header)

    def runs(self, axes: Axes = NO_AXES) -> list[PlannedRun]:
        """Return the runs with these settings, finished or not."""
        return [x for x in self._runs if fits(x.axes, x.seed, axes)]

    def require_one_model(self, axes: Axes, remedy: str) -> None:
        """Raise a `ShapeshiftError` if the runs with these settings, finished or not, are several
        models: they would pass for seeds of one."""
        runs = self.runs(axes)
        for axis in self._runs[0].axes:
            if len(found := dict.fromkeys(planned.axes[axis] for planned in runs)) > 1:
                place = f" for {_settings(axes)}" if axes else ""
                raise ShapeshiftError(
                    f"the axis {axis!r} is left open ({', '.join(found)}){place}, and different"
                    f" models are not seeds of one; {remedy}"
                )

    def settings(self, axis: str) -> list[str]:
        """Return the settings of an axis that some run has, in the grid's order."""
        return list({planned.axes[axis]: None for planned in self._runs})

    def is_finished(self, planned: PlannedRun) -> bool:
        """Return whether training and all measures except the optional ones are done; see
        `run.measures.OPTIONAL`."""
        folder = RunFolder(self._root / planned.key)
        measures = (measure for measure in (TRAIN, *planned.measures) if measure not in OPTIONAL)
        return all(folder.record(measure, planned.config) is not None for measure in measures)

    def finished(self, axes: Axes = NO_AXES) -> list[PlannedRun]:
        """Return those of `runs` that are finished."""
        return [planned for planned in self.runs(axes) if self.is_finished(planned)]

    def run(self, planned: PlannedRun) -> Run:
        """Return the run of a run that is finished."""
        return Run(RunFolder(self._root / planned.key).run)

    def scores(
        self,
        planned: PlannedRun,
        splits: Sequence[Split] = ("test",),
        buckets: Sequence[int] | None = None,
    ) -> Scores:
        """Return BLEU of a run that is finished, over some splits together, also by source length.

        Args:
            run: of the study.
            splits: that were translated.
            buckets: bounds between lengths; by default those of the run's settings. The run's own
                file has those of the grid that scored last.
        """
        if buckets is None:
            buckets = planned.config.evaluation.length_buckets

        def compute() -> Scores:
            run, data = self.run(planned).directory, self.prepared(planned)
            hypotheses, references, lengths = [], [], []
            for split in splits:
                hypotheses += translations(planned, self._root, split)
                references += kept_lines(run, split, "references")
                lengths += [int(n) for n in data.store(split).source_lengths]
            return evaluate(
                hypotheses,
                references,
                metrics=("bleu",),
                tokenizer=planned.config.bleu_tokenizer,
                lengths=lengths,
                length_buckets=buckets,
            )

        name = "-".join(("scores", *splits, *map(str, buckets)))
        return self.computed(name, Scores, [planned], compute)

    def bleu(self, planned: PlannedRun, split: Split, lengths: Bounds) -> float | None:
        """Return BLEU of a run on the sentences of these source lengths; `None` if there are
        none."""
        scores = self.scores(planned, (split,), [bound for bound in lengths if bound])
        return next(x.bleu for x in scores.by_length or () if (x.low, x.high) == lengths)

    def prepared(self, planned: PlannedRun) -> Prepared:
        """Return a run's data, prepared if need be."""
        directory = prepared_directory(planned.config.data, self._prepared_root)
        if directory not in self._data:
            self._data[directory] = prepare(planned.config.data, directory)
        return self._data[directory]

    def rows(
        self,
        metric: str,
        axes: Axes = NO_AXES,
        *,
        split: str | None = None,
        bucket: str | EllipsisType | None = None,
    ) -> list[Row]:
        """Return the results of a metric, one for each seed and setting that is left open.

        Args:
            metric: its name.
            axes: settings of the runs.
            split, bucket: see `run.measures.Result`; without a bucket those that
                have none, with `...` all. Results in the middle of training are left out.
        """
        return [
            row
            for row in self.results
            if (row.metric, row.update) == (metric, None)
            and bucket in (row.bucket, ...)
            and (split is None or row.split == split)
            and fits(row.axes, row.seed, axes)
        ]

    def compare(
        self,
        test: Axes,
        against: Axes,
        split: Texts = "test",
        *,
        lengths: Bounds | None = None,
        minus: str | None = None,
    ) -> Part:
        """Compare two sets of runs, one of each seed, on BLEU over the seeds that both have.

        Args:
            test, against: settings of the runs, one for each axis.
            split: that was translated.
            lengths: only sentences whose source length in subwords is in `[from, to)`.
            minus: that was translated as well: test the BLEU that is lost from `split` to this.

        Raises:
            ShapeshiftError: the settings leave an axis open.
        """
        sides = (test, against)
        for axes in sides:
            self.require_one_model(axes, "name one setting of it on both sides")
        finished = [{planned.seed: planned for planned in self.finished(axes)} for axes in sides]
        unfinished = [_settings(axes) for axes, own in zip(sides, finished, strict=True) if not own]
        if unfinished:
            return Part({}, reason=f"no finished run with {' or with '.join(unfinished)}")
        seeds = sorted(finished[0].keys() & finished[1].keys())
        if not seeds:
            named = " and ".join(map(_settings, sides))
            return Part({}, reason=f"no finished seed of both {named}")
        own, theirs = ([runs[seed] for seed in seeds] for runs in finished)
        both = [*own, *theirs]

        def compute() -> Comparison:
            wanted = self.of_length(both, split, lengths) if lengths else None
            return compare_runs(own, theirs, self._root, split=split, wanted=wanted, minus=minus)

        name = digest([METHOD, NUM_SAMPLES, split, lengths, minus])[:8]
        comparison = self.computed(f"comparison-{name}", Comparison, both, compute)
        return Part(comparison.differences, comparison)

    def computed(
        self, name: str, kind: type[_Data], runs: Sequence[PlannedRun], compute: Callable[[], _Data]
    ) -> _Data:
        """Return what `compute` returns, kept in a file until one of the runs changes, or the
        module of your own that defines `compute`."""
        sources: list[list[object]] = []
        for planned in runs:
            record = RunFolder(self._root / planned.key).record(TRAIN, planned.config)
            if record is None:
                raise ShapeshiftError(f"the run {planned.name} is not finished")
            settings = planned.config.model_dump(mode="json") | other_tokenizer(planned.config)
            sources.append([record.checkpoint, settings])
        if own := definition_sha256(compute):
            sources.append([own])
        key = hashlib.sha256(digest(sources).encode()).hexdigest()[:16]
        path = self._root / "computed" / f"{name}-{key}.json"
        adapter = TypeAdapter(kind)
        # It may not be there, be damaged, or have another form.
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            document = json.loads(read(path))
            if document["sha256"] == digest(document["data"]):
                return adapter.validate_python(document["data"])
        data = compute()
        content = adapter.dump_python(data, mode="json")
        document = {"version": __version__, "sha256": digest(content), "data": content}
        save(path, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return data

    def of_length(self, runs: Sequence[PlannedRun], split: Texts, lengths: Bounds) -> list[bool]:
        """Return which sentences of the runs' text have these source lengths."""
        assert split != ORIGINAL, "its sentences have no lengths"
        texts = [(planned.config.data.corpus, planned.config.data.subwords) for planned in runs]
        if any(text != texts[0] for text in texts):
            names = " and ".join(planned.name for planned in runs)
            raise ShapeshiftError(
                f"{names} have other texts or subwords, and so no source lengths in common; compare"
                " them without lengths"
            )
        low, high = lengths
        all_lengths = self.prepared(runs[0]).store(split).source_lengths
        return [low <= int(n) and (high is None or int(n) < high) for n in all_lengths]


def _settings(axes: Axes) -> str:
    return ", ".join(f"{axis} = {setting}" for axis, setting in axes.items())


def fits(axes: Mapping[str, str], seed: int, wanted: Axes) -> bool:
    """Return whether a run or a result with these settings is among the wanted ones."""
    own: dict[str, str] = {**axes, "seed": str(seed)}
    return all(
        own[name] in ({str(value)} if isinstance(value, str | int) else {*map(str, value)})
        for name, value in wanted.items()
    )
