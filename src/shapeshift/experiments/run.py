"""A run: one model, trained and tested, in one folder.

    config.yaml                  every setting, defaults included
    data.json                    what the data were: counts, lengths, fingerprint, versions
    subwords/                    the subword models
    checkpoints/update-…/        weights, optimiser state, cursor
    average.safetensors          the final model: the mean of the last checkpoints, or a copy of the
                                 best one; see `training.final`
    log.jsonl, tensorboard/      loss, learning rate, speed, validation
    results/                     translations and scores
    SHA256SUMS                   hashes of the settings, of data.json and of the subword models, see
                                 `integrity`

The folder is all that translating needs. What it holds is compared with its hash before it is used;
settings are changed by overrides, not by editing `config.yaml`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import torch

from shapeshift.config import Config, load_config
from shapeshift.data.config import DataConfig, GrammarCorpus, Interpolate
from shapeshift.data.prepare import REPORT, Prepared, Report, prepare
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.planning import Encoder
from shapeshift.decoding.translator import Translator
from shapeshift.disk import PARTIAL
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.detokenize import Detokenizing, moses
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.evaluation.tokenizers import check_usable
from shapeshift.experiments.identity import how_to_validate
from shapeshift.experiments.requirements import check_requirements
from shapeshift.integrity import SUMS, restore, store, verify
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
from shapeshift.training.weights import average, load_weights

FREE_TO_CHANGE = {
    "training.max_updates",
    "training.log_every",
    "training.keep_checkpoints",
    "training.average_checkpoints",
    "training.final",
    "training.device",
    "training.parallel",
    "training.rank_timeout_s",
    "training.on_nonfinite",
    "training.split_on_oom",
    "decoding",
    "evaluation",
    "data.corpus.root",
}
"""Settings that a run may be continued with although they differ. Those of `evaluation` by which
its checkpoints are judged may not: such scores do not compare."""

CONFIG = "config.yaml"
DATA = "data.json"
AVERAGE = "average.safetensors"
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
        """Make the folder, or open it again to continue with the same settings.

        Raises:
            ShapeshiftError: if the folder holds a run with other settings, or something else.
        """
        directory = Path(directory)
        text = config.to_yaml().encode()
        restore(directory, {CONFIG: text})
        if (directory / CONFIG).is_file():
            _check_same(cls(directory).config, config, directory)
        elif directory.is_dir() and any(
            not path.name.startswith(PARTIAL) for path in directory.iterdir()
        ):
            raise ShapeshiftError(
                "holds something that is not a run; name a new folder", path=directory
            )
        store(directory, {CONFIG: text})
        return cls(directory)

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
                "training is not finished, so there is no average yet; use --checkpoint last",
                path=self.directory,
            )
        if which == "best":
            which = str(self.checkpoints.progress(updates[-1]).best_update)
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
        training = self.config.training
        device = choose_device(training.device)
        dtype = choose_precision(training.precision, device)
        return Translator(
            model or self.model(which, device),
            scored_form(subwords or self.subwords(), self.config),
            self.config.decoding,
            device,
            joined=isinstance(self.config.data.dataset, Interpolate),
            autocast=None if dtype == torch.float32 else dtype,
        )


def scored_form(subwords: Subwords, config: Config) -> Encoder:
    """Return the subwords that give text in the form in which it is scored."""
    corpus = config.data.corpus
    if config.evaluation.detokenize == "none" or isinstance(corpus, GrammarCorpus):
        return subwords
    return Detokenizing(subwords, moses(corpus.target))


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
    with parallel.main_first():
        folder = prepared_directory(config.data, prepared_root)
        check_requirements(config, folder)
        check_hardware(config.training, parallel.local_rank)
        run = Run.create(directory, config)
        progress = on_prepare if parallel.is_main else None
        data = prepare(config.data, folder, progress)
        _keep_data_of(data, run.directory)
    torch.manual_seed(derive(config.training.seed, "weights"))
    subwords = data.subwords
    model = build(config.model, config.position.scheme, subwords.source_size, subwords.target_size)
    metrics = config.training.validated_metrics
    trainer = Trainer(
        model,
        config.training,
        data.train,
        data.valid,
        run.checkpoints,
        (lambda: _measure_validation(run, model, data, metrics)) if metrics else None,
        parallel,
    )
    resumed = trainer.resume()
    left = config.training.max_updates - trainer.progress.update
    if resumed and on_resume and (left > 0 or resumed.skipped):
        on_resume(resumed)
    if left > 0:
        with parallel.main_first():
            log = _begin(run, trainer, left) if parallel.is_main else None
        try:
            with stop or nullcontext():
                trainer.fit(log, observer, stop, on_skip)
        finally:
            if log is not None:
                log.close()
    if parallel.is_main:
        average(_parts_of_final(run), run.directory / AVERAGE)
    return run


def _parts_of_final(run: Run) -> list[Path]:
    """Return the weights whose mean is the final model."""
    training = run.config.training
    if training.final == "best":
        return [run.weights("best")]
    last = run.checkpoints.updates()[-training.average_checkpoints :]
    return [run.checkpoints.path(update) / MODEL for update in last]


def _begin(run: Run, trainer: Trainer, left: int) -> Log:
    """Return the log, once it is certain that the updates which are left have room on the disk, and
    that what is to measure the model is there."""
    if "comet" in (*run.config.training.validated_metrics, *run.config.evaluation.metrics):
        run.config.evaluation.comet.prepare()
    saves = -(-left // run.config.training.checkpoint_every)
    run.checkpoints.require_space(trainer.spread.empty()[0], num_saves=saves)
    (run.directory / AVERAGE).unlink(missing_ok=True)  # of a shorter run that is now continued
    return Log(run.directory, trainer.progress.update)


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
    check_usable(config.bleu_tokenizer)
    data = Prepared.open(prepared_directory(config.data, prepared_root))
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
        edges=config.evaluation.edges,
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
    run: Run, model: Transformer, data: Prepared, metrics: Sequence[str]
) -> dict[str, float]:
    """Translate the validation set and score it: `valid_bleu` and so on."""
    sources, references = data.text("valid")
    translator = run.translator(model=model, subwords=data.subwords)
    hypotheses = list(translator.translate(sources))
    scores = score_corpus(
        hypotheses,
        references,
        metrics,
        tokenizer=run.config.bleu_tokenizer,
        sources=sources,
        comet=run.config.evaluation.comet,
    )
    return {f"valid_{name}": score.value for name, score in zip(metrics, scores, strict=True)}


def _keep_data_of(data: Prepared, directory: Path) -> None:
    """Copy what translating needs, and the account of the data; refuse other data than before."""
    models = sorted((data.directory / "subwords").iterdir())
    contents = {f"subwords/{path.name}": path.read_bytes() for path in models}
    contents[DATA] = (data.directory / REPORT).read_bytes()
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
    store(directory, contents)


def _check_same(old: Config, new: Config, directory: Path) -> None:
    free = FREE_TO_CHANGE
    if isinstance(old.training.schedule, Cosine):  # which ends at max_updates
        free = free - {"training.max_updates"}
    changed = [
        name
        for name in _differences(old.model_dump(mode="json"), new.model_dump(mode="json"))
        if not any(name == key or name.startswith(key + ".") for key in free)
    ]
    judged = _differences(how_to_validate(old), how_to_validate(new), "evaluation")
    changed += [name for name in judged if name not in changed]
    if changed:
        raise ShapeshiftError(
            f"holds a run with another {', '.join(changed)}; name a new folder, or continue with"
            " the settings in its config.yaml",
            path=directory,
        )


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in sorted(old.keys() | new.keys())
            for found in _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
        ]
    return [] if old == new else [name]
