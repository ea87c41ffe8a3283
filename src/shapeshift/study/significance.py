"""Whether one model is better than another: paired bootstrap tests.

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

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from shapeshift.evaluation.metrics import SACREBLEU, check_parallel
from shapeshift.evaluation.tokenizers import DEFAULT

LEVEL = 0.05
"""A p-value below this is called significant."""

MIN_SEEDS = 3
"""That a verdict, and a test over seeds, takes."""

MARK = "*"
"""Stands behind a difference that is significant."""

NUM_SAMPLES = 5000
"""Of the bootstrap: a hundred tests that are corrected together can still be significant."""

METHOD = 5
"""Of `compare` and `compare_values`: raised whenever comparisons come about in another way, so
that kept ones are made again."""

_SEED = 12345
"""Of the bootstrap: sacreBLEU's."""

Outputs = Mapping[int, Sequence[str]]
"""Seed → translations, one for each reference."""

Samples = dict[int, NDArray[np.float64]]
"""Seed → the score of all examples, then of each resample."""

ALL = (slice(None),)

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


@dataclass(frozen=True)
class Comparison:
    """A comparison with a baseline, seed by seed.

    Attributes:
        scores, baseline_scores: seed → score.
        p_values: seed → of its paired bootstrap test; 1 where the seed's own difference has not the
            sign of the means'. Empty for a metric without examples.
        error: the standard error of the mean difference over examples, from the same samples; 0 for
            a metric without them.
    """

    scores: Mapping[int, float]
    baseline_scores: Mapping[int, float]
    p_values: Mapping[int, float]
    error: float = 0.0

    @property
    def score(self) -> float:
        """The score of the tested side, the mean over the seeds."""
        return statistics.fmean(self.scores.values())

    @property
    def baseline_score(self) -> float:
        """The score of the baseline, the mean over the seeds."""
        return statistics.fmean(self.baseline_scores.values())

    @property
    def differences(self) -> dict[int, float]:
        """Seed → the tested side's score minus the baseline's."""
        return {seed: score - self.baseline_scores[seed] for seed, score in self.scores.items()}

    @property
    def difference(self) -> float:
        """The difference from the baseline."""
        return self.score - self.baseline_score

    @property
    def is_tested(self) -> bool:
        """Whether there is a p-value: a metric without examples takes three seeds."""
        return bool(self.p_values) or len(self.scores) >= MIN_SEEDS

    @property
    def p_value(self) -> float:
        """The p-value: of one seed, its own; of several, twice their mean, at most 1. For a metric
        without examples, that of Student's t over the seeds' differences, two-sided; 1 with fewer
        than three seeds."""
        if self.p_values:
            mean = statistics.fmean(self.p_values.values())
            return mean if len(self.p_values) == 1 else min(1.0, 2 * mean)
        found = [*self.differences.values()]
        if len(found) < MIN_SEEDS:
            return 1.0
        error = statistics.stdev(found) / len(found) ** 0.5
        if not error:
            return float(not self.difference)
        return float(2 * stdtr(len(found) - 1, -abs(self.difference) / error))


def compare(
    system: Outputs,
    baseline: Outputs,
    references: Sequence[str],
    *,
    metric: str = "bleu",
    tokenizer: str = DEFAULT,
    num_samples: int = NUM_SAMPLES,
    files: Sequence[slice] = ALL,
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
    scorer = SACREBLEU[metric](tokenizer)

    def scores(counts: NDArray[Any], drawn: NDArray[np.int64]) -> list[float]:
        table = counts.astype(np.float32)  # as in sacreBLEU: rounding decides ties
        sums = [counts.sum(0).tolist(), *(table[chosen].sum(0) for chosen in drawn)]
        return [scorer._compute_score_from_stats(each).score for each in sums]

    def sampled(side: Outputs) -> Samples:
        found = {}
        for seed, hypotheses in side.items():
            check_parallel(len(hypotheses), len(references))
            counts = np.array(scorer._extract_corpus_statistics(hypotheses, [references]))
            found[seed] = _sampled(counts, scores, files, num_samples)
        return found

    own, base = sampled(system), sampled(baseline)
    for samples, lost in zip((own, base), map(sampled, minus or ()), strict=False):
        for seed in samples:
            samples[seed] -= lost[seed]
    return _compared(own, base)


def compare_values(
    system: Mapping[int, Sequence[float]],
    baseline: Mapping[int, Sequence[float]],
    *,
    num_samples: int = NUM_SAMPLES,
    files: Sequence[slice] = ALL,
) -> Comparison:
    """Test a system against a baseline, seed by seed, on a metric that is the mean of a value of
    each example; see `compare`.

    Args:
        system, baseline: seed → the values of all examples.
        num_samples, files: see `compare`.

    Raises:
        ShapeshiftError: unequal counts.
    """
    first = next(iter(system.values()))
    for values in (*system.values(), *baseline.values()):
        check_parallel(len(values), len(first), "values of the other run")

    def means(values: NDArray[Any], drawn: NDArray[np.int64]) -> list[float]:
        return [values.mean(), *(values[chosen].mean() for chosen in drawn)]

    own, base = (
        {x: _sampled(np.asarray(y, np.float64), means, files, num_samples) for x, y in side.items()}
        for side in (system, baseline)
    )
    return _compared(own, base)


def _compared(own: Samples, base: Samples) -> Comparison:
    """Compare two sides by their scores and the scores of their resamples."""
    scores, baseline_scores = ({x: float(y[0]) for x, y in side.items()} for side in (own, base))
    gain = statistics.fmean(scores.values()) - statistics.fmean(baseline_scores.values())
    differences = {seed: drawn - base[seed] for seed, drawn in own.items()}
    return Comparison(
        scores,
        baseline_scores,
        {seed: _p_value(drawn, gain) for seed, drawn in differences.items()},
        float(np.mean([*differences.values()], axis=0)[1:].std()),
    )


def _sampled(
    examples: NDArray[Any],
    score: Callable[[NDArray[Any], NDArray[np.int64]], list[float]],
    files: Sequence[slice],
    num_samples: int,
) -> NDArray[np.float64]:
    """Return the mean score over files, `(1 + samples,)`: first of all examples, then of each of
    the resamples, which are the same for all that have as many examples."""
    rng = np.random.default_rng(_SEED)
    scores = []
    for part in files:
        size = len(examples[part])
        scores.append(score(examples[part], rng.choice(size, size=(num_samples, size))))
    mean: NDArray[np.float64] = np.mean(scores, axis=0)
    return mean


def _p_value(differences: NDArray[np.float64], gain: float) -> float:
    """Return the p-value of this seed's difference; 1 if its sign differs from that of `gain`."""
    difference, samples = differences[0], np.abs(differences[1:])
    if difference * gain <= 0:
        return 1.0
    as_large = int(np.sum(samples - samples.mean() > abs(difference)))
    return (as_large + 1) / (len(samples) + 1)
