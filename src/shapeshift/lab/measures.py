"""What can be measured on a trained run, by name.

A measure is anything with a function `measure(run, data)`. `MEASURES` says where each is; a grid
may also name one that is not in it, as `package.module:object`. A module is imported when one of
its measures is due.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Final, Literal, Protocol

from pydantic import Field

from shapeshift.data.config import GrammarCorpus, Interpolate
from shapeshift.data.corpora import local_corpus, read_entry
from shapeshift.data.prepared import Prepared
from shapeshift.data.sources.files import read_lines
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.integrity import store, verify
from shapeshift.lab.run import Run
from shapeshift.lab.score import translate_and_score
from shapeshift.schema import Strict
from shapeshift.training.log import read_log

Text = Annotated[str, Field(min_length=1)]


class Measurement(Strict):
    """One number.

    Attributes:
        metric: what was measured, such as `BLEU` or `tokens_per_s` (units in the name).
        value: finite.
        dataset: what it was measured on.
        bucket: the part of it, such as a range of lengths, or another parameter of the measure.
        step: the update at which it was measured, if that is not the end of training.
        signature: of the metric.
        hypotheses, references: SHA-256 of the texts, where there are any.
    """

    metric: Text
    value: float = Field(allow_inf_nan=False)
    dataset: Text | None = None
    bucket: Text | None = None
    step: int | None = None
    signature: Text | None = None
    hypotheses: Text | None = None
    references: Text | None = None


class Measure(Protocol):
    """A step of a cell's work after training."""

    def measure(self, run: Run, data: Prepared) -> Sequence[Measurement]:
        """Measure a trained run on its data."""


MEASURES: dict[str, str] = {
    "score-valid": "shapeshift.lab.measures:SCORE_VALID",
    "score-test": "shapeshift.lab.measures:SCORE_TEST",
    "loss-by-offset": "shapeshift.lab.analyses:LOSS_BY_OFFSET",
    "similarity": "shapeshift.lab.analyses:SIMILARITY",
    "swapped-order": "shapeshift.lab.analyses:SWAPPED_ORDER",
    "learning": "shapeshift.lab.analyses:LEARNING",
    "speed": "shapeshift.lab.speed:SPEED",
    "decoding-speed": "shapeshift.lab.properties:DECODING_SPEED",
    "step-memory": "shapeshift.lab.properties:STEP_MEMORY",
    "export": "shapeshift.lab.properties:EXPORT",
    "fairseq": "shapeshift.lab.toolkits.measure:FAIRSEQ",
    "opennmt-py": "shapeshift.lab.toolkits.measure:OPENNMT",
}
"""Name → `module:object`."""

TRAIN = "train"
"""The name of the step before all measures."""


OPTIONAL = {"fairseq", "opennmt-py"}
"""Measures that need a program which may not be there: a cell is finished without them."""


def check_measures(names: Sequence[str]) -> None:
    """Raise `ShapeshiftError` for a name that is neither in `MEASURES` nor `module:object`."""
    for name in names:
        module, colon, attribute = name.partition(":")
        if name not in MEASURES and not (colon and module and attribute):
            raise ShapeshiftError(
                f"unknown measure {name!r}{nearest(name, MEASURES)} (known:"
                f" {', '.join(MEASURES)}, or package.module:object)"
            )


def find_measure(name: str) -> Measure:
    """Import the measure `name`.

    Raises:
        ShapeshiftError: there is none of this name, or it cannot be imported.
    """
    check_measures([name])
    module, _, attribute = MEASURES.get(name, name).partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ShapeshiftError(f"the measure {name!r} cannot be imported: {error}") from error
    if not callable(getattr(found, "measure", None)):
        raise ShapeshiftError(f"{name!r} is no measure: it has no function `measure(run, data)`")
    measure: Measure = found
    return measure


def usable(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the measures that can be taken here, and for each other one a line: what is missing
    and how to install it."""
    lines: dict[str, str] = {}
    for name in names:
        if name in OPTIONAL and (reason := find_measure(name).missing()):  # type: ignore[attr-defined]
            lines[name] = reason
    return [name for name in names if name not in lines], list(lines.values())


def measure_training(run: Run) -> list[Measurement]:
    """Return what the log of a trained run holds: losses, median speed, time, parameters."""
    log = read_log(run.directory / "log.jsonl")
    found = [
        Measurement(metric=name, value=line[name], dataset="valid", step=int(line["update"]))
        for line in log
        for name in line
        if name.startswith("valid_")
    ]
    losses = [line["valid_loss"] for line in log if "valid_loss" in line]
    if losses:
        found.append(Measurement(metric="valid_loss", value=losses[-1], dataset="valid"))
        perplexity = math.exp(min(losses[-1], 99.0))
        found.append(Measurement(metric="valid_perplexity", value=perplexity, dataset="valid"))
    speeds = [line["tokens_per_s"] for line in log if "tokens_per_s" in line]
    if speeds:
        found.append(Measurement(metric="tokens_per_s", value=median(speeds), dataset="train"))
    elapsed_s = run.checkpoints.progress(run.checkpoints.updates()[-1]).elapsed_s
    found.append(Measurement(metric="training_s", value=elapsed_s, dataset="train"))
    parameters = sum(p.numel() for p in run.model().parameters())
    found.append(Measurement(metric="parameters", value=parameters))
    return found


@dataclass(frozen=True)
class Score:
    """Translate a split with the averaged model and score it: BLEU and the other metrics of
    `evaluation.metrics` over all of it, BLEU by source length, and, where it consists of several
    files, over each of them (`test/newstest2014`) and their mean (`test mean`), which the SHAPE
    paper reports (Kiyono et al. 2021, Table 2 and Table 5)."""

    split: Literal["valid", "test"]

    def measure(self, run: Run, data: Prepared) -> list[Measurement]:
        """Translate and score; see `Measure`."""
        scores = translate_and_score(run, self.split, prepared_root=data.directory.parent)
        sources, references = data.text(self.split)
        results = run.directory / "results"
        # Next to the translations, so that significance tests need only the run.
        keep_lines(results / references_file(self.split), references)
        hypotheses = kept_lines(results / hypotheses_file(self.split))
        sets = files_of(data, self.split, len(references))
        found = _measurements(scores, self.split)
        for name, part in sets.items():
            of_set = evaluate(
                hypotheses[part],
                references[part],
                metrics=run.config.evaluation.metrics,
                tokenizer=run.config.bleu_tokenizer,
                sources=sources[part],
                comet=run.config.evaluation.comet,
            )
            found += _measurements(of_set, name)
        if not sets:
            sets = {self.split: slice(None)}
        for metric in {m.metric: None for m in found}:
            one = [m for m in found if m.metric == metric and not m.bucket and m.dataset in sets]
            found.append(mean_measurement(one, self.split))
        return found


def mean_measurement(of_files: Sequence[Measurement], split: str) -> Measurement:
    """Return the mean of a metric over the files of a split."""
    mean = fmean(each.value for each in of_files)
    changes = {"value": mean, "dataset": mean_of(split), "hypotheses": None, "references": None}
    return of_files[0].model_copy(update=changes)


def mean_of(split: str) -> str:
    """Return the dataset under which the mean over the files of a split is found."""
    return f"{split} mean"


ORIGINAL: Final = "original-order"
SWAPPED: Final = "swapped-order"
"""What the measure `swapped-order` keeps texts of as if they were splits, `ORIGINAL` with the
references of both."""


def hypotheses_file(split: str) -> str:
    """Return the name of the file of translations in a run's `results/`."""
    return f"{split}.average.txt"


def references_file(split: str) -> str:
    """Return the name of the file of references in a run's `results/`."""
    return f"{split}.references.txt"


def keep_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file of a run's results, whole or not at all, and its hash."""
    store(path.parent, {path.name: "".join(line + "\n" for line in lines).encode()})


def kept_lines(path: Path) -> list[str]:
    """Read a text file of a run's results, compared with its hash.

    Raises:
        ShapeshiftError: it is missing, or not what was written.
    """
    steps = path.parent.parent.with_name("steps")
    remedy = f"remove the record of the measure that wrote it from {steps}, and it is made again"
    verify(path.parent, path.name, remedy=remedy)
    return list(read_lines(path))


def _measurements(scores: Scores, split: str) -> list[Measurement]:
    hashes = {"hypotheses": scores.hypotheses_sha256, "references": scores.references_sha256}
    found = [
        Measurement(
            metric=score.name, value=score.value, dataset=split, signature=score.signature, **hashes
        )
        for score in scores.scores
    ]
    for bucket in scores.by_length or ():
        if bucket.score is not None:
            found.append(
                Measurement(
                    metric=bucket.score.name,
                    value=bucket.score.value,
                    dataset=split,
                    bucket=bucket.label,
                    signature=bucket.score.signature,
                    **hashes,
                )
            )
    return found


def files_of(data: Prepared, split: Literal["valid", "test"], num_pairs: int) -> dict[str, slice]:
    """Return `split/file` → its pairs, where a split has several files.

    Joined pairs run on over the ends of files; one belongs to the file that it begins in.
    """
    corpus = data.report.config.corpus
    if isinstance(corpus, GrammarCorpus) or len(corpus.prefixes(split)) < 2:
        return {}
    corpus = local_corpus(corpus)
    dataset = data.report.config.dataset
    joined = dataset.num_joined if isinstance(dataset, Interpolate) else 1
    counts = [sum(1 for _ in read_entry(corpus, entry)) for entry in corpus.prefixes(split)]
    names = [f"{split}/{corpus.label(split, number)}" for number in range(len(counts))]
    begins = range(0, num_pairs * joined, joined)
    ends = [bisect_left(begins, end) for end in accumulate(counts)]
    return {
        name: slice(begin, end)
        for name, begin, end in zip(names, [0, *ends[:-1]], ends, strict=True)
        if begin < end
    }


def recorded_files(
    found: Iterable[Measurement], split: str, references: Sequence[str]
) -> list[slice]:
    """Return the pairs of each file of a split, as `files_of` had them when it was scored; nothing
    where there is only one file. A file ends where its references have the recorded hash, so that
    neither the prepared data nor the corpus are needed.

    Args:
        found: by `Score`.
        split: that was scored.
        references: of the whole split.

    Raises:
        ShapeshiftError: they are not those that were scored.
    """
    hashes = {x.dataset: x.references for x in found if (x.dataset or "").startswith(f"{split}/")}
    files, begin = [], 0
    for name, expected in hashes.items():
        reached = enumerate(_growing_sha256(references[begin:]), begin + 1)
        end = next((number for number, sha256 in reached if sha256 == expected), None)
        if end is None:
            raise ShapeshiftError(
                f"the references of {name} are not those that were scored; remove the record of"
                f" score-{split} from the run's steps, and it is scored again"
            )
        files.append(slice(begin, end))
        begin = end
    return files


def _growing_sha256(lines: Iterable[str]) -> Iterator[str]:
    """Yield `sha256_lines` of the first line, of the first two, and so on."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line}\n".encode())
        yield digest.hexdigest()


SCORE_VALID, SCORE_TEST = Score("valid"), Score("test")
