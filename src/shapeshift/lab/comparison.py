"""The same data and model with several position schemes, compared by source length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shapeshift.config import Config, parse_config
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.disk import save
from shapeshift.evaluation.scores import Scores
from shapeshift.evaluation.tables import Table
from shapeshift.integrity import verify
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.style import save as save_figure
from shapeshift.lab.run import DataProgress, Run
from shapeshift.lab.score import translate_and_score
from shapeshift.lab.train import train
from shapeshift.training.checkpoints import Resumed
from shapeshift.training.manifest import MODEL
from shapeshift.training.stopping import StopSignals
from shapeshift.training.trainer import Observer


@dataclass(frozen=True)
class Comparison:
    """Where each run is and what came out.

    Attributes:
        scores: system → its test scores, one for each seed.
        data: BLEU by source length.
        files: the table and the figure.
    """

    scores: dict[str, list[Scores]]
    data: length_bleu.LengthBleu
    files: list[Path]

    def table(self) -> Table:
        """Return BLEU by source length, a column for each system."""
        return length_bleu.tabulate(self.data)


def compare(
    document: Mapping[str, Any],
    systems: Mapping[str, Sequence[str]],
    seeds: Sequence[int],
    directory: Path,
    *,
    observe: Callable[[str, Config], Observer],
    on_progress: DataProgress,
    on_resume: Callable[[Resumed], None],
    prepared_root: Path,
    stop: StopSignals | None = None,
) -> Comparison:
    """Train and test every system with every seed, one after the other, and put them side by side.

    A run that is finished is not run again, and one that was stopped goes on.

    Args:
        document: the configuration that all share.
        systems: name → overrides; the first is the one that gains are measured from.
        seeds: of training.
        directory: gets a folder `SYSTEM-SEED` for each run, the table and the figure.
        observe: makes an observer for a run, given its name and configuration.
        on_progress: receives the progress of preparing and translating.
        on_resume: receives each checkpoint that a run goes on from.
        prepared_root: see `lab.train.train`.
        stop: see `lab.train.train`; the same for all runs.

    Raises:
        StoppedError: after a signal; the run at work has saved a checkpoint.
    """
    plan = {
        (system, seed): parse_config(document, (*overrides, f"training.seed={seed}"))
        for system, overrides in systems.items()
        for seed in seeds
    }
    scores: dict[str, list[Scores]] = {system: [] for system in systems}
    for (system, seed), config in plan.items():
        name = f"{system}-{seed}" if len(seeds) > 1 else system
        run = train(
            config,
            directory / name,
            observe(name, config),
            prepared_root=prepared_root,
            on_prepare=on_progress,
            on_resume=on_resume,
            stop=stop,
        )
        scores[system].append(_tested(run, name, prepared_root, on_progress))
    first = next(iter(plan.values()))
    data = length_bleu.compute(scores, baseline=next(iter(systems)), trained=_trained(first))
    files = save_figure(length_bleu.plot(data), directory / "bleu-by-length", ("png", "svg"))
    table = directory / "bleu-by-length.md"
    save(table, length_bleu.tabulate(data).markdown())
    return Comparison(scores, data, [table, *files])


def _tested(run: Run, name: str, prepared_root: Path, on_progress: DataProgress) -> Scores:
    done = run.directory / "results" / "test.average.json"
    # Decoding and evaluation may change between calls, and training may have gone on.
    settings = run.directory / "config.yaml"
    last = run.checkpoints.path(run.checkpoints.updates()[-1]) / MODEL
    if done.exists() and all(done.stat().st_mtime > x.stat().st_mtime for x in (settings, last)):
        verify(done.parent, done.name, remedy=f"remove it to score {run.directory} again")
        return Scores.load(done)
    return translate_and_score(
        run,
        prepared_root=prepared_root,
        on_translate=lambda count, total: on_progress(f"test {name}", count, total),
    )


def _trained(config: Config) -> tuple[int, int | None] | None:
    match config.data.dataset:
        case Extrapolate(max_length=longest):
            return (1, longest + 1)
        case LengthSlice(min_length=shortest, max_length=end):
            return (shortest, end)
    return None
