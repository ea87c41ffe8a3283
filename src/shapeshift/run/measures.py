"""What can be measured on a trained run, by name.

A measure is a function of a trained run and its data that declares its metrics. `MEASURES` says
where each is; a grid may also name one that is not in it, as `package.module:function`; see
`own_modules`.

    @declares(Metric("accuracy", better="higher", splits=("test",), examples="values"))
    def accuracy(run: Run, data: Prepared) -> list[Result]:
        right = [float(x == y) for x, y in zip(run.translate(data.text("test")[0]), ...)]
        return [Result(metric="accuracy", value=fmean(right), split="test", examples=right)]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError, unknown
from shapeshift._system.files import refuse_link
from shapeshift._system.hashes import hash_file, store, verify
from shapeshift._system.schema import Strict
from shapeshift.config import Config
from shapeshift.data.config import GrammarCorpus
from shapeshift.data.corpora import file_ends, labels, local_corpus
from shapeshift.data.prepared import Prepared
from shapeshift.data.sources.files import read_lines
from shapeshift.evaluation.metrics import BY_SENTENCE
from shapeshift.evaluation.metrics import Score as MetricScore
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.run.folder import RESULTS, Run, prepared_directory
from shapeshift.training.log import read_log

Text = Annotated[str, Field(min_length=1)]


class Result(Strict):
    """One number.

    Attributes:
        metric: what was measured, such as `BLEU` or `tokens_per_s` (units in the name).
        value: finite.
        split: `valid`, `test` or `train`, a file of one (`test/newstest2014`), or `test mean`, the
            mean over its files.
        bucket: the part of it, such as a range of lengths, or another parameter of the measure.
        update: at which it was measured, if that is not the end of training.
        signature: of the metric.
        hypotheses, references: SHA-256 of the texts, where there are any.
        examples: the value of each example, whose mean is the value; kept in a file of their own.
    """

    metric: Text
    value: float = Field(allow_inf_nan=False)
    split: Text | None = None
    bucket: Text | None = None
    update: int | None = None
    signature: Text | None = None
    hypotheses: Text | None = None
    references: Text | None = None
    examples: tuple[float, ...] = Field(default=(), exclude=True, repr=False)

    @model_validator(mode="after")
    def _is_mean(self) -> Result:
        mean = fmean(self.examples or (self.value,))
        if not math.isclose(mean, self.value, rel_tol=1e-3, abs_tol=1e-6):
            raise ValueError(f"{self.metric} is {self.value}, and the mean of its examples {mean}")
        return self


@dataclass(frozen=True)
class Metric:
    """A metric that a measure declares.

    Attributes:
        name: as in `Result.metric`.
        meaning: what it is, for people.
        better: which values are; None where that is no question. Claims of `better` and `no worse`
            need it.
        unit: for the axes of figures.
        splits: that a study names to show it; none for a property of the run.
        examples: what keeps the paired bootstrap's draws: `texts`, translations and references that
            sacreBLEU scores again; `values`, see `Result.examples`; None: differences are tested
            over seeds alone.
        buckets: parts that it is measured in, and not as a whole; a number in one stands for any.
        by_length: whether it also has a bucket for each length of `evaluation.length_buckets`.
        setting: its name in `evaluation.metrics`, without which it is not computed.
        is_whole: whether it is a whole number, and is shown as one.
        decimals: that it is shown with.
        floor: two values below it come of runs that have learned nothing, and do not compare.
        min_span: least range of the vertical axis of a figure.
    """

    name: str
    meaning: str = ""
    better: Literal["higher", "lower"] | None = None
    unit: str = ""
    splits: tuple[str, ...] = ()
    examples: Literal["texts", "values"] | None = None
    buckets: tuple[str, ...] = ()
    by_length: bool = False
    setting: str = ""
    is_whole: bool = False
    decimals: int = 2
    floor: float | None = None
    min_span: float = 0.0

    def __post_init__(self) -> None:
        """Check what nothing else would notice before the runs are trained."""
        for key, known in (
            ("better", (None, "higher", "lower")),
            ("examples", (None, "texts", "values")),
        ):
            if (given := getattr(self, key)) not in known:
                raise ShapeshiftError(
                    f"the metric {self.name!r} has {key}={given!r}; expected one of"
                    f" {', '.join(map(repr, known))}"
                )
        for key in ("splits", "buckets"):
            if not isinstance(given := getattr(self, key), tuple):
                raise ShapeshiftError(
                    f"the metric {self.name!r} has {key}={given!r}; expected a tuple of names, such"
                    " as ('test',)"
                )
        if self.examples == "texts" and not self.setting:
            raise ShapeshiftError(
                f"the metric {self.name!r} has examples='texts' without a setting, its name in"
                " evaluation.metrics; a metric of your own keeps 'values'"
            )

    @property
    def title(self) -> str:
        """The metric's name, with its unit in brackets if it has one."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def is_measured(self, split: str | None, bucket: str | None, lengths: Collection[str]) -> bool:
        """Return whether the metric has a value for a split (None: for the run) and a bucket (None:
        for the whole). `lengths` are the names of length buckets."""
        if (split is None) == bool(self.splits) or (split and split not in self.splits):
            return False
        if bucket is None:
            return not self.buckets
        if self.by_length and bucket in lengths:
            return True
        before_number, *declared = (re.split(r"\d", x)[0] for x in (bucket, *self.buckets))
        return before_number in declared


@dataclass(frozen=True)
class Measure:
    """A function of a run and its data that measures, and all metrics that it may find (none:
    whatever it likes); see `declares`."""

    function: Callable[..., Sequence[Result]]
    metrics: tuple[Metric, ...] = ()

    def __post_init__(self) -> None:
        # The source of the function counts, see `own_modules`.
        object.__setattr__(self, "__module__", getattr(self.function, "__module__", ""))

    def __call__(self, *args: Any, **options: Any) -> list[Result]:
        returned = self.function(*args, **options)
        results = [*returned] if isinstance(returned, Iterable) else [returned]
        if not all(isinstance(result, Result) for result in results):
            name = getattr(self.function, "__qualname__", self.function)
            raise ShapeshiftError(f"{name}: expected a list of Result, got {returned!r}")
        return results


def declares(*metrics: Metric) -> Callable[[Callable[..., Sequence[Result]]], Measure]:
    """Return a decorator that declares the metrics of a measure."""
    return lambda function: Measure(function, metrics)


MEASURES: dict[str, str] = {
    "score-valid": "shapeshift.run.measures:SCORE_VALID",
    "score-test": "shapeshift.run.measures:SCORE_TEST",
    "similarity": "shapeshift.run.analysis.similarity:measure",
    "swapped-order": "shapeshift.run.analysis.swapped_order:measure",
    "learning": "shapeshift.run.analysis.learning:measure",
    "speed": "shapeshift.run.costs:measure_speed",
    "decoding-speed": "shapeshift.run.costs:measure_decoding_speed",
    "step-memory": "shapeshift.run.costs:measure_step_memory",
    "fairseq": "shapeshift.run.toolkits.fairseq:FAIRSEQ",
    "opennmt-py": "shapeshift.run.toolkits.opennmt:OPENNMT",
}
"""Name → `module:function`."""

TRAIN = "train"
"""Names the record of training, which comes before all measures."""

OPTIONAL = {"fairseq", "opennmt-py"}
"""Measures that need a program which may not be there: a run is finished without them."""


def check_measures(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names, or raise `ShapeshiftError` for one that is neither in `MEASURES` nor
    `module:function`."""
    for name in names:
        module, colon, attribute = name.partition(":")
        if name not in MEASURES and not (colon and module and attribute):
            own = ", or package.module:function"
            raise ShapeshiftError(unknown("unknown measure", name, MEASURES, own))
    return names


def find_measure(name: str) -> Measure:
    """Import the measure `name`; one that declares nothing may find whatever it likes.

    Raises:
        ShapeshiftError: there is none of this name, or it cannot be imported.
    """
    if name == TRAIN:
        return measure_training
    check_measures((name,))
    found: Any = find_function(MEASURES.get(name, name), "measure")
    return found if hasattr(found, "metrics") else Measure(found)


def declared(names: Iterable[str]) -> list[Metric]:
    """Return the metrics that training and these measures declare."""
    return [metric for name in (TRAIN, *names) for metric in find_measure(name).metrics]


def take(name: str, run: Run, data: Prepared) -> list[Result]:
    """Run a measure on a run.

    Raises:
        ShapeshiftError: it returns no list of results, a value that is not finite, what it does
            not declare, or not the split or the values of examples that it declares.
    """
    measure = find_measure(name)
    try:
        results = measure(run, data)
    except ValidationError as error:  # of a `Result`
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"])) or "a result"
        raise ShapeshiftError(f"{name}: {place}: {wrong['msg']}") from error
    known = {metric.name: metric for metric in measure.metrics}
    for result in results if own_modules.is_own(name) and known else ():
        if result.metric not in known:
            raise ShapeshiftError(unknown(f"{name} does not declare", result.metric, known))
        metric, split = known[result.metric], (result.split or "").removesuffix(" mean")
        if metric.examples == "values" and not (result.bucket or result.examples):
            raise ShapeshiftError(f"{name}: {result.metric} has no examples, which it declares")
        if metric.splits and result.update is None and split.split("/")[0] not in metric.splits:
            raise ShapeshiftError(
                f"{name}: {result.metric} has split={result.split!r}; it declares"
                f" {', '.join(metric.splits)}"
            )
    return results


def find_function(name: str, what: str, path: Path | None = None) -> Callable[..., Any]:
    """Import what `package.module:function` names; see `own_modules`.

    Raises:
        ShapeshiftError: there is no such module or function.
    """
    found: Callable[..., Any] = own_modules.find(name, what, path)
    if not callable(found):
        raise ShapeshiftError(f"no {what} {name!r}: expected a function, got {found!r}", path=path)
    return found


def usable(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the measures that can run here, and for each of the others a line: what is missing,
    and how to install it."""
    optional = [name for name in names if name in OPTIONAL]
    lines = {name: find_measure(name).missing() for name in optional}  # type: ignore[attr-defined]
    return [name for name in names if not lines.get(name)], [*filter(None, lines.values())]


@declares(
    Metric("parameters", "number of trained parameters", is_whole=True),
    Metric("training_s", "seconds of training", "lower", "s"),
    Metric("tokens_per_s", "median target tokens per second in training", "higher"),
    Metric("valid_loss", "validation loss at the end of training", "lower"),
    Metric("valid_perplexity", "validation perplexity at the end of training", "lower"),
)
def measure_training(run: Run) -> list[Result]:
    """Return results from the log of a trained run: losses, median speed, time, parameters."""
    log = read_log(run.directory / "log.jsonl")
    rows = [
        Result(metric=name, value=line[name], split="valid", update=int(line["update"]))
        for line in log
        for name in line
        if name.startswith("valid_")
    ]
    losses = [line["valid_loss"] for line in log if "valid_loss" in line]
    if losses:
        rows.append(Result(metric="valid_loss", value=losses[-1], split="valid"))
        perplexity = math.exp(min(losses[-1], 99.0))
        rows.append(Result(metric="valid_perplexity", value=perplexity, split="valid"))
    speeds = [line["tokens_per_s"] for line in log if "tokens_per_s" in line]
    if speeds:
        rows.append(Result(metric="tokens_per_s", value=median(speeds), split="train"))
    elapsed_s = run.checkpoints.progress(run.checkpoints.updates()[-1]).elapsed_s
    rows.append(Result(metric="training_s", value=elapsed_s, split="train"))
    parameters = sum(p.numel() for p in run.model().parameters())
    rows.append(Result(metric="parameters", value=parameters))
    return rows


def translate_and_score(
    run: Run,
    split: Literal["valid", "test"] = "test",
    *,
    prepared_root: str | Path = "prepared",
    on_translate: Callable[[int, int], None] | None = None,
) -> Scores:
    """Translate a split with the final model of a finished run, score it, also by source length,
    and keep both in `results/`.

    Args:
        prepared_root: as it was for `train`.
        on_translate: receives the number of translated sentences and of all.
    """
    config = run.config
    refuse_link(run.directory / RESULTS)
    make_bleu(config.bleu_tokenizer)  # an error now, not when the run ends
    data = Prepared(prepared_directory(config.data, prepared_root))
    sources, references = data.text(split)
    report = on_translate or (lambda *_: None)
    report(0, len(sources))
    hypotheses: list[str] = []
    weights = run.weights()
    for translation in run.translator(weights).translate(sources):
        hypotheses.append(translation)
        report(len(hypotheses), len(sources))
    scores = evaluate(
        hypotheses,
        references,
        metrics=config.evaluation.metrics,
        tokenizer=config.bleu_tokenizer,
        sources=sources,
        comet_model=config.evaluation.comet_model,
        lengths=[int(n) for n in data.store(split).source_lengths],
        length_buckets=config.evaluation.length_buckets,
    )
    scores = scores.model_copy(update={"weights_sha256": hash_file(weights)})
    results, name = run.directory / RESULTS, f"{split}.average.json"
    (results / name).unlink(missing_ok=True)  # its time is that of the scoring
    keep_lines(run.directory, split, "average", hypotheses)
    keep_lines(run.directory, split, "detokenize", [config.evaluation.detokenize])
    store(results, {name: scores.document().encode()})
    return scores


def score(run: Run, data: Prepared, split: Literal["valid", "test"]) -> list[Result]:
    """Translate a split with the averaged model and score it: BLEU and the other metrics of
    `evaluation.metrics` over all of it, BLEU by source length, and, where it consists of several
    files, over each of them (`test/newstest2014`) and their mean (`test mean`), which the SHAPE
    paper reports (Kiyono et al. 2021, Table 2 and Table 5)."""
    scores = translate_and_score(run, split, prepared_root=data.directory.parent)
    sources, references = data.text(split)
    # Next to the translations, so that significance tests need only the run.
    keep_lines(run.directory, split, "references", references)
    hypotheses = kept_lines(run.directory, split, "average")
    sets = files_of(data, split)
    bounds = [f"{part.start} {part.stop}" for part in sets.values()]
    keep_lines(run.directory, split, "files", bounds)
    rows = results_of(scores, split)
    for name, part in sets.items():
        file_scores = evaluate(
            hypotheses[part],
            references[part],
            metrics=run.config.evaluation.metrics,
            tokenizer=run.config.bleu_tokenizer,
            sources=sources[part],
            comet_model=run.config.evaluation.comet_model,
        )
        rows += results_of(file_scores, name)
    by_metric: dict[str, list[Result]] = {}
    for row in rows:
        if not row.bucket and row.split in (sets or {split}):  # BLEU by length is always there
            by_metric.setdefault(row.metric, []).append(row)
    return [*rows, *(mean_result(each, split) for each in by_metric.values())]


def mean_result(rows: Sequence[Result], split: str) -> Result:
    """Return a result that is the mean of a metric over the files of a split."""
    mean = fmean(each.value for each in rows)
    changes = {"value": mean, "split": mean_of(split), "hypotheses": None, "references": None}
    return rows[0].model_copy(update=changes | {"examples": ()})


def mean_of(split: str) -> str:
    """Return the name of the mean over the files of a split."""
    return f"{split} mean"


ORIGINAL: Final = "original-order"
SWAPPED: Final = "swapped-order"
"""What the measure `swapped-order` keeps texts of as if they were splits, `ORIGINAL` with the
references of both."""


def keep_lines(run: Path, split: str, kind: str, lines: Iterable[str]) -> None:
    """Write a text file of a run's results, whole or not at all, and its hash.

    `kind` says which text of a split it is: `average`, the translations of the final model (or
    those of other weights), `detokenize`, the setting that they were made with, `references`, or
    `files`, where the split has several: a line for each, its first pair and the one after its
    last.
    """
    content = "".join(line + "\n" for line in lines).encode()
    refuse_link(run / RESULTS)
    store(run / RESULTS, {f"{split}.{kind}.txt": content})


def kept_lines(run: Path, split: str, kind: str) -> list[str]:
    """Read a text file of a run's results, after checking its hash.

    Raises:
        ShapeshiftError: it is missing, or not what was written.
    """
    results, name, measures = run / RESULTS, f"{split}.{kind}.txt", run.with_name("measures")
    remedy = f"remove the record of the measure that wrote it from {measures}, and it is made again"
    verify(results, name, remedy=remedy)
    return list(read_lines(results / name))


def results_of(scores: Scores, split: str, bucket: str | None = None) -> list[Result]:
    """Return the scores of a text, also by length, as results of a split."""
    buckets: list[tuple[str | None, MetricScore]] = [(bucket, score) for score in scores.scores]
    buckets += [(each.label, each.score) for each in scores.by_length or () if each.score]
    return [
        Result(
            metric=score.name,
            value=score.value,
            split=split,
            bucket=bucket,
            signature=score.signature,
            hypotheses=scores.hypotheses_sha256,
            references=scores.references_sha256,
            examples=score.examples,
        )
        for bucket, score in buckets
    ]


def bleu_of(
    config: Config,
    hypotheses: Sequence[str],
    references: Sequence[str],
    split: str,
    bucket: str | None = None,
) -> list[Result]:
    """Return BLEU of translations, with a run's tokenizer, as results of a split."""
    tokenizer = config.bleu_tokenizer
    scores = evaluate(hypotheses, references, metrics=("bleu",), tokenizer=tokenizer)
    return results_of(scores, split, bucket)


def files_of(data: Prepared, split: Literal["valid", "test"]) -> dict[str, slice]:
    """Return `split/file` → its range of pairs if a split has several files; empty otherwise."""
    corpus = data.report.config.corpus
    if isinstance(corpus, GrammarCorpus) or len(corpus.prefixes(split)) < 2:
        return {}
    # Data of an earlier version, of which nothing was filtered or joined, has no numbers by file.
    built = data.report.splits[split].files
    ends = [*accumulate(built)] if built else file_ends(local_corpus(corpus), split)
    names = [f"{split}/{label}" for label in labels(corpus, split)]
    return {
        name: slice(begin, end)
        for name, (begin, end) in zip(names, pairwise((0, *ends)), strict=True)
        if begin < end
    }


BLEU = Metric(
    "BLEU",
    "sacreBLEU",
    "higher",
    examples="texts",
    setting="bleu",
    floor=2.0,
    min_span=2.0,  # less is within the noise of most test sets
)

_PARTED = "on Interpolate, where the joined sentences are scored one by one"

SCORES = (
    BLEU,
    Metric("chrF2", "sacreBLEU's chrF", "higher", examples="texts", setting="chrf"),
    Metric("chrF2++", "sacreBLEU's chrF++", "higher", examples="texts", setting="chrf++"),
    Metric("COMET", "COMET, times 100", "higher", examples="values", setting="comet"),
    Metric(f"BLEU{BY_SENTENCE}", f"BLEU {_PARTED}", "higher", setting="bleu"),
    Metric(f"chrF2{BY_SENTENCE}", f"chrF {_PARTED}", "higher", setting="chrf"),
    Metric(f"chrF2++{BY_SENTENCE}", f"chrF++ {_PARTED}", "higher", setting="chrf++"),
)
"""Of translations."""

SCORE_VALID, SCORE_TEST = (
    Measure(
        partial(score, split=split),
        tuple(replace(each, splits=(split,), by_length=each is BLEU) for each in SCORES),
    )
    for split in ("valid", "test")
)
