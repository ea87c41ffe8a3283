"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace

import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.seeds import derive
from shapeshift.data.batching import Batch, collate, measure, plan_epoch, plan_in_order
from shapeshift.data.store import TokenStore
from shapeshift.model import Transformer
from shapeshift.training.checkpoints import Checkpoints, Resumed
from shapeshift.training.config import TrainingConfig
from shapeshift.training.guards import Guard, Pairs
from shapeshift.training.log import Log, RunningMetrics
from shapeshift.training.manifest import Progress
from shapeshift.training.observer import Observer
from shapeshift.training.optim import learning_rate
from shapeshift.training.parallel import MAX, Parallel
from shapeshift.training.precision import choose_device, tuned
from shapeshift.training.step import TrainingStep
from shapeshift.training.stopping import StoppedError, StopSignals


class Trainer:
    """Trains one model on one token store, in one process or in several.

    The next update depends on the weights, the optimiser's state and `progress` alone: the order of
    the data is a function of (seed, epoch), dropout and offsets of (seed, update, batch of the
    update). So a run that was stopped and resumed equals one that was not. A line of the log ends
    at each checkpoint for the same reason.

    Several processes, whose models have the same initial weights, share the batches of an update,
    and the gradient is that of the mean loss of a token over all of them: any number of processes
    makes the same run, up to rounding.

    No step is taken on a loss or gradient that is not finite; see `Guard`.

    Args:
        validate: measures the model at each validation and returns name → value; it includes the
            metric that `training.best_metric` names, such as `valid_comet`.

    Raises:
        ShapeshiftError: if a store is empty, a pair is longer than a batch may be, or the device
            or precision is not available.
    """

    def __init__(
        self,
        model: Transformer,
        config: TrainingConfig,
        train: TokenStore,
        valid: TokenStore,
        checkpoints: Checkpoints,
        validate: Callable[[], Mapping[str, float]] | None = None,
        parallel: Parallel | None = None,
    ):
        for store in (train, valid):
            if not len(store):
                raise ShapeshiftError(
                    "holds no pairs; training and validation need one each", path=store.directory
                )
            # Refuses a pair that is too long, before training, not hours later.
            measure(store.source_lengths, store.target_lengths, config.batch)
        self.parallel = parallel or Parallel()
        self.device = choose_device(config.device, self.parallel.local_rank)
        self.model = model.to(self.device)
        for side in (model.source, model.target):
            # A batch has a seed, whichever process trains it.
            side.position_ids.per_rank = False
        self.config, self.checkpoints, self.validate = config, checkpoints, validate
        self.train, self.valid = train, valid
        self._step = TrainingStep(model, config, self.parallel)
        self.optimizer = self._step.optimizer
        self.guard = Guard(model, self.optimizer, self.parallel)
        self.progress = Progress()
        self._valid_plan = plan_in_order(valid.source_lengths, valid.target_lengths, config.batch)

    def resume(self) -> Resumed | None:
        """Continue from the newest intact checkpoint, if there is one. Return it in the main
        process, which renames damaged ones, and None in the others."""
        model, optimizer = self.model, self.optimizer
        resumed = self.checkpoints.resume(model, optimizer) if self.parallel.is_main else None
        update = self.parallel.broadcast(resumed.progress.update if resumed else None)
        if resumed:
            self.progress = replace(resumed.progress)
        elif update is not None:
            self.progress = self.checkpoints.restore(update, model, optimizer)
        return resumed

    def fit(self, log: Log | None, observer: Observer, stop: StopSignals | None = None) -> None:
        """Train until `max_updates`, or until `patience` ends, saving and validating on the way.

        A checkpoint is saved before each validation and receives its result after it. So an error
        in a validation loses no update, the best of all validations has its checkpoint, and an
        incomplete validation is repeated when training resumes.

        Args:
            log: None in all processes but the main one.
            observer: receives losses and validations.
            stop: a signal that has reached any of the processes ends training after an update.

        Raises:
            ShapeshiftError: if a loss, gradient or weight is not finite, or memory runs out.
            StoppedError: after a signal, when a checkpoint is saved.
        """
        config, progress = self.config, self.progress
        self._log, self._observer = log, observer
        self._began = time.perf_counter() - progress.elapsed_s
        with tuned(self.device):
            self._validate_if_due()
            if log is not None:
                observer.advanced(progress.update)
            metrics = RunningMetrics(self.device)
            batches = self._batches()
            while progress.update < config.last_update(progress):
                self._update([next(batches) for _ in range(config.accumulation)], metrics)
                done, stopping = progress.update, self._received(stop)
                if log is not None:
                    observer.advanced(done)
                regular = done % config.checkpoint_every == 0 or done == config.max_updates
                saving = regular or self.validation_is_due or bool(stopping)
                if not saving and done % config.log_every:
                    continue
                self._report(metrics)
                if saving:
                    self._save()
                if stopping:
                    break
                self._validate_if_due()
                metrics = RunningMetrics(self.device)
        if stopping := self._received(stop):
            done = progress.update
            raise StoppedError(stopping, done, self.checkpoints.path(done))

    @property
    def validation_is_due(self) -> bool:
        """Whether the last update needs a validation that is not complete yet."""
        done = self.progress.update
        every = self.config.validate_every or self.config.checkpoint_every
        due = done % every == 0 or done == self.config.last_update(self.progress)
        return due and done > 0 and done != self.progress.validated_update

    def _received(self, stop: StopSignals | None) -> int:
        """Return the number of the signal that any process has received, or 0."""
        received = torch.tensor((stop and stop.received) or 0)  # on the CPU: no wait for the GPU
        return int(self.parallel.all_reduce(received, MAX))

    def _save(self) -> None:
        self.progress.elapsed_s = time.perf_counter() - self._began
        with self.parallel.main_first():
            if self._log is not None:
                self._log.sync()
                self.checkpoints.save(self.model, self.optimizer, self.progress)

    def _batches(self) -> Iterator[Pairs]:
        """Yield the batches that follow `progress`, and update it."""
        progress = self.progress
        while True:
            lengths, epoch = (self.train.source_lengths, self.train.target_lengths), progress.epoch
            plan = plan_epoch(*lengths, self.config.batch, seed=self.config.seed, epoch=epoch)
            while progress.batch < len(plan):
                progress.batch += 1
                yield plan[progress.batch - 1]
            progress.epoch += 1
            progress.batch = 0

    def _update(self, batches: list[Pairs], metrics: RunningMetrics) -> None:
        """Take one step on the summed loss of `batches`, which are those of all processes, divided
        by their target tokens."""
        update, lengths = self.progress.update + 1, self.train.target_lengths
        num_tokens = sum(int(lengths[pairs].sum()) + len(pairs) for pairs in batches)
        # The processes' gradients are averaged: multiplied by their number, the mean is the sum.
        divisor = num_tokens / self.parallel.world_size
        own = self.parallel.share(batches)
        self.model.train()
        losses = []
        for number, pairs in own:
            # By the batch's number in the update: any number of processes draws the same.
            torch.manual_seed(derive(self.config.seed, "dropout", update, number))
            batch = self._batch(self.train, pairs)
            is_last = number == own[-1][0]
            losses.append(self._step.add_gradient(batch, divisor, exchange=is_last))
        self.guard.judge(update, batches, losses)
        metrics.add(losses)
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(update)
        self._step.finish()
        self.progress.update = update

    def _learning_rate(self, update: int) -> float:
        dim, config = self.model.target.tokens.embedding_dim, self.config
        return learning_rate(config.schedule, update, dim=dim, max_updates=config.max_updates)

    def _batch(self, store: TokenStore, pairs: Pairs) -> Batch:
        return collate(store, pairs).to(self.device, non_blocking=True)

    def _report(self, metrics: RunningMetrics) -> None:
        self.guard.check()
        values = metrics.read(self.parallel)
        if self._log is None:
            return
        update = self.progress.update
        values["learning_rate"] = self._learning_rate(update)
        self._observer.updated(update, values["loss"], values["tokens_per_s"])
        self._log.write(update, **values)

    def _validate_if_due(self) -> None:
        if not self.validation_is_due:
            return
        compiled = self.config.compile  # for training alone; else no compiler is imported
        with torch.compiler.set_stance("force_eager") if compiled else nullcontext():
            self._validate()

    def _validate(self) -> None:
        """Validate, log the result, and record it in the checkpoint, which is already saved."""
        self.model.eval()
        progress, loss = self.progress, self._valid_loss()
        if not math.isfinite(loss):
            raise ShapeshiftError(
                f"the validation loss is {loss} after update {progress.update}; train in a new"
                " folder with a lower learning rate or with training.clip_norm"
            )
        progress.validated_update = progress.update
        with self.parallel.main_first():
            if self._log is not None:
                values = {"valid_loss": loss, **(self.validate() if self.validate else {})}
                self._log.write(progress.update, **values)
                self._log.sync()
                self._compare_with_best(values)
                progress.elapsed_s = time.perf_counter() - self._began
                self.checkpoints.record(progress)
                self._observer.validated(progress.update, values)
        progress.best_update = self.parallel.broadcast(progress.best_update)

    def _compare_with_best(self, values: Mapping[str, float]) -> None:
        progress, metric, loss = self.progress, self.config.best_metric, values["valid_loss"]
        score = None if metric == "loss" else values[f"valid_{metric}"]
        if score is None:
            better = progress.best_loss is None or loss < progress.best_loss
        else:
            better = progress.best_score is None or score > progress.best_score
        if better:
            progress.best_update = progress.update
            progress.best_loss, progress.best_score = loss, score

    @torch.no_grad()
    def _valid_loss(self) -> float:
        metrics = RunningMetrics(self.device)
        for _, pairs in self.parallel.share(self._valid_plan):
            metrics.add([self._step.objective(self._batch(self.valid, pairs), 0.0)])
        return metrics.read(self.parallel)["nll"]
