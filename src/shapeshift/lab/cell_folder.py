"""The folder of a cell: named by what its result depends on, whichever grid it belongs to.

ROOT/KEY/
  run/               the run: checkpoints, log, translations; see `lab.run`
  steps/             a JSON document for each step that is done
  lock               held by the process at work; see `locks`
  output.log         what the last process at work printed
  update             number of the last update, written about once a second while training
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shapeshift.config import Config
from shapeshift.data.config import GrammarCorpus
from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import digest, store, verify
from shapeshift.lab.identity import NEUTRAL, how_to_score, identity_fields
from shapeshift.lab.measures import TRAIN, Measurement
from shapeshift.lab.run import Run, has_begun
from shapeshift.schema import Strict

_TAIL_BYTES = 1 << 14


class StepRecord(Strict):
    """The measurements of a finished step, and how they were made.

    Attributes:
        step: its name.
        version: of Shapeshift.
        command: what was typed.
        time: when it was done, UTC, ISO 8601.
        elapsed_s: how long it took, this time.
        checkpoint: SHA-256 of the weights that were measured.
        text: fingerprint of the corpus text, whatever its settings; see `data.corpora`.
        measurements: the numbers.
        hardware: that it ran on; `None` where it was not recorded.
    """

    step: str
    version: str
    command: str
    time: str
    elapsed_s: float
    checkpoint: str
    text: str
    measurements: tuple[Measurement, ...]
    hardware: str | None = None


class CellFolder:
    """The folder of a cell; see the module.

    Attributes:
        path: of the folder.
        run: the run's folder.
        lock: the lock file.
        output: what the last process at work printed.
        update: the number of the last update, for who watches the training of another process.
    """

    def __init__(self, path: Path):
        self.path = path
        self.run = path / "run"
        self.lock, self.output = path / "lock", path / "output.log"
        self.update = path / "update"

    def check_settings(self, config: Config) -> None:
        """Raise `ShapeshiftError` if the folder's run has other settings, although the key is the
        same: a default has changed since."""
        if has_begun(self.run) and identity_fields(Run(self.run).config) != identity_fields(config):
            raise ShapeshiftError(
                "was made when other settings were default; move the folder away to train anew",
                path=self.path,
            )

    def reconcile(self, config: Config) -> Config:
        """Return the settings to work with: `config`, but in the words of the run that is there."""
        self.check_settings(config)
        if not has_begun(self.run):
            return config
        old = Run(self.run).config
        section = "training."
        names = [x.removeprefix(section) for x in NEUTRAL if x.startswith(section)]
        free = {name: getattr(config.training, name) for name in names}
        corpus = old.data.corpus
        if not isinstance(config.data.corpus, GrammarCorpus):
            corpus = corpus.model_copy(update={"root": config.data.corpus.root})
        return old.model_copy(
            update={
                "data": old.data.model_copy(update={"corpus": corpus}),
                "training": old.training.model_copy(update=free),
                "decoding": config.decoding,
                "evaluation": config.evaluation,
            }
        )

    def record(self, step: str, config: Config) -> StepRecord | None:
        """Return what is recorded of a step, or `None` if it is not done.

        Raises:
            ShapeshiftError: the record is damaged.
        """
        path = self._record_path(step, config)
        if not path.exists():
            return None
        remedy = "remove it, and the step is done again"
        verify(path.parent, path.name, remedy=remedy)
        try:
            return StepRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise ShapeshiftError(f"not the record of a step; {remedy}", path=path) from error

    def missing(self, steps: Sequence[str], config: Config) -> list[str]:
        """Return those of `train` and `steps` that are not done."""
        return [step for step in (TRAIN, *steps) if self.record(step, config) is None]

    def check_text(self, text: str, config: Config) -> None:
        """Raise `ShapeshiftError` if the cell was trained on text with another fingerprint."""
        trained = self.record(TRAIN, config)
        if trained is not None and trained.text != text:
            raise ShapeshiftError(
                "was trained on other text than the corpus now holds; give each text a --directory"
                " of its own, or bring the old text back",
                path=self.path,
            )

    def write_record(self, record: StepRecord, config: Config) -> None:
        """Keep what a step found."""
        path = self._record_path(record.step, config)
        store(path.parent, {path.name: record.model_dump_json(indent=1).encode() + b"\n"})

    def last_lines(self) -> list[str]:
        """Return the end of what the last process at work printed."""
        return tail(self.output).splitlines()[-12:]

    def last_log_lines(self) -> list[dict[str, Any]]:
        """Return the last lines of the run's log; none if there is no log."""
        lines = []
        for line in tail(self.run / "log.jsonl").splitlines():
            with suppress(
                ValueError, RecursionError
            ):  # the first may be cut, the last half written
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict) and "update" in line]

    def last_update(self) -> int:
        """Return the number of the last update that was trained; 0 before the first."""
        last = max((int(line["update"]) for line in self.last_log_lines()), default=0)
        with suppress(OSError, ValueError):  # not written yet, or half written
            last = max(last, int(self.update.read_text()))
        return last

    def updates_left(self, config: Config) -> int:
        """Return how many updates are still to be trained."""
        if self.record(TRAIN, config) is not None:  # it may have ended early
            return 0
        return max(0, config.training.max_updates - self.last_update())

    def _record_path(self, step: str, config: Config) -> Path:
        name = re.sub(r"[^\w.-]+", "-", step)
        if step != TRAIN:  # a measure may depend on these, which the key leaves out
            name += "." + digest(how_to_score(config))[:8]
        return self.path / "steps" / f"{name}.json"


def tail(path: Path) -> str:
    """Return the last 16 KiB of a text file; nothing if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
