"""A run: one model, trained and tested, in one folder.

    config.yaml                  every setting, defaults included
    data.json                    what the data were: counts, lengths, fingerprint, versions
    subwords/                    the subword models
    checkpoints/update-…/        weights, optimiser state, cursor
    average.safetensors          the final model: the mean of the last checkpoints, or a copy of the
                                 best one; see `training.final`
    log.jsonl, tensorboard/      loss, learning rate, speed, validation
    results/                     translations and scores
    lock                         held by the process that trains here
    SHA256SUMS                   hashes of the settings, of data.json and of the subword models, see
                                 `integrity`

The folder is all that translating needs. What it holds is compared with its hash before it is used;
settings are changed by overrides, not by editing `config.yaml`. A folder without a checkpoint is
not a run yet: everything in it may be replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal

import torch

from shapeshift.config import Config, load_config
from shapeshift.data.config import DataConfig, GrammarCorpus, Interpolate
from shapeshift.data.prepare import prepare
from shapeshift.data.prepared import REPORT, Prepared, Report
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.translator import Translator
from shapeshift.disk import PARTIAL, Disk, make_directory, remove_directory, writing
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.detokenize import moses
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.integrity import SUMS, restore, store, verify
from shapeshift.lab.final import AVERAGE, check_final, make_final
from shapeshift.lab.identity import how_to_validate
from shapeshift.lab.locks import locked
from shapeshift.lab.requirements import check_lengths, check_requirements
from shapeshift.model import Transformer, build
from shapeshift.seeds import derive
from shapeshift.training.checkpoints import Checkpoints, Resumed
from shapeshift.training.config import Cosine
from shapeshift.training.guards import NonFinite
from shapeshift.training.log import Log
from shapeshift.training.manifest import MODEL
from shapeshift.training.parallel import Parallel
from shapeshift.training.precision import check_hardware, choose_device, choose_precision
from shapeshift.training.stopping import StopSignals
from shapeshift.training.trainer import Observer, Trainer
from shapeshift.training.weights import load_weights

RESUMABLE = {
    "training.log_every",
    "training.keep_checkpoints",
    "training.device",
    "training.parallel",
    "training.rank_timeout_s",
    "training.on_nonfinite",
    "training.split_on_oom",
    "decoding.max_tokens",
    "decoding.max_sentences",
    "decoding.buffer_size",
    "evaluation",
    "data.corpus.root",
}
"""Settings that a run may be continued with although they differ. Those of `evaluation` by which
its checkpoints are judged may not: such scores do not compare."""

CHANGES_RESULTS = {
    "training.max_updates",
    "training.average_checkpoints",
    "training.final",
    "decoding",
}
"""Settings that may differ as well; `results/`, which belongs to the older ones, is then deleted.
`decoding` may not differ where validation translates."""

CONFIG = "config.yaml"
DATA = "data.json"
SUBWORDS = "subwords"
LOCK = "lock"
RESULTS = "results"
_AS_IT_IS = f"remove {SUMS} to use it as it is"
_REMEDY = f"run the same training command again, which restores it, or {_AS_IT_IS}"
DataProgress = Callable[[str, int, int | None], None]


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
        verify(self.directory, CONFIG, remedy=_REMEDY)
        if not (self.directory / CONFIG).is_file():
            raise ShapeshiftError(
                "not a run (it has no config.yaml); name a folder made by `shapeshift train`",
                path=self.directory,
            )
        self.config = load_config(self.directory / CONFIG, overrides)
        training = self.config.training
        self.checkpoints = Checkpoints(
            self.directory / "checkpoints",
            training.keep_checkpoints,
            every=training.checkpoint_every,
        )

    @classmethod
    def create(cls, directory: str | Path, config: Config) -> Run:
        """Make the folder, or open it again to continue, and write the settings.

        Raises:
            ShapeshiftError: see `check`, or it cannot be written.
        """
        directory = Path(directory)
        changed = cls.check(directory, config)
        if any(not _is_in(name, RESUMABLE) for name in changed):
            _delete(directory / RESULTS)
        if not has_begun(directory):
            for name in (SUMS, DATA, SUBWORDS):
                _delete(directory / name)
        store(directory, {CONFIG: config.to_yaml().encode()})
        return cls(directory)

    @classmethod
    def check(cls, directory: str | Path, config: Config) -> list[str]:
        """Return the names of the settings in which a run that is continued differs from `config`.
        Nothing is written, except a `config.yaml` of these settings that was damaged.

        Raises:
            ShapeshiftError: if the folder holds a run that cannot be continued with these
                settings, or something else.
        """
        directory = Path(directory)
        if has_begun(directory):
            restore(directory, {CONFIG: config.to_yaml().encode()})
            return _check_same(cls(directory), config)
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        ours = CONFIG in names or all(x.startswith(PARTIAL) or x in (LOCK, SUMS) for x in names)
        if not ours:
            raise ShapeshiftError(
                "holds something that is not a run; name a new folder", path=directory
            )
        return []

    def subwords(self) -> Subwords:
        """Return the subword models."""
        verify(self.directory, "subwords/", remedy=_REMEDY)
        return Subwords.load(self.directory / "subwords")

    def weights(self, which: str = "average") -> Path:
        """Return the file of weights named `average` (the final model, whatever `training.final`
        makes it of), `last`, `best` or by its update.

        Raises:
            ShapeshiftError: if there is no such checkpoint.
        """
        path = self.directory / AVERAGE
        updates = self.checkpoints.updates()
        if which == "average" and path.exists():
            return path
        if not updates:
            raise ShapeshiftError("has no checkpoint yet", path=self.directory)
        if which == "average":
            raise ShapeshiftError(
                f"training is not finished, so there is no {AVERAGE} yet, or it was removed; run"
                " the training command again, or use --checkpoint last",
                path=self.directory,
            )
        if which == "best":
            best = self.checkpoints.progress(updates[-1]).best_update
            if best is None:
                raise ShapeshiftError(
                    "was not validated yet, so there is no best checkpoint; use --checkpoint last",
                    path=self.directory,
                )
            which = str(best)
        elif which == "last":
            which = str(updates[-1])
        if which not in map(str, updates):
            raise ShapeshiftError(
                f"no checkpoint {which!r}; there are average, best, last and"
                f" {', '.join(map(str, updates))}",
                path=self.directory,
            )
        return self.checkpoints.path(int(which)) / MODEL

    def model(self, which: str = "average", device: torch.device | None = None) -> Transformer:
        """Return the trained model in evaluation mode; see `weights` for `which`."""
        subwords = self.subwords()
        model = build(
            self.config.model,
            self.config.position.scheme,
            subwords.source_size,
            subwords.target_size,
        )
        load_weights(model, self.weights(which))
        return model.to(device or "cpu").eval()

    def translator(
        self,
        which: str = "average",
        *,
        model: Transformer | None = None,
        subwords: Subwords | None = None,
    ) -> Translator:
        """Return what translates text with this run's model, or with a `model` in hand."""
        device = choose_device(self.config.training.device)
        model = model or self.model(which, device)
        return _translator(self.config, model, subwords or self.subwords())


def _translator(config: Config, model: Transformer, subwords: Subwords) -> Translator:
    device = choose_device(config.training.device)
    dtype = choose_precision(config.training.precision, device)
    return Translator(
        model,
        subwords,
        config.decoding,
        device,
        joined=isinstance(config.data.dataset, Interpolate),
        autocast=None if dtype == torch.float32 else dtype,
        detokenize=detokenizer(config),
    )


def has_begun(directory: Path) -> bool:
    """Return whether a folder holds what can be continued or translate: a checkpoint or the final
    model."""
    return (
        bool(Checkpoints(directory / "checkpoints", 1).updates()) or (directory / AVERAGE).exists()
    )


def detokenizer(config: Config) -> Callable[[str], str]:
    """Return the function that brings a translation into the form in which it is scored."""
    corpus = config.data.corpus
    if config.evaluation.detokenize == "none" or isinstance(corpus, GrammarCorpus):
        return str
    return moses(corpus.target)


def prepared_directory(config: DataConfig, root: str | Path = "prepared") -> Path:
    """Return where data of this configuration are prepared: one folder for each configuration."""
    key = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:12]
    return Path(root) / f"{config.corpus.corpus}-{config.dataset.name}-{key}"


def train(
    config: Config,
    directory: str | Path,
    observer: Observer,
    *,
    prepared_root: str | Path = "prepared",
    tested: bool = True,
    on_prepare: DataProgress | None = None,
    on_resume: Callable[[Resumed], None] | None = None,
    on_skip: Callable[[NonFinite], None] | None = None,
    stop: StopSignals | None = None,
    parallel: Parallel | None = None,
) -> Run:
    """Prepare data if need be, train, or continue to train, and make the final model.

    Args:
        config: all settings.
        directory: the run's folder; if training was stopped there, it goes on.
        observer: told of losses and validations.
        prepared_root: folder under which prepared data are kept and found again.
        tested: whether the test text will be translated, and so may not be too long.
        on_prepare: told of the preparation's progress.
        on_resume: told from which checkpoint training goes on, and which were damaged.
        on_skip: told of each update that was left out, see `training.on_nonfinite`.
        stop: entered while the model is trained: a signal then ends the run after an update.
        parallel: this process and the others, which all call this and share the folders; see
            `training.parallel.join`. The main process alone writes and calls back.

    Raises:
        ShapeshiftError: if the settings, the data, the checkpoints or the disk do not allow it, or
            what will score the run is not there.
        StoppedError: after a signal; a checkpoint is saved.
    """
    parallel = parallel or Parallel()
    directory = Path(directory)
    with parallel.main_first():
        folder = prepared_directory(config.data, prepared_root)
        check_requirements(config, folder)
        check_hardware(config.training, parallel.local_rank)
        if parallel.is_main and (directory / LOCK).exists():
            with _alone(directory):
                pass  # no other process trains there; it would be refused later anyway
        Run.check(directory, config)
        data = prepare(config.data, folder, on_prepare if parallel.is_main else None)
    torch.manual_seed(derive(config.training.seed, "weights"))
    subwords, training = data.subwords, config.training
    model = build(config.model, config.position.scheme, subwords.source_size, subwords.target_size)
    check_lengths(config, model, data, tested=tested)
    metrics = training.validated_metrics
    trainer = Trainer(
        model,
        training,
        data.train,
        data.valid,
        Checkpoints(
            directory / "checkpoints", training.keep_checkpoints, every=training.checkpoint_every
        ),
        (lambda: _measure_validation(config, model, data, metrics)) if metrics else None,
        parallel,
    )
    # All that can be refused without the folder has been; it is made now.
    with _alone(directory) if parallel.is_main else nullcontext():
        with parallel.main_first():
            if parallel.is_main:
                Run.check(directory, config)  # again: now no other process changes it
                if (directory / AVERAGE).exists() and not trainer.checkpoints.updates():
                    raise ShapeshiftError(
                        "holds a finished model without the checkpoints that it was made of; name"
                        " a new folder",
                        path=directory,
                    )
                contents = _contents(data, directory)
        resumed = trainer.resume()
        unfinished = trainer.progress.update < training.max_updates or trainer.validation_is_due
        with parallel.main_first():
            if parallel.is_main:
                check_final(directory, trainer.checkpoints, training, trainer.progress)
                Run.create(directory, config)
                store(directory, contents)
            run = Run(directory)
        if resumed and on_resume and (unfinished or resumed.skipped):
            on_resume(resumed)
        if unfinished:
            with parallel.main_first():
                log = _begin(run, trainer) if parallel.is_main else None
            try:
                with stop or nullcontext():
                    trainer.fit(log, observer, stop, on_skip)
            finally:
                if log is not None:
                    log.close()
        if parallel.is_main:
            make_final(directory, trainer.checkpoints, training, trainer.progress)
    return run


def _alone(directory: Path) -> AbstractContextManager[None]:
    """Return the lock of a run's folder, which is made if need be."""
    with writing(directory):
        make_directory(Disk(), directory)
    return locked(directory / LOCK, optional=True)


def _begin(run: Run, trainer: Trainer) -> Log:
    """Return the log, once it is certain that the updates which are left have room on the disk, and
    that what is to measure the model is there."""
    config, progress = run.config.training, trainer.progress
    if "comet" in (*config.validated_metrics, *run.config.evaluation.metrics):
        run.config.evaluation.comet.prepare()
    left = config.max_updates - progress.update
    saves = -(-left // config.checkpoint_every) + left // (config.validate_every or left + 1)
    run.checkpoints.require_space(trainer.spread.empty()[0], num_saves=saves)
    for name in (RESULTS, AVERAGE):  # of a shorter run that is now continued
        _delete(run.directory / name)
    return Log(run.directory, progress.update, not trainer.validation_is_due, progress.elapsed_s)


def _delete(path: Path) -> None:
    with writing(path), suppress(FileNotFoundError):
        remove_directory(Disk(), path)


def translate_and_score(
    run: Run,
    split: Literal["valid", "test"] = "test",
    which: str = "average",
    *,
    prepared_root: str | Path = "prepared",
    on_translate: Callable[[int, int], None] | None = None,
) -> Scores:
    """Translate a split, score it, also by source length, and keep both in `results/`.

    Args:
        run: a finished run.
        split: `valid` or `test`.
        which: see `Run.weights`.
        prepared_root: as it was for `train`.
        on_translate: told of sentences done and their number.
    """
    config = run.config
    make_bleu(config.bleu_tokenizer)  # an error now, not when the run ends
    data = Prepared(prepared_directory(config.data, prepared_root))
    sources, references = data.text(split)
    hypotheses: list[str] = []
    for translation in run.translator(which).translate(sources):
        hypotheses.append(translation)
        if on_translate is not None:
            on_translate(len(hypotheses), len(sources))
    scores = evaluate(
        hypotheses,
        references,
        metrics=config.evaluation.metrics,
        tokenizer=config.bleu_tokenizer,
        sources=sources,
        comet=config.evaluation.comet,
        lengths=[int(n) for n in data.store(split).source_lengths],
        length_buckets=config.evaluation.length_buckets,
    )
    results = run.directory / "results"
    (results / f"{split}.{which}.json").unlink(missing_ok=True)  # its time is that of the scoring
    text = "".join(line + "\n" for line in hypotheses).encode()
    store(
        results,
        {f"{split}.{which}.txt": text, f"{split}.{which}.json": scores.document().encode()},
    )
    return scores


def _measure_validation(
    config: Config, model: Transformer, data: Prepared, metrics: Sequence[str]
) -> dict[str, float]:
    """Translate the validation set and score it: `valid_bleu` and so on."""
    sources, references = data.text("valid")
    scores = score_corpus(
        list(_translator(config, model, data.subwords).translate(sources)),
        references,
        metrics,
        tokenizer=config.bleu_tokenizer,
        sources=sources,
        comet=config.evaluation.comet,
    )
    return {f"valid_{name}": score.value for name, score in zip(metrics, scores, strict=True)}


def _contents(data: Prepared, directory: Path) -> dict[str, bytes]:
    """Return the files that translating needs, and the account of the data, by their names in the
    run's folder.

    Raises:
        ShapeshiftError: a run that has begun there was trained on other data.
    """
    models = sorted((data.directory / SUBWORDS).iterdir())
    contents = {f"{SUBWORDS}/{path.name}": path.read_bytes() for path in models}
    contents[DATA] = (data.directory / REPORT).read_bytes()
    if not has_begun(directory):
        return contents
    restore(directory, {DATA: contents[DATA]})
    account = directory / DATA
    verify(directory, DATA, remedy=f"name a new folder, or {_AS_IT_IS}")
    if account.exists():
        before = Report.read(account, "remove it, and it is written again for the data as they are")
        if before.fingerprint != data.report.fingerprint:
            raise ShapeshiftError(
                "was trained on other text than the corpus now holds; name a new folder, or bring"
                " the old text back",
                path=directory,
            )
        if before.subwords.fingerprint != data.report.subwords.fingerprint:
            raise ShapeshiftError(
                f"was trained with other subword models than those of {data.directory}, which"
                " another version of sentencepiece has trained since; name a new folder",
                path=directory,
            )
        contents[DATA] = account.read_bytes()
    return contents


def _check_same(run: Run, new: Config) -> list[str]:
    """Return the names of the settings that differ, which may differ in a run that has begun."""
    old, directory = run.config, run.directory
    free = RESUMABLE | CHANGES_RESULTS
    if isinstance(old.training.schedule, Cosine):  # which ends at max_updates
        free = free - {"training.max_updates"}
    if old.training.validated_metrics:  # scores of another search do not compare
        free = free - {"decoding"}
    changed = _differences(old.model_dump(mode="json"), new.model_dump(mode="json"))
    refused = [name for name in changed if not _is_in(name, free)]
    judged = _differences(how_to_validate(old), how_to_validate(new), "evaluation")
    refused += [name for name in judged if name not in refused]
    if refused:
        raise ShapeshiftError(
            f"holds a run with another {', '.join(refused)}; name a new folder, or continue with"
            " the settings in its config.yaml",
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
    return changed


def _is_in(name: str, settings: Set[str]) -> bool:
    """Return whether a setting is one of `settings`, or in a section that is."""
    return any(name == key or name.startswith(key + ".") for key in settings)


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in sorted(old.keys() | new.keys())
            for found in _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [] if old == new else [name]
