"""The folder of a run: named by what its result depends on, whichever grid it belongs to.

ROOT/KEY/
  run/               the run: checkpoints, log, translations; see `run.folder`
  measures/         a JSON document for each measure that is done
  start              SHA-256 of the weights that training began from, with `training.init_from`
  lock               held by the process at work; see `locks`
  output.log         what the last process at work printed
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import open_regular, read
from shapeshift._system.hashes import digest, hash_file, restore, store, verify
from shapeshift._system.own_modules import is_own, source_sha256
from shapeshift._system.schema import Strict
from shapeshift.config import Config
from shapeshift.run.folder import AVERAGE, CONFIG, Run, has_begun, other_settings
from shapeshift.run.identity import how_to_score, position_options
from shapeshift.run.machine import Machine
from shapeshift.run.measures import TRAIN, Result

EXAMPLES = ".examples.json"
"""Ends the name of the file of the values of examples, next to the record."""


class MeasureRecord(Strict):
    """The results of a finished measure, and how they were made.

    Attributes:
        measure: its name.
        version: of Shapeshift.
        command: what was typed.
        time: when it was done, UTC, ISO 8601.
        elapsed_s: how long it took, this time.
        checkpoint: SHA-256 of the weights that were measured.
        text: fingerprint of the corpus text, whatever its settings; see `data.corpora`.
        results: the numbers.
        hardware: that it ran on; `None` where it was not recorded.
        options: of the position in training, defaults included; see `position_options`.
    """

    measure: str
    version: str
    command: str
    time: str
    elapsed_s: float
    checkpoint: str
    text: str
    results: tuple[Result, ...]
    hardware: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


class RunFolder:
    """The folder of a run; its attributes are the paths of what the module says is in it."""

    def __init__(self, path: Path):
        self.path = path
        self.run = path / "run"
        self.measures, self.start = path / "measures", path / "start"
        self.lock, self.output = path / "lock", path / "output.log"

    def machine(self, config: Config, *, here: bool) -> Machine | None:
        """Return the machine settings with which the run began, or was trained if its weights are
        no longer there. If it has not begun, return those of this machine if it would run `here`.
        Otherwise, and for runs of earlier versions, return None.

        Raises:
            ShapeshiftError: this machine lacks the device or the precision.
        """
        if not here or has_begun(self.run) or self.record(TRAIN, config) is not None:
            return Machine.read(self.run)
        return Machine.here(config.training)

    def record(self, measure: str, config: Config) -> MeasureRecord | None:
        """Return the record of a measure, or `None` if the measure is not finished.

        Raises:
            ShapeshiftError: the record is damaged.
        """
        path = self.record_path(measure, config)
        if not path.exists():
            return None
        remedy = "remove it, and the measure is done again"
        verify(path.parent, path.name, remedy=remedy)
        try:
            return MeasureRecord.model_validate_json(read(path))
        except (OSError, ValidationError) as error:
            raise ShapeshiftError(f"not the record of a measure; {remedy}", path=path) from error

    def missing(self, measures: Sequence[str], config: Config) -> list[str]:
        """Return the unfinished ones of `train` and `measures`."""
        return [measure for measure in (TRAIN, *measures) if self.record(measure, config) is None]

    def check_settings(self, config: Config) -> None:
        """Raise `ShapeshiftError` if the run was made with other settings. The name of the folder
        leaves out defaults, which were others in another version."""
        if not has_begun(self.run):
            return
        restore(self.run, {CONFIG: config.to_yaml(self.run).encode()})
        # A path says where the weights or the pieces were, which are compared themselves.
        paths = ("training.init_from", "data.subwords.models")
        changed = other_settings(Run(self.run).config, config)
        trained = self.record(TRAIN, config)
        now, before = position_options(config.position.scheme), trained.options if trained else {}
        changed += [x for x in before.keys() & now.keys() if before[x] != now[x]]
        if changed := [x for x in changed if x not in paths]:
            raise ShapeshiftError(
                f"holds a run with another {', '.join(changed)}, made by a version with other"
                " defaults; give these runs a --directory of their own, or remove this folder, and"
                " the run is made again",
                path=self.path,
            )

    def check_text(self, text: str, config: Config) -> None:
        """Raise `ShapeshiftError` if the run was trained on text with another fingerprint."""
        trained = self.record(TRAIN, config)
        if trained is not None and trained.text != text:
            raise ShapeshiftError(
                "was trained on other text than the corpus now holds; give each text a --directory"
                " of its own, or bring the old text back",
                path=self.path,
            )

    def check_start(self, config: Config) -> None:
        """Raise `ShapeshiftError` if the weights of `training.init_from` have changed since
        training began."""
        now = start_of(config)
        if now and has_begun(self.run) and self.start.exists() and read(self.start) != now.encode():
            raise ShapeshiftError(
                f"began from other weights than {config.training.init_from} now has; give each"
                " start a --directory of its own, or bring the old weights back",
                path=self.path,
            )

    def write_record(self, record: MeasureRecord, config: Config) -> None:
        """Store the results of a measure."""
        path, contents = self.record_path(record.measure, config), dict[str, bytes]()
        whole = (x for x in record.results if x.bucket is None and x.update is None)
        if examples := {f"{x.metric} of {x.split}": x.examples for x in whole if x.examples}:
            contents[path.stem + EXAMPLES] = json.dumps(examples).encode()
        # Last: with it, the measure is done.
        contents[path.name] = record.model_dump_json(indent=1).encode() + b"\n"
        store(path.parent, contents)

    def examples(self, measure: str, config: Config, metric: str, split: str) -> list[float]:
        """Return the per-example values of a metric on a split.

        Raises:
            ShapeshiftError: they are missing or damaged.
        """
        path = self.record_path(measure, config)
        remedy = f"remove {path.name}, too, and it is measured again"
        path = path.with_name(path.stem + EXAMPLES)
        verify(path.parent, path.name, remedy=remedy)
        try:
            found: list[float] = json.loads(read(path))[f"{metric} of {split}"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ShapeshiftError(f"no values of the examples; {remedy}", path=path) from error
        return found

    def last_lines(self) -> list[str]:
        """Return the end of the output of the last process that worked on the run."""
        return tail(self.output).splitlines()[-12:]

    def progress(self) -> dict[str, float]:
        """Return the progress of training: `update`, `loss` and `tokens_per_s` of the last log line
        that has them; empty before the first one."""
        for text in reversed(tail(self.run / "log.jsonl").splitlines()):
            with suppress(ValueError, LookupError, TypeError):  # of validation, incomplete, damaged
                line = json.loads(text)
                return {name: line[name] + 0 for name in ("update", "loss", "tokens_per_s")}
        return {}

    def record_path(self, measure: str, config: Config) -> Path:
        """Return the path of a measure's record."""
        name = re.sub(r"[^\w.-]+", "-", measure)
        if measure != TRAIN:  # a measure may depend on these, which the key leaves out
            depends: Any = how_to_score(config)
            if is_own(measure):  # whose function may change
                depends = [depends, source_sha256(measure, "measure")]
            name += "." + digest(depends)[:8]
        return self.measures / f"{name}.json"


def start_of(config: Config) -> str | None:
    """Return the SHA-256 of the current weights of `training.init_from`; `None` without
    `init_from`."""
    start = config.training.init_from
    with suppress(OSError):
        return hash_file(start / AVERAGE) if start else None
    return None


def tail(path: Path) -> str:
    """Return the last 16 KiB of a text file; nothing if there is none."""
    with suppress(OSError), open_regular(path) as file:
        file.seek(max(0, file.seek(0, 2) - (1 << 14)))
        return file.read().decode(errors="replace")
    return ""
