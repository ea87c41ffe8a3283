"""Whether one system is better than another: paired bootstrap tests.

Two kinds of chance are kept apart. How results vary from seed to seed is their standard deviation.
Whether a difference would hold on other sentences is the paired bootstrap test (Koehn 2004), to the
digit as sacreBLEU computes it; of a test set of several files, each resampled within
itself, it is on the mean of their scores. It is made for each seed separately: the translations of
one sentence by three seeds are not three independent sentences, as a test on all seeds one after
the other would have it, and its p-value would be too small. The p-values of the seeds, which come
from the same sentences and so depend on each other in an unknown way, become one by twice their
mean, which is valid whatever the dependence (Vovk and Wang 2020, "Combining p-values via
averaging"). That errs on the careful side. For one seed it is the test's own p-value. A seed that
points the other way than the means is no evidence for their difference, however sure it is of
itself: its p counts as 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric as SacrebleuMetric

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import read_sums
from shapeshift.evaluation.metrics import SACREBLEU, check_parallel
from shapeshift.evaluation.tokenizers import DEFAULT
from shapeshift.run.folder import RESULTS
from shapeshift.run.measures import kept_lines
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun

LEVEL = 0.05
"""A p-value below this is called significant."""

MARK = "*"
"""Stands behind a difference that is significant."""

NUM_SAMPLES = 2000
"""Of the bootstrap: enough that a claim of thirty parts can fail, each at its share of `LEVEL`."""

METHOD = 4
"""Of `compare_cells`: raised whenever comparisons come about in another way, so that kept ones are
made again."""

_SEED = 12345
"""Of the bootstrap: sacreBLEU's."""

Outputs = Mapping[int, Sequence[str]]
"""Seed → translations, one for each reference."""

_ALL = (slice(None),)

_Name = TypeVar("_Name")


def holm(p_values: Mapping[_Name, float]) -> dict[_Name, float]:
    """Return the p-values of several tests taken together (Holm 1979): the chance that any of them
    is below a level, where no difference is real, is at most this level.

    The smallest of n p-values is multiplied by n, the next by n − 1, and so on; none is below one
    that was smaller before, and none above 1.
    """
    corrected, largest = dict[_Name, float](), 0.0
    for place, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = largest
    return corrected


def student(t: float, degrees: int) -> float:
    """Return the probability that Student's t with some degrees of freedom, 1 or more, exceeds `t`.

    Abramowitz & Stegun 26.7.3 and 26.7.4, which are exact for whole numbers of degrees.
    """
    angle = math.atan(t / math.sqrt(degrees))
    term = math.cos(angle) if degrees % 2 else 1.0
    total = 0.0
    for n in range(2 + degrees % 2, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (n - 1) / n
    inside = math.sin(angle) * total  # the probability of (-t, t), with the sign of t
    if degrees % 2:
        inside = 2 / math.pi * (angle + inside)
    return (1 - inside) / 2


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return what Student's t exceeds with a probability below one half."""
    low, high = 0.0, 1.0
    while student(high, degrees) > probability:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, degrees) > probability else (low, middle)
    return high


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline, seed by seed.

    Attributes:
        scores, baseline_scores: seed → score.
        p_values: seed → of its paired bootstrap test; 1 where the seed's own difference has not the
            sign of the means'.
    """

    scores: Mapping[int, float]
    baseline_scores: Mapping[int, float]
    p_values: Mapping[int, float]

    @property
    def score(self) -> float:
        """The system's, the mean over the seeds."""
        return statistics.fmean(self.scores.values())

    @property
    def baseline_score(self) -> float:
        """The baseline's."""
        return statistics.fmean(self.baseline_scores.values())

    @property
    def differences(self) -> dict[int, float]:
        """Seed → the system's score minus the baseline's."""
        return {seed: score - self.baseline_scores[seed] for seed, score in self.scores.items()}

    @property
    def difference(self) -> float:
        """The system's score minus the baseline's."""
        return self.score - self.baseline_score

    @property
    def p_value(self) -> float:
        """Twice the mean of the seeds' p-values, 1 at most; one seed's own."""
        mean = statistics.fmean(self.p_values.values())
        return mean if len(self.p_values) == 1 else min(1.0, 2 * mean)


def compare(
    system: Outputs,
    baseline: Outputs,
    references: Sequence[str],
    *,
    metric: str = "bleu",
    tokenizer: str = DEFAULT,
    num_samples: int = NUM_SAMPLES,
    files: Sequence[slice] = _ALL,
    minus: tuple[Outputs, Outputs] | None = None,
) -> Comparison:
    """Test a system against a baseline, seed by seed.

    Differs from sacreBLEU where the two have the same score, for example because all translations
    are equal: its p-value is then the smallest there is; here it is 1, as it is for a seed that
    contradicts the means.

    Args:
        system, baseline: seed → translations; the seeds are the same for both.
        references: one for each translation.
        metric: from `evaluation.metrics.SACREBLEU`.
        tokenizer: that BLEU splits text with, see `evaluation.tokenizers`.
        num_samples: of the bootstrap.
        files: the sentences of each file of the test set, which counts as much as the others.
        minus: other translations of both and of all seeds; what is compared is the score that is
            lost from the first to these.

    Raises:
        ShapeshiftError: unequal counts.
    """
    assert system.keys() == baseline.keys(), "a paired test needs the same seeds on both sides"
    shared = references, files, SACREBLEU[metric](tokenizer), num_samples
    own, base = (
        {seed: _sampled(lines, *shared) for seed, lines in side.items()}
        for side in (system, baseline)
    )
    for samples, lost in zip((own, base), minus or (), strict=False):
        for seed in samples:
            samples[seed] -= _sampled(lost[seed], *shared)
    scores, baseline_scores = ({x: float(y[0]) for x, y in side.items()} for side in (own, base))
    gain = statistics.fmean(scores.values()) - statistics.fmean(baseline_scores.values())
    p_values = {seed: _p_value(drawn - base[seed], gain) for seed, drawn in own.items()}
    return Comparison(scores, baseline_scores, p_values)


def compare_runs(
    test: Sequence[PlannedRun],
    against: Sequence[PlannedRun],
    root: Path,
    *,
    split: str = "test",
    wanted: Sequence[bool] | None = None,
    minus: str | None = None,
) -> Comparison:
    """Test the BLEU of some runs against that of others, one of each seed on both sides.

    BLEU has the runs' own tokenizer, see `Config.bleu_tokenizer`. Of a split of several files it
    is the mean over them, as `run.measures.mean_of` has it; of chosen sentences it is that
    of all files together.

    Args:
        test, against: scored, the same seeds on both sides.
        root: folder of the runs' folders.
        split: that was translated.
        wanted: which sentences count, the same for all runs; by default all of them.
        minus: that was translated as well, see `compare`.

    Raises:
        ShapeshiftError: runs that were scored against different references or with different
            tokenizers; see `translations`.
    """

    def lines(planned: PlannedRun, split: str, kind: str = "average") -> list[str]:
        if kind == "average":
            kept = translations(planned, root, split)
        else:
            kept = kept_lines(RunFolder(root / planned.key).run, split, kind)
        if wanted is None:
            return kept
        check_parallel(len(kept), len(wanted))
        return [line for line, chosen in zip(kept, wanted, strict=True) if chosen]

    def outputs(runs: Sequence[PlannedRun], split: str) -> Outputs:
        return {planned.seed: lines(planned, split) for planned in runs}

    references, tokenizer = lines(test[0], split, "references"), test[0].config.bleu_tokenizer
    first = RunFolder(root / test[0].key).run / RESULTS
    for planned in (*test, *against):
        own = lines(planned, split, "references"), planned.config.bleu_tokenizer
        if own != (references, tokenizer):
            raise ShapeshiftError(
                f"scored against other references than {first}, or with another tokenizer of BLEU"
                f" ({own[1]} and {tokenizer}); compare runs of one text and evaluation.tokenize",
                path=RunFolder(root / planned.key).run / RESULTS,
            )
    has_files = wanted is None and f"{split}.files.txt" in read_sums(first)
    bounds = lines(test[0], split, "files") if has_files else []
    return compare(
        outputs(test, split),
        outputs(against, split),
        references,
        tokenizer=tokenizer,
        files=[slice(*map(int, line.split())) for line in bounds] or _ALL,
        minus=None if minus is None else (outputs(test, minus), outputs(against, minus)),
    )


def translations(planned: PlannedRun, root: Path, split: str) -> list[str]:
    """Return the kept translations of a run, detokenised as its settings say.

    Args:
        run: scored.
        root: folder of the runs' folders.
        split: that was translated.

    Raises:
        ShapeshiftError: they are missing, damaged, or were made again with another
            `evaluation.detokenize`.
    """
    folder, wanted = RunFolder(root / planned.key), planned.config.evaluation.detokenize
    results = folder.run / RESULTS
    if f"{split}.detokenize.txt" in read_sums(results):  # an earlier version wrote none
        [made] = kept_lines(folder.run, split, "detokenize")
        if made != wanted:
            record = folder.record_path(f"score-{split}", planned.config)
            raise ShapeshiftError(
                f"another study has scored {split} since then, with evaluation.detokenize={made}"
                f" in place of {wanted}; remove {root}/*/measures/{record.name} and run this study"
                " again, which translates again",
                path=results,
            )
    return kept_lines(folder.run, split, "average")


def _sampled(
    hypotheses: Sequence[str],
    references: Sequence[str],
    files: Sequence[slice],
    metric: SacrebleuMetric,
    num_samples: int,
) -> NDArray[np.float64]:
    """Return the mean score over files: first of all sentences, then of each of the resamples,
    which are the same for all that have these references."""
    check_parallel(len(hypotheses), len(references))
    rng = np.random.default_rng(_SEED)
    scores = []
    for part in files:
        counts = metric._extract_corpus_statistics(hypotheses[part], [references[part]])
        drawn = rng.choice(len(counts), size=(num_samples, len(counts)))
        table = np.array(counts, dtype=np.float32)  # as in sacreBLEU: rounding decides ties
        whole = metric._aggregate_and_compute(counts)
        parts = (metric._compute_score_from_stats(table[chosen].sum(0)) for chosen in drawn)
        scores.append([score.score for score in (whole, *parts)])
    mean: NDArray[np.float64] = np.mean(scores, axis=0)  # (1 + samples,)
    return mean


def _p_value(differences: NDArray[np.float64], gain: float) -> float:
    """Return how probable a difference of this seed's size is by chance; 1 if its sign is not that
    of `gain`."""
    difference, samples = differences[0], np.abs(differences[1:])
    if difference * gain <= 0:
        return 1.0
    as_large = int(np.sum(samples - samples.mean() > abs(difference)))
    return (as_large + 1) / (len(samples) + 1)
