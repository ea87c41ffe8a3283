"""Trains a run: prepares its data, continues a stopped training, and makes the final model."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_FILE, free_bytes, make_directory, read, tidy, writing
from shapeshift._system.hashes import restore, store, verify
from shapeshift._system.locks import locked
from shapeshift._system.seeds import derive
from shapeshift.config import Config
from shapeshift.data.prepare import prepare
from shapeshift.data.prepared import REPORT, REPORT_OF_RUN, Prepared, Report
from shapeshift.data.subwords import Subwords
from shapeshift.evaluation import comet
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.model import Transformer, build
from shapeshift.positions import Chain, Representation
from shapeshift.run.folder import (
    AS_IT_IS,
    AVERAGE,
    LOCK,
    RESULTS,
    SUBWORDS,
    Run,
    delete,
    has_begun,
    make_translator,
    prepared_directory,
)
from shapeshift.run.machine import MACHINE, Machine
from shapeshift.run.requirements import check_lengths, missing_requirements, text_notices
from shapeshift.training.checkpoints import Checkpoints, Resumed
from shapeshift.training.config import TrainingConfig
from shapeshift.training.estimate import disk_bytes
from shapeshift.training.log import Log
from shapeshift.training.manifest import MODEL, DamagedError, Progress
from shapeshift.training.observer import Observer
from shapeshift.training.parallel import Parallel
from shapeshift.training.precision import choose_device, choose_precision
from shapeshift.training.stopping import StopSignals
from shapeshift.training.trainer import Trainer
from shapeshift.training.weights import average, is_average_of, read_weights

_MAY_DIFFER = {"size", "dropout", "attention_dropout", "activation_dropout"}
"""Of the model, from that of the run that training starts from."""


def train(
    config: Config,
    directory: str | Path,
    observer: Observer,
    *,
    prepared_root: str | Path = "prepared",
    tested: bool = True,
    stop: StopSignals | None = None,
    parallel: Parallel | None = None,
) -> Run:
    """Prepare data if needed, train or continue training, and make the final model.

    Args:
        config: all settings.
        directory: the run's folder; if training was stopped there, it goes on.
        observer: receives how far preparation and training are.
        prepared_root: folder under which prepared data are kept and found again.
        tested: whether the test text will be translated, and so may not be too long.
        stop: entered while the model is trained: a signal then ends the run after an update.
        parallel: this process and the others, which all call this and share the folders; see
            `training.parallel.join`. The main process alone writes and calls back.

    Raises:
        ShapeshiftError: if the settings, the data, the checkpoints or the disk do not allow it,
            what will score the run is not there, or the run began on another kind of device or in a
            precision that this machine lacks.
        StoppedError: after a signal; a checkpoint is saved.
    """
    parallel = parallel or Parallel()
    directory = Path(directory)
    with parallel.main_first():
        Run.check(directory, config)
        folder = prepared_directory(config.data, prepared_root)
        if lines := missing_requirements(config, folder):
            raise ShapeshiftError("; ".join(lines))
        machine, training = _find_machine(config.training, directory, parallel.local_rank)
        data = prepare(config.data, folder, observer.preparing if parallel.is_main else None)
    training = _agree(training, parallel)
    resolved = config.model_copy(update={"training": training})
    trainer, started = _make_trainer(resolved, data, directory, parallel, tested=tested)
    if parallel.is_main:  # all that can be refused without the folder has been
        with writing(directory):
            make_directory(directory)
    lock = locked(directory / LOCK, optional=True) if parallel.is_main else nullcontext()
    with lock:
        run, resumed = _open_run(config, data, directory, trainer, machine)
        progress = trainer.progress
        updates_left = progress.update < config.training.last_update(progress)
        unfinished = updates_left or trainer.validation_is_due
        if parallel.is_main and started:
            observer.started(started)
        if parallel.is_main and not resumed:
            for line in text_notices(config, folder):
                observer.noticed(line)
        if resumed and (unfinished or resumed.skipped):
            observer.resumed(resumed)
        if unfinished:
            with parallel.main_first():
                log = _begin(run, trainer) if parallel.is_main else None
            try:
                with stop or nullcontext():
                    trainer.fit(log, observer, stop)
            finally:
                if log is not None:
                    log.close()
        if parallel.is_main and (paths := _left_to_average(directory, trainer)) is not None:
            average(paths, directory / AVERAGE)
    return run


def _make_trainer(
    config: Config, data: Prepared, directory: Path, parallel: Parallel, *, tested: bool
) -> tuple[Trainer, str | None]:
    """Build the model and return its trainer. A new run with `training.init_from` starts from the
    weights of that run. Raise `ShapeshiftError` for data that are too long for the model."""
    subwords, training = data.subwords, config.training
    torch.manual_seed(derive(training.seed, "weights"))
    model = build(config.model, config.position.scheme, *subwords.sizes)
    check_lengths(config, model, data, tested=tested)
    started = None
    if training.init_from is not None and not has_begun(directory):
        started = _start_from(training.init_from, model, config, subwords)
    metrics = training.validated_metrics
    checkpoints = Checkpoints(
        directory / "checkpoints", training.keep_checkpoints, every=training.checkpoint_every
    )
    validate = (lambda: _measure_validation(config, model, data, metrics)) if metrics else None
    trainer = Trainer(model, training, data.train, data.valid, checkpoints, validate, parallel)
    return trainer, started


@torch.no_grad()
def _start_from(directory: Path, model: Transformer, config: Config, subwords: Subwords) -> str:
    """Copy the final weights of a run into a model, and return a line that says which. Raise
    `ShapeshiftError` if there is no such run, it is not finished, or its model has another shape or
    other subwords.

    Weights of position representations are copied where both models have the same kind at the same
    place, alone or in a chain, and in one shape; others stay as they are. All other weights are
    copied.
    """
    run = Run(directory)
    if not (directory / AVERAGE).exists():
        raise ShapeshiftError(
            "is not trained to its end, so that nothing can start from it; run its training command"
            " again first",
            path=directory,
        )
    theirs, ours = (x.model.model_dump(exclude=_MAY_DIFFER) for x in (run.config, config))
    other = [f"model.{name}={theirs[name]}" for name in ours if ours[name] != theirs[name]]
    if other:
        raise ShapeshiftError(
            f"has a model of another shape; set {' '.join(other).lower()} to start from it",
            path=directory,
        )
    if run.subwords().fingerprint != subwords.fingerprint:
        raise ShapeshiftError(
            f"has other subword models than these data; set data.subwords.models={directory}",
            path=directory,
        )
    before = run.model()
    old = dict(before.named_parameters(remove_duplicate=False))
    names = {role: name for name, role in _roles(before).items()}
    roles, new, used, copied = _roles(model), [], set(), 0
    for name, weight in model.named_parameters():
        source = names.get(roles[name])
        # Apart from positions, both models have the same weights: their shape is one.
        if source is None or old[source].shape != weight.shape:
            new.append(name)
            continue
        weight.copy_(old[source])
        used.add(source)
        copied += weight.numel()
    line = f"starts from {directory}: {copied:,} parameters"
    left_out = [name for name, _ in before.named_parameters() if name not in used]
    for what, each in (("new", new), ("left out", left_out)):
        if each:
            line += f"; {what}: {', '.join(sorted(each))}"
    return line


def _roles(model: Transformer) -> dict[str, tuple[str, ...]]:
    """Return each name of a weight → what it is: its name, or the place of a position, its kind,
    which one of several of that kind it is of, and its name there."""
    roles: dict[str, tuple[str, ...]] = {
        name: (name,) for name, _ in model.named_parameters(remove_duplicate=False)
    }
    found: Counter[tuple[str, str]] = Counter()
    for path, kind in model.named_modules(remove_duplicate=False):
        if isinstance(kind, Representation) and not isinstance(kind, Chain):
            place = path.partition(".position")[0]
            name = f"{type(kind).__module__}.{type(kind).__qualname__}"
            for own, _ in kind.named_parameters(remove_duplicate=False):
                roles[f"{path}.{own}"] = place, name, str(found[place, name]), own
            found[place, name] += 1
    return roles


def _find_machine(
    training: TrainingConfig, directory: Path, local_rank: int | None
) -> tuple[Machine, TrainingConfig]:
    """Return the machine settings of a run, new or continued, and the training settings with `auto`
    replaced by them. Raise `ShapeshiftError` if updates are left that this machine cannot do."""
    began = Machine.read(directory) if has_begun(directory) else None
    if began is None:
        here = Machine.here(training, local_rank)
        return here, here.settings(training)
    try:
        return began, began.continued(training, directory, local_rank)
    except ShapeshiftError:
        checkpoints = Checkpoints(directory / "checkpoints", 1)
        updates = checkpoints.updates()
        last = checkpoints.progress(updates[-1]) if updates else Progress()
        if last.update < training.last_update(last):
            raise
        return began, Machine.here(training, local_rank).settings(training)


def _agree(training: TrainingConfig, parallel: Parallel) -> TrainingConfig:
    """Return the settings with the main process's precision, which may differ from this process's
    `auto`. Raise `ShapeshiftError` if this process lacks it, or has another kind of device."""
    device, names = choose_device(training.device, parallel.local_rank), ("fp32", "bf16")
    own = 2 * (device.type == "cpu") + names.index(training.precision)
    first = parallel.broadcast(own)
    assert first is not None
    if first // 2 != own // 2:
        raise ShapeshiftError(
            f"process {parallel.rank} has training.device={device.type}, the main process another;"
            " start all processes on one kind of device, or set training.device=cpu"
        )
    choose_precision(names[first % 2], device)
    return training.model_copy(update={"precision": names[first % 2]})


def _open_run(
    config: Config, data: Prepared, directory: Path, trainer: Trainer, machine: Machine
) -> tuple[Run, Resumed | None]:
    """Load the last checkpoint, and write the files that a run's folder has from the start. Raise
    `ShapeshiftError` if the folder or its checkpoints cannot be continued."""
    parallel = trainer.parallel
    with parallel.main_first():
        if parallel.is_main:
            Run.check(directory, config)  # again: now no other process changes it
            if (directory / AVERAGE).exists() and not trainer.checkpoints.updates():
                raise ShapeshiftError(
                    "holds a finished model without the checkpoints that it was made of; name a"
                    " new folder",
                    path=directory,
                )
            contents = _contents(data, directory)
            contents[MACHINE] = machine.model_dump_json(indent=2).encode() + b"\n"
    resumed = trainer.resume()
    with parallel.main_first():
        if parallel.is_main:
            _left_to_average(directory, trainer)
            with writing(directory):
                for folder in (directory.resolve(), directory / SUBWORDS, directory / RESULTS):
                    tidy(folder)
            Run.create(directory, config)
            store(directory, contents)
        return Run(directory), resumed


def _left_to_average(directory: Path, trainer: Trainer) -> list[Path] | None:
    """Return the checkpoints to average into the final model, or `None` if it already exists. Raise
    `ShapeshiftError` if one that is due is damaged or deleted: a mean of fewer is never taken."""
    training, progress = trainer.config, trainer.progress
    updates = training.averaged_updates(training.last_update(progress))
    if training.final_weights == "best":
        updates = [] if progress.best_update is None else [progress.best_update]
    paths = {update: trainer.checkpoints.path(update) / MODEL for update in updates}
    if is_average_of(directory / AVERAGE, [*paths.values()]):
        return None
    for update in reversed([x for x in updates if x <= progress.update]):
        try:
            read_weights(paths[update])
        except DamagedError as error:
            remedy = "training.final_weights=average"
            if training.final_weights == "average":
                newer = sum(x > update for x in updates)
                remedy = f"training.average_checkpoints={max(1, newer)}"
            raise ShapeshiftError(
                "the final model is made of this checkpoint, which cannot be used"
                f" ({error.reason}); continue with {remedy}, or train in a new folder",
                path=paths[update].parent,
            ) from error
    return [*paths.values()]


def _begin(run: Run, trainer: Trainer) -> Log:
    """Open the log, after checking that the disk has room for the remaining updates and that the
    validation metrics are available."""
    config, progress = run.config.training, trainer.progress
    if "comet" in (*config.validated_metrics, *run.config.evaluation.metrics):
        comet.load(run.config.evaluation.comet_model)
    num_parameters = sum(p.numel() for p in trainer.model.parameters())
    needed, free = disk_bytes(config, num_parameters, run.directory), free_bytes(run.directory)
    if needed > free:
        fewer = _fewer_checkpoints(config, num_parameters, needed - free)
        raise ShapeshiftError(
            f"the run needs up to {needed:,} bytes for checkpoints, and {free:,} are free; make"
            f" room{f', or keep fewer with {fewer}' if fewer else ''}",
            path=run.directory,
        )
    for name in (RESULTS, AVERAGE):  # of a shorter run that is now continued
        delete(run.directory / name)
    return Log(run.directory, progress.update, not trainer.validation_is_due, progress.elapsed_s)


def _fewer_checkpoints(config: TrainingConfig, num_parameters: int, saved: int) -> str:
    """Return the settings that keep as many checkpoints as possible and still save this many bytes,
    or nothing if none do."""

    def size(kept: int) -> int:
        return disk_bytes(config.model_copy(update={"keep_checkpoints": kept}), num_parameters)

    present = config.keep_checkpoints
    kept = bisect(range(1, present), size(present) - saved, key=size)
    if not kept:
        return ""
    averaged = config.average_checkpoints > kept
    also = f" training.average_checkpoints={kept}" if averaged else ""
    return f"training.keep_checkpoints={kept}{also}"


def _measure_validation(
    config: Config, model: Transformer, data: Prepared, metrics: Sequence[str]
) -> dict[str, float]:
    """Translate the validation set and score it: `valid_bleu` and so on."""
    sources, references = data.text("valid")
    scores = score_corpus(
        list(make_translator(config, model, data.subwords).translate(sources)),
        references,
        metrics,
        tokenizer=config.bleu_tokenizer,
        sources=sources,
        comet_model=config.evaluation.comet_model,
    )
    return {f"valid_{name}": score.value for name, score in zip(metrics, scores, strict=True)}


def _contents(data: Prepared, directory: Path) -> dict[str, bytes]:
    """Return name in the run's folder → content of the files that translating needs, and of the
    data report. Raise `ShapeshiftError` if a run that has begun there was trained on other data."""
    models = sorted((data.directory / SUBWORDS).iterdir())
    contents = {f"{SUBWORDS}/{path.name}": read(path, MAX_FILE) for path in models}
    contents[REPORT_OF_RUN] = read(data.directory / REPORT)
    if not has_begun(directory):
        return contents
    restore(directory, {REPORT_OF_RUN: contents[REPORT_OF_RUN]})
    account = directory / REPORT_OF_RUN
    verify(directory, REPORT_OF_RUN, remedy=f"name a new folder, or {AS_IT_IS}")
    if account.exists():
        before = Report.read(account, "remove it, and it is written again for the data as they are")
        reports = (before, data.report)
        if len({(x.fingerprint, x.subwords) for x in reports}) > 1:
            raise ShapeshiftError(
                f"was trained on other text or with other subword models than {data.directory} now"
                " holds; name a new folder, or bring the old ones back",
                path=directory,
            )
        contents[REPORT_OF_RUN] = read(account)
    return contents
