"""The settings of the baseline that a toolkit gets, in terms that all toolkits share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from shapeshift.config import Config
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.final import averaged_updates
from shapeshift.lab.toolkits.commands import Command
from shapeshift.lab.toolkits.export import Text
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


class Toolkit(Protocol):
    """An adapter.

    Attributes:
        name: of the measure and of its rows.
        programs: that have to be there.
        install: how to get it.
    """

    name: str
    programs: tuple[str, ...]
    install: str

    def commands(self, run: Baseline, programs: Mapping[str, Path]) -> list[Command]:
        """Write the toolkit's settings, and return what trains, averages and translates.

        Raises:
            ShapeshiftError: the toolkit cannot do what the settings want.
        """

    def translations(self, run: Baseline, split: TestSplit) -> list[str]:
        """Return the tokens of the translations, in the order of the text."""
