"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Protocol

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from shapeshift.data.batching import collate, plan_epoch, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import TokenStore
from shapeshift.errors import ShapeshiftError
from shapeshift.model import Loss, Transformer
from shapeshift.training.checkpoints import Checkpoints, Resumed
from shapeshift.training.config import TrainingConfig
from shapeshift.training.guards import Guard, NonFinite, Pairs
from shapeshift.training.log import Log
from shapeshift.training.manifest import Progress
from shapeshift.training.micro_batches import (
    MicroBatch,
    TooLargeError,
    naming_the_batch,
    naming_the_step,
    split,
)
from shapeshift.training.optim import build_optimizer, learning_rate
from shapeshift.training.parallel import Parallel
from shapeshift.training.precision import autocast, choose_device, choose_precision, tuned
from shapeshift.training.running_metrics import RunningMetrics
from shapeshift.training.stopping import StoppedError, StopSignals
from shapeshift.training.strategy import Replicated, Strategy


class Observer(Protocol):
    """Whoever watches a run, such as a progress bar."""

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """Called every `log_every` updates; loss in nats a token since the last call."""

    def validated(self, update: int, values: dict[str, float]) -> None:
        """Called after each validation."""


class Silent:
    """Watches training and says nothing: the run's log has it all."""

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """See `Observer`."""

    def validated(self, update: int, values: dict[str, float]) -> None:
        """See `Observer`."""


class Trainer:
    """Trains one model on one token store, in one process or in each of several.

    Nothing depends on history but the weights, the optimiser's state and the cursor (update, epoch,
    batch): the order of the data is a function of (seed, epoch), dropout and offsets of (seed,
    update, batch of the update). So a run that was stopped and one that was not are the same run. A
    line of the log ends at each checkpoint for the same reason.

    Several processes share the batches of an update among them, and the gradient is that of the
    mean loss of a token over all of them: the same run, but for rounding, on any number.

    No step is taken on a loss or gradient that is not finite; see `Guard`.

    Args:
        model: with the weights to begin from, the same in all processes.
        config: how to train.
        train, valid: token stores.
        checkpoints: where to save; if one is there, `resume` continues from the newest.
        validate: returns further measures of the model at each validation, name → value; among
            them what `training.best_metric` names, as `valid_comet` say.
        parallel: this process and the others.

    Raises:
        ShapeshiftError: if a store is empty, a pair is longer than a batch may be, or the device
            or precision is not there.
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
        self.parallel = parallel or Parallel()
        self.device = choose_device(config.device, self.parallel.local_rank)
        self.dtype = choose_precision(config.precision, self.device)
        self.model = model
        for side in (model.source, model.target):
            side.indices.per_rank = False  # a micro-batch has a seed, whichever process trains it
        self.config = config
        self.train, self.valid = train, valid
        self.checkpoints = checkpoints
        self.validate = validate
        self.strategy = _choose_strategy(model, config, self.device, self.parallel)
        self.optimizer = self.strategy.optimizer
        self.guard = Guard(model, self.optimizer, config.on_nonfinite, self.parallel)
        self.progress = Progress()
        _check_batches(train, valid, config.batch)
        self._valid_plan = plan_in_order(valid.source_lengths, valid.target_lengths, config.batch)

    def resume(self) -> Resumed | None:
        """Continue from the newest checkpoint that is intact; return None if there is none, or if
        this is not the main process, which alone puts damaged ones aside."""
        model, optimizer = self.strategy.empty()
        resumed = self.checkpoints.resume(model, optimizer) if self.parallel.is_main else None
        progress = self.parallel.broadcast(asdict(resumed.progress) if resumed else None)
        if progress is not None:
            self.progress = Progress(**progress)  # which training goes on counting
            if not self.parallel.is_main:
                self.checkpoints.restore(self.progress.update, model, optimizer)
            self.strategy.scatter(model, optimizer)
        return resumed

    def fit(
        self,
        log: Log | None,
        observer: Observer,
        stop: StopSignals | None = None,
        on_skip: Callable[[NonFinite], None] | None = None,
    ) -> None:
        """Train until `max_updates`, saving and validating on the way.

        A checkpoint is saved before each validation and receives its result after it. So an error
        in a validation loses no update, the best of all validations has its checkpoint, and a
        validation that was not completed is repeated when training resumes.

        Args:
            log: None in all processes but the main one.
            observer: called in the main process alone.
            stop: a signal that has reached any of the processes ends training after an update.
            on_skip: receives each update that was skipped, when the next line is logged.

        Raises:
            ShapeshiftError: if a loss, gradient or weight is not finite; the memory does not
                suffice.
            StoppedError: after a signal, when a checkpoint is saved.
        """
        with tuned(self.device):
            self._fit(log, observer, stop, on_skip)

    def _fit(
        self,
        log: Log | None,
        observer: Observer,
        stop: StopSignals | None,
        on_skip: Callable[[NonFinite], None] | None,
    ) -> None:
        config = self.config
        began = time.perf_counter() - self.progress.elapsed_s
        if self.validation_is_due:
            self._validate(log, observer, began)
        metrics = RunningMetrics(self.device)
        batches = self._batches()
        while self.progress.update < config.max_updates:
            self._update([next(batches) for _ in range(config.accumulation)], metrics)
            done = self.progress.update
            stopping = self._agree_on(stop)
            regular = done % config.checkpoint_every == 0 or done == config.max_updates
            saving = regular or self.validation_is_due or bool(stopping)
            if done % config.log_every == 0 or saving:
                self._report(metrics, log, observer, on_skip)
                metrics = RunningMetrics(self.device)
            if not saving:
                continue
            metrics.pause()
            self.progress.elapsed_s = time.perf_counter() - began
            self._save(log)
            if stopping:
                raise StoppedError(stopping, done, self.checkpoints.path(done))
            if self.validation_is_due:
                self._validate(log, observer, began)
            metrics.go_on()
        if stopping := self._agree_on(stop):  # it came after the last update
            done = self.progress.update
            raise StoppedError(stopping, done, self.checkpoints.path(done))

    @property
    def validation_is_due(self) -> bool:
        """Whether validation belongs to the last update and has not been completed."""
        done, every = self.progress.update, self.config.validate_every
        return (
            done > 0
            and done != self.progress.validated_update
            and (
                done % (every or self.config.checkpoint_every) == 0
                or done == self.config.max_updates
            )
        )

    def _agree_on(self, stop: StopSignals | None) -> int:
        """Return the signal that has reached any of the processes, or 0."""
        received = torch.tensor((stop and stop.received) or 0)  # on the CPU: no wait for the GPU
        return int(self.parallel.all_reduce_max(received))

    def _save(self, log: Log | None) -> None:
        model, optimizer = self.strategy.gather(keep=self.parallel.is_main)
        with self.parallel.main_first():
            if log is not None:
                log.sync()
                self.checkpoints.save(model, optimizer, self.progress)

    def _batches(self) -> Iterator[Pairs]:
        """Yield batches from the cursor on, and move it."""
        progress = self.progress
        while True:
            plan = plan_epoch(
                self.train.source_lengths,
                self.train.target_lengths,
                self.config.batch,
                seed=self.config.seed,
                epoch=progress.epoch,
            )
            while progress.batch < len(plan):
                progress.batch += 1
                yield plan[progress.batch - 1]
            progress.epoch += 1
            progress.batch = 0

    def _update(self, batches: list[Pairs], metrics: RunningMetrics) -> None:
        """One step of the optimiser on the summed loss of `batches`, which are those of all
        processes, over their target tokens."""
        update = self.progress.update + 1
        losses = self._differentiate(update, batches)
        sums: dict[int, torch.Tensor] = {}
        for number, loss in losses:
            sums[number] = sums.get(number, 0) + loss.smoothed.detach()
        bad = self.guard.judge(update, batches, sums)
        metrics.add([loss for _, loss in losses], bad)
        rate = self._learning_rate(update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.guard.deferred or not bad:
            with naming_the_step(update, self.device):
                if self.config.clip_norm is not None:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
                self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.update = update

    def _differentiate(self, update: int, batches: list[Pairs]) -> list[tuple[int, Loss]]:
        """Give the parameters their gradients; return the losses of this process's batches, with
        the batches' numbers. A batch that is too large for the memory is done again in halves,
        and with it the others: what it has left in the gradients cannot be separated."""
        num_tokens = sum(
            int(self.train.target_lengths[pairs].sum()) + len(pairs) for pairs in batches
        )
        micro_batches = [
            MicroBatch(number, pairs) for number, pairs in self.parallel.share(batches)
        ]
        self.model.train()
        while True:
            try:
                losses = [
                    (
                        micro_batch.batch,
                        self._add_gradient(
                            update, micro_batch, num_tokens, micro_batch is micro_batches[-1]
                        ),
                    )
                    for micro_batch in micro_batches
                ]
            except TooLargeError as error:
                if not self.config.split_on_oom or len(error.micro_batch.pairs) == 1:
                    raise
                micro_batches = split(micro_batches, error.micro_batch)
            else:
                self.strategy.finish()
                return losses
            self.optimizer.zero_grad(set_to_none=True)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _add_gradient(
        self, update: int, micro_batch: MicroBatch, num_tokens: int, last: bool
    ) -> Loss:
        torch.manual_seed(micro_batch.seed(self.config.seed, "dropout", update))
        # The processes' gradients are averaged: with each a multiple, that gives the sum.
        divisor = num_tokens / self.parallel.world_size
        with (
            naming_the_batch(micro_batch, self.train, update, self.device),
            self.strategy.accumulating(last),
        ):
            loss = self._loss(
                self.strategy.train_loss, self.train, micro_batch.pairs, self.config.label_smoothing
            )
            (loss.smoothed / divisor).backward()  # type: ignore[no-untyped-call]
        return loss

    def _learning_rate(self, update: int) -> float:
        return learning_rate(
            self.config.schedule,
            update,
            dim=self.model.target.tokens.embedding_dim,
            max_updates=self.config.max_updates,
        )

    def _loss(self, objective: nn.Module, store: TokenStore, pairs: Pairs, epsilon: float) -> Loss:
        batch = collate(store, pairs).to(self.device, non_blocking=True)
        with autocast(self.device, self.dtype):
            smoothed, nll = objective(
                batch.source, batch.target_input, batch.target_output, epsilon
            )
        return Loss(smoothed, nll, batch.num_target_tokens)

    def _report(
        self,
        metrics: RunningMetrics,
        log: Log | None,
        observer: Observer,
        on_skip: Callable[[NonFinite], None] | None,
    ) -> None:
        skipped = self.guard.take()
        values = metrics.read(self.parallel)
        if log is None:
            return
        update = self.progress.update
        if on_skip is not None:
            for found in skipped:
                on_skip(found)
        counts = {"skipped": len(skipped)} if skipped else {}
        if not values:  # every update was skipped
            log.write(update, **counts)
            return
        log.write(
            update,
            loss=values["loss"],
            nll=values["nll"],
            learning_rate=self._learning_rate(update),
            tokens_per_s=round(values["tokens_per_s"], 1),
            **counts,
        )
        observer.updated(update, values["loss"], values["tokens_per_s"])

    @torch.no_grad()
    def _validate(self, log: Log | None, observer: Observer, began: float) -> None:
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
            if log is not None:
                values = {"valid_loss": loss}
                values.update(self.validate() if self.validate is not None else {})
                log.write(progress.update, **values)
                log.sync()
                self._compare_with_best(values)
                progress.elapsed_s = time.perf_counter() - began
                self.checkpoints.record(progress)
                observer.validated(progress.update, values)

    def _compare_with_best(self, values: Mapping[str, float]) -> None:
        """Note the last update if it is the best so far."""
        progress, by = self.progress, self.config.best_metric
        score = None if by == "loss" else values[f"valid_{by}"]
        if score is None:
            better = progress.best_loss is None or values["valid_loss"] < progress.best_loss
        else:
            better = progress.best_score is None or score > progress.best_score
        if better:
            progress.best_update = progress.update
            progress.best_loss, progress.best_score = values["valid_loss"], score

    def _valid_loss(self) -> float:
        nll, num_tokens = 0.0, 0
        # Every process takes as many batches, for with FSDP it takes all to compute one. What is
        # too much is not counted.
        plan, world_size = self._valid_plan, self.parallel.world_size
        for number in range(
            self.parallel.rank, -(-len(plan) // world_size) * world_size, world_size
        ):
            loss = self._loss(self.strategy.valid_loss, self.valid, plan[number % len(plan)], 0.0)
            if number < len(plan):
                nll += float(loss.nll)
                num_tokens += loss.num_tokens
        sums = torch.tensor([nll, num_tokens], dtype=torch.float64, device=self.device)
        total, count = self.parallel.all_reduce_sum(sums).tolist()
        return float(total / count)


def _choose_strategy(
    model: Transformer, config: TrainingConfig, device: torch.device, parallel: Parallel
) -> Strategy:
    def build(parameters: Iterable[nn.Parameter]) -> Optimizer:
        return build_optimizer(config.optimizer, parameters)

    if config.parallel == "fsdp" and parallel.world_size > 1:
        from shapeshift.training.sharded import Sharded  # takes half a second

        return Sharded(model, device, parallel, build)
    return Replicated(model, device, parallel, build, overlap=not config.split_on_oom)


def _check_batches(train: TokenStore, valid: TokenStore, config: BatchConfig) -> None:
    """Raise `ShapeshiftError` if a pair fits into no batch: before training, not hours later."""
    faults = []
    for name, store in (("training", train), ("validation", valid)):
        lengths = np.maximum(store.source_lengths, store.target_lengths) + 1
        if lengths.max() > config.max_tokens:
            faults.append((name, store, int(lengths.argmax()), int(lengths.max())))
    if faults:
        name, store, pair, num_tokens = faults[-1]
        ways = f"set training.batch.max_tokens={max(longest for *_, longest in faults)}"
        if name == "training":  # no dataset leaves out validation pairs
            limit = config.max_tokens - 1
            ways += f", or data.dataset.name=extrapolate data.dataset.max_length={limit}"
        raise ShapeshiftError(
            f"{name} pair {pair} (counted from 0) has {num_tokens} tokens with </s>, and a batch"
            f" has at most {config.max_tokens}; {ways}",
            path=store.directory,
        )
