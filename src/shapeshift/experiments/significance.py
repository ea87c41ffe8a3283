"""Whether one system is better than another: summaries over seeds and paired bootstrap tests.

Two kinds of chance are kept apart. How results vary from seed to seed is the standard deviation of
`summarise`. Whether a difference would hold on other sentences is the paired bootstrap test (Koehn
2004), as sacreBLEU computes it, here made for each seed by itself: the translations of one sentence
by three seeds are not three independent sentences, as a test on all seeds one after the other would
have it, and its p-value would be too small. The p-values of the seeds, which come from the same
sentences and so depend on each other in an unknown way, become one by twice their mean, which is
valid whatever the dependence (Vovk and Wang 2020, "Combining p-values via averaging"). That errs on
the careful side. For one seed it is the test's own p-value. A seed that points the other way than
the means is no evidence for their difference, however sure it is of itself: its p counts as 1.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.significance import PairedTest, Result

from shapeshift.data.files import read_lines
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import SACREBLEU, check_parallel, score_corpus
from shapeshift.evaluation.tables import Table
from shapeshift.evaluation.tokenizers import DEFAULT
from shapeshift.experiments.cell_folder import CellFolder
from shapeshift.experiments.grid import Cell
from shapeshift.experiments.measures import hypotheses_file, references_file

LEVEL = 0.05
"""A p-value below this is called significant."""

MARK = "*"
"""Stands behind a difference that is significant."""

NUM_SAMPLES = 2000
"""Of the bootstrap: enough that a claim of thirty parts can fail, each at its share of `LEVEL`."""

METHOD = 2
"""Of `compare`: raised whenever p-values come about in another way, so that kept ones are made
again."""

Outputs = Mapping[int, Sequence[str]]
"""Seed → translations, one for each reference."""


@dataclass(frozen=True)
class Summary:
    """Values over seeds.

    Attributes:
        mean, median: of the values.
        stdev: sample standard deviation (n − 1); 0 for a single value.
        num_values: n.
    """

    mean: float
    median: float
    stdev: float
    num_values: int


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, median and standard deviation of one value or more."""
    return Summary(
        statistics.fmean(values),
        statistics.median(values),
        statistics.stdev(values) if len(values) > 1 else 0.0,
        len(values),
    )


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline.

    Attributes:
        system, baseline: their names.
        metric: from `evaluation.metrics.SACREBLEU`.
        score, baseline_score: means over the seeds.
        p_values: seed → of its paired bootstrap test; 1 where the seed's own difference has not the
            sign of the means'.
        num_samples: of the bootstrap.
    """

    system: str
    baseline: str
    metric: str
    score: float
    baseline_score: float
    p_values: Mapping[int, float]
    num_samples: int = NUM_SAMPLES

    @property
    def difference(self) -> float:
        """The system's score minus the baseline's."""
        return self.score - self.baseline_score

    @property
    def p_value(self) -> float:
        """Twice the mean of the seeds' p-values, 1 at most; one seed's own."""
        mean = statistics.fmean(self.p_values.values())
        return mean if len(self.p_values) == 1 else min(1.0, 2 * mean)

    @property
    def significant(self) -> bool:
        """Whether the p-value is below `LEVEL`."""
        return self.p_value < LEVEL


def compare(
    systems: Mapping[str, Outputs],
    references: Sequence[str],
    *,
    baseline: str,
    metric: str = "bleu",
    tokenizer: str = DEFAULT,
    num_samples: int = NUM_SAMPLES,
) -> list[Comparison]:
    """Test every system against the baseline, seed by seed.

    Differs from sacreBLEU where two systems have the same score, as where they translate everything
    alike: its p-value is then the smallest there is; here it is 1, as it is for a seed that
    contradicts the means.

    Args:
        systems: name → seed → translations; the seeds are the same for all.
        references: one for each translation.
        baseline: one of the systems.
        metric: from `evaluation.metrics.SACREBLEU`.
        tokenizer: that BLEU splits text with, see `evaluation.tokenizers`.
        num_samples: of the bootstrap.

    Raises:
        ShapeshiftError: an unknown baseline, other seeds, or unequal counts.
    """
    if baseline not in systems:
        raise ShapeshiftError(
            f"unknown baseline {baseline!r}: expected one of {', '.join(systems)}"
        )
    ours = systems[baseline]
    scores = {
        name: _mean_score(out, references, metric, tokenizer) for name, out in systems.items()
    }
    sacrebleu = SACREBLEU[metric](tokenizer)
    comparisons = []
    for name, outputs in systems.items():
        if name == baseline:
            continue
        if outputs.keys() != ours.keys():
            raise ShapeshiftError(
                f"{name!r} has the seeds {_list(outputs)} but {baseline!r} has {_list(ours)}; a"
                " paired test needs the same ones: run those that are missing"
            )
        gain = scores[name] - scores[baseline]
        p_values = {
            seed: _p_value(ours[seed], outputs[seed], references, sacrebleu, num_samples, gain)
            for seed in outputs
        }
        comparisons.append(
            Comparison(
                name, baseline, metric, scores[name], scores[baseline], p_values, num_samples
            )
        )
    return comparisons


def compare_cells(
    cells: Sequence[Cell],
    root: Path,
    *,
    axis: str,
    baseline: str,
    split: str = "test",
    metric: str = "bleu",
    wanted: Sequence[bool] | None = None,
) -> dict[tuple[str, ...], list[Comparison]]:
    """Test the settings of one axis against one of them, for each combination of the other axes.

    BLEU has the cells' own tokenizer, see `Config.bleu_tokenizer`.

    Args:
        cells: of one grid; those that were not scored yet, or that have no baseline beside them,
            are left out.
        root: folder of the cells' folders.
        axis: whose settings are the systems.
        baseline: a setting of `axis`.
        split: that was translated.
        metric: from `evaluation.metrics.SACREBLEU`.
        wanted: which sentences count, of all cells alike; by default all of them.

    Returns:
        The settings of the other axes → the comparisons.

    Raises:
        ShapeshiftError: no such axis, systems that were scored against different references,
            or with different tokenizers.
    """
    groups: dict[tuple[str, ...], dict[str, dict[int, Sequence[str]]]] = {}
    references: dict[tuple[str, ...], list[str]] = {}
    tokenizers: dict[tuple[str, ...], str] = {}
    for cell in cells:
        if axis not in cell.axes:
            raise ShapeshiftError(f"{cell.grid} has no axis {axis!r}: {', '.join(cell.axes)}")
        results = CellFolder(root / cell.key).run / "results"
        if not (results / references_file(split)).exists():
            continue
        others = tuple(value for name, value in cell.axes.items() if name != axis)
        expected = _chosen(results / references_file(split), wanted)
        if references.setdefault(others, expected) != expected:
            raise ShapeshiftError(
                f"the cells {'/'.join(others)} were scored against different references; they"
                " cannot be compared",
                path=results,
            )
        tokenizer = cell.config.bleu_tokenizer
        if tokenizers.setdefault(others, tokenizer) != tokenizer:
            raise ShapeshiftError(
                f"BLEU of the cells {'/'.join(others)} has the tokenizers {tokenizers[others]} and"
                f" {tokenizer}; it cannot be compared: give all one evaluation.tokenize",
                path=results,
            )
        outputs = _chosen(results / hypotheses_file(split), wanted)
        groups.setdefault(others, {}).setdefault(cell.axes[axis], {})[cell.seed] = outputs
    return {
        others: compare(
            systems,
            references[others],
            baseline=baseline,
            metric=metric,
            tokenizer=tokenizers[others],
        )
        for others, systems in groups.items()
        if baseline in systems and len(systems) > 1
    }


def _chosen(path: Path, wanted: Sequence[bool] | None) -> list[str]:
    lines = list(read_lines(path))
    if wanted is None:
        return lines
    check_parallel(len(lines), len(wanted))
    return [line for line, chosen in zip(lines, wanted, strict=True) if chosen]


def significance_table(comparisons: Mapping[tuple[str, ...], Sequence[Comparison]]) -> Table:
    """Lay out comparisons: a row each, `MARK` behind differences that are significant."""
    rows = [
        (
            "/".join((*others, one.system)),
            one.baseline,
            f"{one.score:.2f}",
            f"{one.baseline_score:.2f}",
            f"{one.difference:+.2f}{MARK * one.significant}",
            f"{one.p_value:.3f}",
            str(len(one.p_values)),
        )
        for others, group in comparisons.items()
        for one in group
    ]
    metrics = sorted({one.metric for group in comparisons.values() for one in group})
    samples = sorted({one.num_samples for group in comparisons.values() for one in group})
    note = (
        f"{MARK} p < {LEVEL}, paired bootstrap ({', '.join(map(str, samples))} samples) on"
        f" {', '.join(metrics)}, a test for each seed; p is twice the mean over seeds"
    )
    header = ("system", "against", "score", "its score", "difference", "p", "seeds")
    return Table(header, rows, (note,))


def _mean_score(outputs: Outputs, references: Sequence[str], metric: str, tokenizer: str) -> float:
    return statistics.fmean(
        score_corpus(translations, references, (metric,), tokenizer=tokenizer)[0].value
        for translations in outputs.values()
    )


def _p_value(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    metric: SacrebleuMetric,
    num_samples: int,
    gain: float,
) -> float:
    """Return how probable a difference of this seed's size is by chance; 1 if its sign is not that
    of `gain`."""
    check_parallel(len(system), len(references))
    if list(baseline) == list(system):
        return 1.0
    test = PairedTest(
        [("baseline", list(baseline)), ("system", list(system))],
        {"metric": metric},
        [list(references)],
        test_type="bs",
        n_samples=num_samples,
    )
    _, results = test()
    [(first, found)] = [each for name, each in results.items() if name != "System"]
    assert isinstance(first, Result)
    assert isinstance(found, Result)
    assert found.p_value is not None
    return found.p_value if (found.score - first.score) * gain > 0 else 1.0


def _list(outputs: Outputs) -> str:
    return ", ".join(map(str, outputs))
