"""The baseline as another toolkit trains it: its settings, and the measure that scores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shapeshift.config import Config
from shapeshift.data.prepared import Prepared
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.lab.final import averaged_updates
from shapeshift.lab.measures import Measurement, bleu_measurement, files_of, mean_measurement
from shapeshift.lab.run import Run, detokenizer
from shapeshift.lab.toolkits.commands import Command, find_program, run_commands
from shapeshift.lab.toolkits.export import Text, export, join
from shapeshift.positions import PRESETS
from shapeshift.training.config import Cosine, Noam

TestSplit = Literal["valid", "test"]
TEST_SPLITS: tuple[TestSplit, TestSplit] = ("valid", "test")


@dataclass(frozen=True)
class Baseline:
    """A run that another toolkit repeats.

    Attributes:
        config: ours.
        text: exported.
        directory: where the toolkit may write.
        gpu: whether to train on one.
    """

    config: Config
    text: Text
    directory: Path
    gpu: bool

    def __post_init__(self) -> None:
        """Refuse settings that no toolkit can repeat.

        Raises:
            ShapeshiftError: the run is not the papers' baseline.
        """
        training = self.config.training
        unlike = {
            "position=ape": self.config.position.scheme != PRESETS["ape"],
            "training.optimizer.name=adam": training.optimizer.name != "adam",
            "training.optimizer.weight_decay=0": training.optimizer.weight_decay != 0,
            "training.schedule.name=noam or inverse_sqrt": isinstance(training.schedule, Cosine),
            "training.compile=false": training.compile,
            "training.init_from=null": training.init_from is not None,
            "training.patience=null": training.patience is not None,
        }
        for needed, wrong in unlike.items():
            if wrong:
                raise ShapeshiftError(f"other toolkits repeat the baseline alone: set {needed}")

    @property
    def warmup_updates(self) -> int:
        """Updates until the peak of the learning rate."""
        return self.config.training.schedule.warmup_updates

    @property
    def peak(self) -> float:
        """The largest learning rate, at the end of the warm-up."""
        schedule = self.config.training.schedule
        if isinstance(schedule, Noam):
            return float(
                schedule.factor * (self.config.model.dim * schedule.warmup_updates) ** -0.5
            )
        assert not isinstance(schedule, Cosine)
        return schedule.peak

    @property
    def noam_factor(self) -> float:
        """The factor of the Noam schedule that has this peak."""
        return float(self.peak * (self.config.model.dim * self.warmup_updates) ** 0.5)

    @property
    def saved_updates(self) -> list[int]:
        """Updates of the checkpoints whose mean is the final model."""
        return averaged_updates(self.config.training, self.config.training.max_updates)


@dataclass(frozen=True)
class Toolkit:
    """Another toolkit as a measure: BLEU of the run's settings trained by it, in the bucket of its
    name, over each file of validation and test set, and their means.

    Attributes:
        name: of the rows.
        programs: that have to be there.
        install: how to get it.
        commands: writes the toolkit's settings, and returns what trains, averages and translates,
            given the paths of the programs; raises `ShapeshiftError` if the toolkit cannot do what
            the settings want.
        translations: returns the tokens of the translations, in the order of the text.
    """

    name: str
    programs: tuple[str, ...]
    install: str
    commands: Callable[[Baseline, Mapping[str, Path]], list[Command]]
    translations: Callable[[Baseline, TestSplit], list[str]]

    def missing(self) -> str | None:
        """Return how to install the toolkit, in one line; `None` if it is installed."""
        for program in self.programs:
            if find_program(program) is None:
                return f"{self.name} is left out: {program} is not on the PATH; {self.install}"
        return None

    def __call__(self, run: Run, data: Prepared) -> list[Measurement]:
        """Train, translate and score, all in `toolkits/NAME` next to the run's folder.

        Raises:
            ShapeshiftError: the toolkit or BLEU's tokenizer is not there; the toolkit cannot do
                what the run does, or failed.
        """
        if reason := self.missing():
            raise ShapeshiftError(reason)
        make_bleu(run.config.bleu_tokenizer)
        folder = run.directory.absolute().parent / "toolkits"
        baseline = Baseline(
            run.config,
            export(data, folder / "text"),
            folder / self.name,
            run.device.type == "cuda",
        )
        paths = {name: path for name in self.programs if (path := find_program(name))}
        run_commands(self.commands(baseline, paths), baseline.directory)
        return [each for split in TEST_SPLITS for each in self._score(baseline, data, split)]

    def _score(self, baseline: Baseline, data: Prepared, split: TestSplit) -> list[Measurement]:
        detokenize = detokenizer(baseline.config)
        lines = self.translations(baseline, split)
        hypotheses = [detokenize(text) for text in join(lines, data, split)]
        _, references = data.text(split)
        parts = files_of(data, split, len(references)) or {split: slice(None)}
        rows = []
        tokenizer = baseline.config.bleu_tokenizer
        for name, part in parts.items():
            texts = hypotheses[part], references[part]
            [bleu] = score_corpus(*texts, ("bleu",), tokenizer=tokenizer)
            rows.append(bleu_measurement(bleu, *texts, dataset=name, bucket=self.name))
        return [*rows, mean_measurement(rows, split)]
