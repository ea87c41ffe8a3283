"""A run: one model, trained and tested, in one folder, which contains everything that translating
needs. Its files are described in docs/run-folder.md. Files are checked against their hashes before
use; settings are changed by overrides, not by editing `config.yaml`. A folder without a checkpoint
is not a run yet: everything in it may be replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from shapeshift import positions
from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError, nearest, shell_command
from shapeshift._system.files import PARTIAL, read, refuse_link, remove, writing
from shapeshift._system.hashes import SUMS, hash_file, read_sums, restore, store, verify
from shapeshift.config import Config, load_config
from shapeshift.config.files import read_document
from shapeshift.data.config import DataConfig, GrammarCorpus, Interpolate
from shapeshift.data.prepared import IMPORTED_FROM, REPORT_OF_RUN, Report
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.running import Runner
from shapeshift.decoding.translator import Translator
from shapeshift.evaluation.tokenizers import moses
from shapeshift.export.folder import engines, read_report
from shapeshift.export.running import CTranslate2Runner, open_export
from shapeshift.model import Transformer, build
from shapeshift.positions.position_ids import FUNCTION
from shapeshift.positions.registry import find_kind
from shapeshift.run.identity import identity_fields
from shapeshift.run.machine import Machine
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.config import Cosine, TrainingConfig
from shapeshift.training.manifest import MODEL, read_manifest
from shapeshift.training.precision import choose_device, choose_precision
from shapeshift.training.weights import load_weights

CHANGES_RESULTS = {
    "training.max_updates",
    "training.patience",
    "training.average_checkpoints",
    "training.final_weights",
    "decoding",
}
"""Settings that a run may be continued with although results depend on them; `results/`, which
belongs to the older ones, is then deleted. `decoding` may not differ where validation translates.
"""

CONFIG = "config.yaml"
SUBWORDS = "subwords"
TORCH = "torch"
"""Our own engine, as opposed to exported models."""
KINDS = "kinds.json"
"""The kinds of the user's own, each with the SHA-256 of its source."""
LOCK = "lock"
AVERAGE = "average.safetensors"
RESULTS = "results"
AS_IT_IS = f"remove {SUMS} to use it as it is"
_REMEDY = f"run the same training command again, which restores it, or {AS_IT_IS}"


class Run:
    """The folder of a run.

    Args:
        directory: made by `create`, or by an earlier run.
        overrides: settings to differ from `config.yaml`, such as `decoding.beam=10`.

    Raises:
        ShapeshiftError: if it is not the folder of a run.
    """

    def __init__(self, directory: str | Path, overrides: Sequence[str] = ()):
        self.directory = Path(directory)
        self._overridden = {override.partition("=")[0] for override in overrides}
        if self.directory.is_dir():
            verify(self.directory, CONFIG, remedy=_REMEDY)
        if not (self.directory / CONFIG).is_file():
            inside = sorted(str(path.parent) for path in self.directory.glob(f"*/{CONFIG}"))
            near = [str(path.parent) for path in self.directory.parent.glob(f"*/{CONFIG}")]
            raise ShapeshiftError(
                "not a run (it has no config.yaml); name a folder made by `shapeshift train`"
                + (f", such as {inside[0]}" if inside else nearest(str(self.directory), near)),
                path=self.directory,
            )
        with own_modules.outside(self.directory):
            _import_kinds(self.directory)
            try:
                self.config = load_config(self.directory / CONFIG)
            except ShapeshiftError as error:
                remedy = (
                    "another version of shapeshift trained this run: use that one, or train again"
                )
                raise ShapeshiftError(f"{error} ({remedy} in a new folder)") from error
            if overrides:
                self.config = load_config(self.directory / CONFIG, overrides)
        training = self.config.training
        self.checkpoints = Checkpoints(
            self.directory / "checkpoints",
            training.keep_checkpoints,
            every=training.checkpoint_every,
        )

    @classmethod
    def create(cls, directory: str | Path, config: Config) -> Run:
        """Create the folder, or open it to continue the run, and write the settings.

        Raises:
            ShapeshiftError: see `check`, or it cannot be written.
        """
        directory = Path(directory)
        if cls.check(directory, config):
            delete(directory / RESULTS)
        if not has_begun(directory):
            for name in (SUMS, REPORT_OF_RUN, SUBWORDS, KINDS):
                delete(directory / name)
        contents = {CONFIG: config.to_yaml(directory).encode()}
        if sources := _kind_sources(config):
            contents[KINDS] = json.dumps(sources, indent=1).encode() + b"\n"
        store(directory, contents)
        return cls(directory)

    @classmethod
    def check(cls, directory: str | Path, config: Config) -> bool:
        """Return whether a run that is continued has results of other settings than `config`.
        Nothing is written, except a `config.yaml` of these settings that was damaged.

        Raises:
            ShapeshiftError: if the folder holds a run that cannot be continued with these
                settings, or something else; or a folder in it is a link.
        """
        directory = Path(directory)
        for name in ("checkpoints", SUBWORDS, RESULTS, "tensorboard"):
            refuse_link(directory / name)
        if has_begun(directory):
            restore(directory, {CONFIG: config.to_yaml(directory).encode()})
            run = cls(directory)
            if source := run.imported_from:
                start = f"training.init_from={directory}"
                raise ShapeshiftError(
                    f"holds a model that was imported from {source}, whose training cannot be"
                    f" continued; name a new folder with --run, and start from it with {start}",
                    path=directory,
                )
            run._check_kinds()
            return _check_same(run, config)
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        ours = CONFIG in names or all(x.startswith(PARTIAL) or x in (LOCK, SUMS) for x in names)
        if not ours:
            raise ShapeshiftError(
                "holds something that is not a run; name a new folder with"
                " `shapeshift train --run`",
                path=directory,
            )
        return False

    @property
    def device(self) -> torch.device:
        """The device of this run's model, by `training.device`."""
        return choose_device(self.config.training.device)

    @property
    def training(self) -> TrainingConfig:
        """The training settings. `training.precision=auto` is replaced by the precision with which
        the run began, if the device is of the same kind and supports it."""
        training, machine = self.config.training, Machine.read(self.directory)
        if machine is None or training.precision != "auto" or self.device.type != machine.device:
            return training
        with suppress(ShapeshiftError):
            choose_precision(machine.precision, self.device)
            return training.model_copy(update={"precision": machine.precision})
        return training

    @property
    def imported_from(self) -> str:
        """The model that `shapeshift import` read; empty for a run that was trained."""
        with suppress(ShapeshiftError, OSError):  # what is damaged, training restores
            report = Report.read(self.directory / REPORT_OF_RUN, "")
            return report.versions.get(IMPORTED_FROM, "")
        return ""

    def subwords(self) -> Subwords:
        """Return the subword models."""
        verify(self.directory, "subwords/", remedy=_REMEDY)
        return Subwords.load(self.directory / "subwords")

    def weights(self, which: str = "average") -> Path:
        """Return the file of weights named `average` (the final model; see
        `training.final_weights`), `last`, `best` or by its update.

        Raises:
            ShapeshiftError: if there is no such checkpoint.
        """
        average, updates = self.directory / AVERAGE, self.checkpoints.updates()
        if which == "average" and average.exists():
            return average
        known: dict[str, int | None] = {str(update): update for update in updates}
        if updates:
            known["last"] = updates[-1]
            if which == "best":
                known["best"] = self.checkpoints.progress(updates[-1]).best_update
        if update := known.get(which):
            return self.checkpoints.path(update) / MODEL
        if average.exists():
            remedy = "training is finished, and average is its final model"
        else:
            remedy = "finish training with the same command"
            remedy += ", or `shapeshift translate --checkpoint last`" * bool(updates)
        raise ShapeshiftError(
            f"has no weights {which!r} (expected average, the file {AVERAGE}, best, last or an"
            f" update; checkpoints: {', '.join(map(str, updates)) or 'none'}); {remedy}",
            path=self.directory,
        )

    def weights_label(self, which: str = "average") -> str:
        """Return what the weights are, such as `average of a training of 5,000 updates`."""
        if source := self.imported_from:
            return f"imported from {source}"
        if (path := self.weights(which)).name != AVERAGE:
            update = int(path.parent.name.rpartition("-")[2])
            return f"checkpoint after {update:,} updates"
        training = self.config.training
        last = max(self.checkpoints.updates(), default=training.max_updates)
        return f"{training.final_weights} of a training of {last:,} updates"

    def weights_sha256(self, which: str = "average") -> str:
        """Return the SHA-256 of the file that `weights` returns, from the run's records if they
        list it."""
        path = self.weights(which)
        if path.name == MODEL:
            return read_manifest(path.parent).files[MODEL]
        return read_sums(self.directory).get(AVERAGE) or hash_file(path)

    def model(
        self, which: str | Path = "average", device: torch.device | None = None
    ) -> Transformer:
        """Return the trained model in evaluation mode. `which` is a name as in `weights`, or a file
        that `weights` returned."""
        self._check_kinds()
        model = build(self.config.model, self.config.position.scheme, *self.subwords().sizes)
        load_weights(model, which if isinstance(which, Path) else self.weights(which))
        return model.to(device or "cpu").eval()

    def _check_kinds(self) -> None:
        """Raise a `ShapeshiftError` if the source of a user's own kind has changed since
        training."""
        path = self.directory / KINDS
        remedy = f"remove {path} to use the modules as they are now"
        if not path.exists():
            return
        verify(self.directory, KINDS, remedy=remedy)
        try:
            trained = json.loads(read(path))
            changed = [x for x, y in _kind_sources(self.config).items() if trained[x] != y]
        except (ValueError, LookupError, TypeError) as error:
            raise ShapeshiftError(f"not what was written; {remedy}", path=path) from error
        if changed:
            raise ShapeshiftError(
                f"the source of {', '.join(changed)} has changed since this model was trained;"
                f" bring its old source back, or {remedy}",
                path=path,
            )

    def translator(self, which: str | Path = "average", engine: str = TORCH) -> Translator:
        """Return a translator with this run's model.

        Args:
            which: weights, see `model`.
            engine: `torch`, or the name of a folder in the run's that `shapeshift export` wrote,
                whose model is used instead.

        Raises:
            ShapeshiftError: the run was opened with a precision or a device that the exported model
                does not have; the model was exported from other weights than the run has now; see
                also `model` and `open_export`.
        """
        subwords = self.subwords()
        if engine == TORCH:
            config = self.config.model_copy(update={"training": self.training})
            return make_translator(config, self.model(which, self.device), subwords)
        if Path(engine).name != engine or engine in ("", ".."):
            raise ShapeshiftError(
                f"expected the name of an engine of {self.directory} ({engines(self.directory)}),"
                f" got {engine!r}"
            )
        folder = self.directory / engine
        exported = open_export(folder, subwords, self.config.decoding, self.device)
        is_ctranslate2 = isinstance(exported, CTranslate2Runner)
        self._check_weights(folder, "ctranslate2" if is_ctranslate2 else "onnx")
        reasons = {"training.precision": "has the precision that it was exported with"}
        if self.device.type != "cpu" and not is_ctranslate2:
            reasons["training.device"] = "runs on the CPU"
        for key, reason in reasons.items():
            if key in self._overridden:
                raise ShapeshiftError(
                    f"{key} has no effect on {engine}, which {reason}; leave it out"
                )
        return make_translator(self.config, exported, subwords)

    def _check_weights(self, folder: Path, to: str) -> None:
        """Raise a `ShapeshiftError` if an exported model has other weights than those of the run
        that it was exported from."""
        report = read_report(folder)
        try:
            current = self.weights_sha256(report.checkpoint)
        except ShapeshiftError:  # the checkpoint is deleted, or training has not ended
            return
        if report.weights_sha256 in (None, current):
            return
        again = ["export", str(self.directory), "--to", to]
        if report.quantization is not None:
            again += ["--quantization", report.quantization]
        if report.checkpoint != "average":
            again += ["--checkpoint", report.checkpoint]
        raise ShapeshiftError(
            f"was exported from other weights than the run has now ({report.checkpoint}); remove"
            f" it and export again: {shell_command(*again, '--output', folder)}",
            path=folder,
        )

    @cached_property
    def _translator(self) -> Translator:
        return self.translator()

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Return the best translation of each line, by the final model, which stays loaded.

        Args:
            lines: detokenised sentences.

        Raises:
            ShapeshiftError: a line is too long for the model (`decoding.on_long` has other ways).
        """
        if isinstance(lines, str):
            raise TypeError(f"expected a list of lines, got one string: [{lines[:40]!r}]")
        return [*self._translator.translate(lines)]


def load_run(directory: str | Path, overrides: Sequence[str] = ()) -> Run:
    """Open a trained run, to translate with it or to look at its model.

        run = shapeshift.load_run("runs/mine-shape")
        run.translate(["A man is sleeping."])  # ["Ein Mann schläft."]

    Args:
        directory: of the run.
        overrides: see `Run`.

    Raises:
        ShapeshiftError: it is not the folder of a run, or not trained yet.
    """
    run = Run(directory, overrides)
    run.weights()
    return run


def make_translator(config: Config, model: Transformer | Runner, subwords: Subwords) -> Translator:
    """Return a translator with a model, ours or exported, and these settings."""
    if not isinstance(model, Runner):
        device = choose_device(config.training.device)
        dtype = choose_precision(config.training.precision, device)
        autocast = None if dtype == torch.float32 else dtype
        model = Runner(model, config.decoding, device, autocast)
    joined = isinstance(config.data.recipe, Interpolate)
    return Translator(model, subwords, joined=joined, detokenize=detokenizer(config))


def has_begun(directory: Path) -> bool:
    """Return whether a folder contains a checkpoint or the final model, so that it can continue or
    translate."""
    return (
        bool(Checkpoints(directory / "checkpoints", 1).updates()) or (directory / AVERAGE).exists()
    )


def detokenizer(config: Config) -> Callable[[str], str]:
    """Return the function that detokenises translations before scoring."""
    corpus = config.data.corpus
    if config.evaluation.detokenize == "none" or isinstance(corpus, GrammarCorpus):
        return str
    return moses(corpus.target)


def prepared_directory(config: DataConfig, root: str | Path = "prepared") -> Path:
    """Return the folder of prepared data of a configuration; each data configuration has its
    own."""
    key = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
    return Path(root) / f"{config.corpus.corpus}-{config.recipe.name}-{key}"


def delete(path: Path) -> None:
    """Remove a file or a folder of a run, if it exists."""
    with writing(path), suppress(FileNotFoundError):
        remove(path)


def _import_kinds(directory: Path) -> None:
    """Import the kinds of the user's own, and the function of position ids, that a run names."""
    position = read_document(directory / CONFIG).get("position")
    if not isinstance(position, dict):
        return
    parts, ids = position.get("parts"), position.get("position_ids")
    try:
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and own_modules.is_own(part.get("kind")):
                find_kind(part["kind"])
        if isinstance(ids, dict) and own_modules.is_own(ids.get("function")):
            own_modules.find(ids["function"], FUNCTION)
    except ShapeshiftError as error:
        raise ShapeshiftError(str(error), path=directory) from error


def _kind_sources(config: Config) -> dict[str, str]:
    """Return name → SHA-256 of its source, for the kinds of the user's own and their function of
    position ids."""
    kinds = dict.fromkeys(part.kind for part in config.position.scheme.parts)
    own = {kind: find_kind(kind).source for kind in kinds if kind not in positions.KINDS}
    sources = {kind: own_modules.source_sha256(source, "kind") for kind, source in own.items()}
    if function := config.position.scheme.position_ids.options.get("function"):
        sources[function] = own_modules.source_sha256(function, FUNCTION)
    return sources


def _check_same(run: Run, new: Config) -> bool:
    """Return whether any changed setting influences results; raise an error for settings that must
    not change."""
    old, directory, free = run.config, run.directory, CHANGES_RESULTS
    if isinstance(old.training.schedule, Cosine):  # which ends at max_updates
        free = free - {"training.max_updates"}
    if old.training.validated_metrics:  # scores of another search do not compare
        free = free - {"decoding"}
    # Paths of what is not needed again; what subword models hold is compared with the data.
    moved = {"data.subwords.models"}
    start = old.training.init_from
    if start is not None and not start.exists() and new.training.init_from is not None:
        moved.add("training.init_from")
    changed = [x for x in other_settings(old, new) if x not in moved]
    if refused := [x for x in changed if not any(f"{x}.".startswith(f"{key}.") for key in free)]:
        named = ", ".join(refused)
        on = shell_command("train", directory / CONFIG, "--run", directory)
        raise ShapeshiftError(
            f"holds a run with another {named}; name a new folder with --run, or continue this one:"
            f" {on}",
            path=directory,
        )
    done = max(run.checkpoints.updates(), default=0)
    if new.training.max_updates < done:
        raise ShapeshiftError(
            f"holds a run of {done:,} updates, more than training.max_updates="
            f"{new.training.max_updates}; name a new folder, or continue with"
            f" training.max_updates={max(done, old.training.max_updates)}",
            path=directory,
        )
    return bool(changed)


def other_settings(old: Config, new: Config) -> list[str]:
    """Return the settings that results depend on and that differ."""
    # `identity_fields` has a section of its own for how validation measures.
    changed = _differences(identity_fields(old), identity_fields(new))
    return [name.replace("validation.", "evaluation.") for name in changed]


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if not (isinstance(old, dict | None) and isinstance(new, dict | None)):
        return [] if old == new else [name]
    old, new = old or {}, new or {}
    return [
        found
        for key in sorted(old.keys() | new.keys())
        for found in _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    ]
