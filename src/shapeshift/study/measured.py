"""The runs of a study, and their results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import compress
from pathlib import Path
from statistics import fmean
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import TypeAdapter

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read, save
from shapeshift._system.hashes import digest, read_sums
from shapeshift._system.own_modules import definition_sha256
from shapeshift.data.config import Interpolate
from shapeshift.data.prepare import prepare
from shapeshift.data.prepared import Prepared
from shapeshift.evaluation.metrics import Score, check_parallel
from shapeshift.evaluation.scores import FEW_SEGMENTS, Scores, bleu_by_length, by_length, evaluate
from shapeshift.run.folder import RESULTS, SUBWORDS, Run, prepared_directory
from shapeshift.run.identity import other_tokenizer
from shapeshift.run.measures import (
    BLEU,
    OPTIONAL,
    ORIGINAL,
    TRAIN,
    Metric,
    declared,
    kept_lines,
    mean_of,
)
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.results import Row, collect, tabulate
from shapeshift.study.significance import (
    ALL,
    METHOD,
    NUM_SAMPLES,
    Comparison,
    compare,
    compare_values,
)
from shapeshift.study.spec import Split
from shapeshift.study.verdicts import Part
from shapeshift.training.log import read_log

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

MANY = 6
"""Settings with unfinished runs that a note counts instead of naming each."""

Texts = Literal["valid", "test", "original-order"]
"""What a run keeps translations and references of; see `run.measures`."""


class Measured:
    """The runs of a study: which are finished, their results, and comparisons of them.

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
        """All results of the finished runs."""
        return collect(filter(self.is_finished, self._runs), self._root)

    def frame(self) -> pd.DataFrame:
        """Return `results` as a DataFrame with a column for each field and each axis (`axis:NAME`),
        as in results.csv."""
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
                place = f" for {settings_label(axes)}" if axes else ""
                raise ShapeshiftError(
                    f"the axis {axis!r} is left open ({', '.join(found)}){place}, and different"
                    f" models are not seeds of one; {remedy}"
                )

    def require_baseline(self, axes: Axes, what: str) -> None:
        """Raise a `ShapeshiftError` if no run, finished or not, has the settings of a baseline;
        `what` has the baseline."""
        if not self.runs(axes):
            raise ShapeshiftError(
                f"{what}: its baseline ({settings_label(axes)}) has no run in the profile"
                f" {self.profile}; add it to the grid, or name another baseline"
            )

    def settings(self, axis: str) -> list[str]:
        """Return the settings of an axis that some run has, in the grid's order."""
        return list({planned.axes[axis]: None for planned in self._runs})

    def is_finished(self, planned: PlannedRun) -> bool:
        """Return whether training and all measures except the optional ones are done; see
        `run.measures.OPTIONAL`."""
        folder = self._folder(planned)
        measures = (measure for measure in (TRAIN, *planned.measures) if measure not in OPTIONAL)
        return all(folder.record(measure, planned.config) is not None for measure in measures)

    def _folder(self, planned: PlannedRun) -> RunFolder:
        return RunFolder(self._root / planned.key)

    def _rows(self, planned: PlannedRun, metric: Metric, split: str) -> list[Row]:
        """Return the results of one run of a metric on a split."""
        return self.rows(metric.name, {**planned.axes, "seed": planned.seed}, split=split)

    def finished(self, axes: Axes = NO_AXES) -> list[PlannedRun]:
        """Return the finished ones of `runs`."""
        return [planned for planned in self.runs(axes) if self.is_finished(planned)]

    def unfinished_note(self, axes: Axes = NO_AXES) -> list[str]:
        """Return a note on those of `runs` that are not finished, with the measures that trained
        ones lack; nothing if all are."""
        runs = self.runs(axes)
        left: dict[str, list[str]] = {}
        for planned in (x for x in runs if not self.is_finished(x)):
            record = self._folder(planned).record
            needed = [x for x in planned.measures if x not in OPTIONAL]
            lacking = [x for x in needed if record(x, planned.config) is None]
            is_trained = record(TRAIN, planned.config) is not None
            without = f" without {' and '.join(lacking)}" if is_trained else ""
            name = " ".join(y for x, y in planned.axes.items() if len(self.settings(x)) > 1)
            left.setdefault(name, []).append(f"{planned.seed}{without}")
        if not left:
            return []
        named = [f"{name} seed {', '.join(seeds)}".strip() for name, seeds in left.items()]
        if len(named) > MANY:
            named = [f"{sum(map(len, left.values()))} of {len(runs)} runs"]
        return [f"not finished: {'; '.join(named)}"]

    def run(self, planned: PlannedRun) -> Run:
        """Open a finished run, for its weights.

        Raises:
            ShapeshiftError: it comes from an archive, which leaves the weights out.
        """
        run = Run(self._folder(planned).run)
        if (run.directory / SUBWORDS).exists():
            return run
        every = {each.key: self._folder(each).run for each in (planned, *self.finished())}
        bare = [key for key, folder in every.items() if not (folder / SUBWORDS).exists()]
        raise ShapeshiftError(
            "has results without weights, as runs from an archive; remove the folders of these"
            f" runs, and `shapeshift reproduce` trains them again: {', '.join(bare)}",
            path=self._root,
        )

    def validations(self, planned: PlannedRun) -> list[dict[str, Any]]:
        """Return the lines of a finished run's log that have the validation loss."""
        log = read_log(self._folder(planned).run / "log.jsonl")
        return [line for line in log if "valid_loss" in line]

    @cached_property
    def declared(self) -> list[Metric]:
        """The metrics that training and the measures of the runs declare."""
        return declared(self._runs[0].measures)

    def metric(self, name: str, split: str | None = None) -> Metric:
        """Return what a measure of the runs declares of a metric, on a split if one is given; a
        metric that nothing declares is only known by its name."""
        every = [each for each in self.declared if each.name == name]
        every.sort(key=lambda each: bool(split) and split not in each.splits)
        return next(iter(every), Metric(name))

    def examples(self, planned: PlannedRun, metric: Metric, split: Texts) -> list[float]:
        """Return the values of a metric of the examples of a split."""
        rows = self._rows(planned, metric, split)
        if not rows:
            raise ShapeshiftError(f"the run {planned.name} has no {metric.name} of {split}")
        folder = self._folder(planned)
        return folder.examples(rows[0].measure, planned.config, metric.name, split)

    def scores(
        self,
        planned: PlannedRun,
        splits: Sequence[Split] = ("test",),
        buckets: Sequence[int] | None = None,
        metric: Metric = BLEU,
    ) -> Scores:
        """Return a score of a run that is finished, over some splits together, also by source
        length.

        Args:
            planned: of the study.
            splits: that were translated.
            buckets: bounds between lengths; by default those of the run's settings. The run's own
                file has those of the grid that scored last.
            metric: that keeps texts or values of examples.
        """
        if buckets is None:
            buckets = planned.config.evaluation.length_buckets
        values: list[float] = []
        if metric.examples == "values":
            values = [x for split in splits for x in self.examples(planned, metric, split)]

        def score(chosen: Sequence[int]) -> Score:
            mean = fmean(values[each] for each in chosen)
            return Score(name=metric.name, value=mean, signature="", details={})

        def compute() -> Scores:
            run = self._folder(planned).run
            lengths = [n for split in splits for n in self.source_lengths(planned, split)]
            if metric.examples == "values":
                check_parallel(len(values), len(lengths), "source lengths")
                return Scores(
                    version=__version__,
                    num_segments=len(values),
                    hypotheses_sha256="",
                    references_sha256="",
                    scores=(score(range(len(values))),),
                    by_length=tuple(by_length(lengths, buckets, score)),
                )
            hypotheses = [x for split in splits for x in self.translations(planned, split)]
            references = [x for each in splits for x in kept_lines(run, each, "references")]
            tokenizer, name = planned.config.bleu_tokenizer, metric.setting
            scores = evaluate(hypotheses, references, metrics=(name,), tokenizer=tokenizer)
            found = bleu_by_length(
                hypotheses, references, lengths, buckets, metric=name, tokenizer=tokenizer
            )
            return scores.model_copy(update={"by_length": tuple(found)})

        kind = digest([metric.name, values, "none without four words"])[:8]  # as now computed
        name = "-".join(("scores", kind, *splits, *map(str, buckets)))
        return self.computed(name, Scores, [planned], compute)

    def score_at(
        self, planned: PlannedRun, metric: Metric, split: Split, lengths: Bounds
    ) -> float | None:
        """Return a score of a run on the sentences of these source lengths; `None` if there are
        none."""
        scores = self.scores(planned, (split,), [bound for bound in lengths if bound], metric)
        found = next(x.score for x in scores.by_length or () if (x.low, x.high) == lengths)
        return None if found is None else found.value

    def has_few(self, planned: PlannedRun, split: Texts, lengths: Bounds) -> bool:
        """Return whether a run's text has too few sentences of these lengths for a comparison."""
        return sum(self.of_length([planned], split, lengths)) < FEW_SEGMENTS

    def source_lengths(self, planned: PlannedRun, split: Split) -> list[int]:
        """Return the source length of each sentence of a split, in subwords. They are kept, so that
        results can be made again where the text is not."""

        def compute() -> list[int]:
            return [int(n) for n in self.prepared(planned).store(split).source_lengths]

        return self.computed(f"lengths-{split}", list[int], [planned], compute)

    def prepared(self, planned: PlannedRun) -> Prepared:
        """Return a run's prepared data; prepare it if needed."""
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
        metric: str = BLEU.name,
        lengths: Bounds | None = None,
        minus: str | None = None,
    ) -> Part:
        """Compare two sets of runs, one of each seed, on a metric over the seeds that both have: by
        the paired bootstrap if it keeps examples.

        Args:
            test, against: settings of the runs, one for each axis.
            split: that was translated; no matter for a metric of the run.
            metric: its name.
            lengths: only sentences whose source length in subwords is in `[from, to)`.
            minus: that was translated as well: test what is lost from `split` to this.

        Raises:
            ShapeshiftError: the settings leave an axis open.
        """
        sides = (test, against)
        for axes in sides:
            self.require_one_model(axes, "name one setting of it on both sides")
        finished = [{planned.seed: planned for planned in self.finished(axes)} for axes in sides]
        unfinished = [
            settings_label(axes) for axes, own in zip(sides, finished, strict=True) if not own
        ]
        if unfinished:
            return Part({}, reason=f"no finished run with {' or with '.join(unfinished)}")
        seeds = sorted(finished[0].keys() & finished[1].keys())
        if not seeds:
            named = " and ".join(map(settings_label, sides))
            return Part({}, reason=f"no finished seed of both {named}")
        found = self.metric(metric, split)
        scores, others = {}, {}
        if found.examples != "texts":
            scores, others = (self.values(metric, {**x, "seed": seeds}, split) for x in sides)
            seeds = sorted(scores.keys() & others.keys())
            if not seeds:
                return Part({}, reason="not measured")
            scores, others = ({seed: x[seed] for seed in seeds} for x in (scores, others))
        own, theirs = ([runs[seed] for seed in seeds] for runs in finished)
        both = [*own, *theirs]
        values: list[list[float]] = []
        if found.examples == "values":
            self._require_one_text(both, found, split)
            values = [self.examples(planned, found, split) for planned in both]

        def compute() -> Comparison:
            wanted = self.of_length(both, split, lengths) if lengths else None
            files = self.files(own[0], found, split) if wanted is None else ALL
            if found.examples == "texts":
                return self._compare_texts(own, theirs, found, split, minus, wanted, files)
            sentences = files[-1].stop if wanted is None else len(wanted)
            for each in values:
                check_parallel(len(each), sentences or len(each), "sentences")  # None: of no file
            chosen = values if wanted is None else [[*compress(x, wanted)] for x in values]
            parts = chosen[: len(own)], chosen[len(own) :]
            system, baseline = (dict(zip(seeds, part, strict=True)) for part in parts)
            return compare_values(system, baseline, files=files)

        if found.examples is None:
            comparison = Comparison(scores, others, {})
        else:
            name = digest([METHOD, NUM_SAMPLES, split, lengths, minus, metric, values])[:8]
            comparison = self.computed(f"comparison-{name}", Comparison, both, compute)
        sign = -1 if found.better == "lower" else 1
        gains = {seed: sign * value for seed, value in comparison.differences.items()}
        return Part(gains, comparison, metric=found)

    def _compare_texts(
        self,
        own: Sequence[PlannedRun],
        theirs: Sequence[PlannedRun],
        metric: Metric,
        split: str,
        minus: str | None,
        wanted: Sequence[bool] | None,
        files: Sequence[slice],
    ) -> Comparison:
        """Compare translations of all sentences, or of the wanted ones. BLEU has the runs' own
        tokenizer, see `Config.bleu_tokenizer`."""

        def chosen(lines: list[str]) -> list[str]:
            if wanted is None:
                return lines
            check_parallel(len(lines), len(wanted))
            return [*compress(lines, wanted)]

        def outputs(runs: Sequence[PlannedRun], split: str) -> dict[int, list[str]]:
            return {planned.seed: chosen(self.translations(planned, split)) for planned in runs}

        first, tokenizer = self._folder(own[0]).run, own[0].config.bleu_tokenizer
        references = chosen(kept_lines(first, split, "references"))
        for planned in (*own, *theirs):
            run, other = self._folder(planned).run, planned.config.bleu_tokenizer
            if chosen(kept_lines(run, split, "references")) != references:
                raise ShapeshiftError(
                    f"scored against other references than {first / RESULTS}; compare runs of one"
                    " text",
                    path=run / RESULTS,
                )
            if other != tokenizer:
                raise ShapeshiftError(
                    f"scored with another tokenizer of BLEU than {first / RESULTS}: {other} and"
                    f" {tokenizer}; compare runs of one evaluation.tokenize",
                    path=run / RESULTS,
                )
        return compare(
            outputs(own, split),
            outputs(theirs, split),
            references,
            metric=metric.setting,
            tokenizer=tokenizer,
            files=files,
            minus=(outputs(own, minus), outputs(theirs, minus)) if minus else None,
        )

    def translations(self, planned: PlannedRun, split: str) -> list[str]:
        """Return the kept translations of a run that is scored, detokenised as its settings say.

        Raises:
            ShapeshiftError: they are missing, damaged, or were made again with another
                `evaluation.detokenize`.
        """
        folder, wanted = self._folder(planned), planned.config.evaluation.detokenize
        results = folder.run / RESULTS
        if f"{split}.detokenize.txt" in read_sums(results):  # an earlier version wrote none
            [made] = kept_lines(folder.run, split, "detokenize")
            if made != wanted:
                record = folder.record_path(f"score-{split}", planned.config)
                raise ShapeshiftError(
                    f"another study has scored {split} since then, with evaluation.detokenize="
                    f"{made} in place of {wanted}; remove {self._root}/*/measures/{record.name}"
                    " and run this study again, which translates again",
                    path=results,
                )
        return kept_lines(folder.run, split, "average")

    def _require_one_text(self, runs: Sequence[PlannedRun], metric: Metric, split: Texts) -> None:
        """Raise a `ShapeshiftError` if the examples of some runs are of different texts."""
        texts: dict[object, PlannedRun] = {}
        for planned in runs:
            rows = self._rows(planned, metric, split)
            text: object = rows[0].references if rows else None
            if text is None:
                record = self._folder(planned).record(TRAIN, planned.config)
                recipe = planned.config.data.recipe
                joined = recipe.model_dump_json() if isinstance(recipe, Interpolate) else ""
                text = (record and record.text, joined)
            texts.setdefault(text, planned)
        if len(texts) > 1:
            names = " and ".join(planned.name for planned in texts.values())
            raise ShapeshiftError(
                f"{names} have other texts, and so no examples of {metric.name} in common; compare"
                " runs of one text"
            )

    def values(self, metric: str, axes: Axes, split: str | None = None) -> dict[int, float]:
        """Return seed → the value of a metric over the files of a split together, or of the run."""
        found = self.metric(metric, split)
        names = (mean_of(split), split) if split and found.splits else (None,)
        rows = (self.rows(metric, axes, split=name) for name in names)
        return {row.seed: row.value for row in next(filter(None, rows), [])}

    def files(self, planned: PlannedRun, metric: Metric, split: Texts) -> Sequence[slice]:
        """Return the examples of each file of a split, if a metric is the mean over files."""
        run = self._folder(planned).run
        is_mean = metric.examples == "texts" or self._rows(planned, metric, mean_of(split))
        if not is_mean or f"{split}.files.txt" not in read_sums(run / RESULTS):
            return ALL
        bounds = (map(int, line.split()) for line in kept_lines(run, split, "files"))
        return [slice(*each) for each in bounds] or ALL

    def computed(
        self, name: str, kind: type[_Data], runs: Sequence[PlannedRun], compute: Callable[[], _Data]
    ) -> _Data:
        """Return the result of `compute`. It is cached in a file until one of the runs, or the
        user's module that defines `compute`, changes."""
        sources: list[list[object]] = []
        for planned in runs:
            record = self._folder(planned).record(TRAIN, planned.config)
            if record is None:
                raise ShapeshiftError(f"the run {planned.name} is not finished")
            settings = planned.config.model_dump(mode="json") | other_tokenizer(planned.config)
            settings["data"]["corpus"].pop("root", None)  # where the text is, not what it is
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
        """Return for each sentence whether its source has one of these lengths."""
        assert split != ORIGINAL, "its sentences have no lengths"
        texts = [
            (
                data.corpus,
                data.subwords,
                data.recipe if isinstance(data.recipe, Interpolate) else "",
            )
            for data in (planned.config.data for planned in runs)
        ]
        if any(text != texts[0] for text in texts):
            names = " and ".join(planned.name for planned in runs)
            raise ShapeshiftError(
                f"{names} have other texts or subwords, and so no source lengths in common; compare"
                " them without lengths"
            )
        low, high = lengths
        all_lengths = self.source_lengths(runs[0], split)
        return [low <= n and (high is None or n < high) for n in all_lengths]


def settings_label(axes: Axes) -> str:
    """Return settings as shown to people: `position = ape`."""
    return ", ".join(f"{axis} = {setting}" for axis, setting in axes.items())


def fits(axes: Mapping[str, str], seed: int, wanted: Axes) -> bool:
    """Return whether settings match the wanted ones."""
    own: dict[str, str] = {**axes, "seed": str(seed)}
    return all(
        own[name] in ({str(value)} if isinstance(value, str | int) else {*map(str, value)})
        for name, value in wanted.items()
    )
