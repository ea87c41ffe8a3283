"""The training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from shapeshift.data.batching import collate, plan_epoch, plan_in_order
from shapeshift.data.store import TokenStore
from shapeshift.errors import ShapeshiftError
from shapeshift.model import Loss, Transformer, label_smoothed_loss
from shapeshift.seeds import derive
from shapeshift.training.checkpoints import Checkpoints, Resumed
from shapeshift.training.config import TrainingConfig
from shapeshift.training.log import Log
from shapeshift.training.manifest import Progress
from shapeshift.training.optim import build_optimizer, learning_rate
from shapeshift.training.precision import autocast, choose_device, choose_precision, tune_cpu

Pairs = NDArray[np.int64]
"""The numbers of the pairs of a batch."""

MOST_NAMED = 20
"""How many pairs of a faulty batch an error names."""


class Observer(Protocol):
    """Whoever watches a run, such as a progress bar."""

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """Called every `log_every` updates; loss in nats a token since the last call."""

    def validated(self, update: int, values: dict[str, float]) -> None:
        """Called after each validation."""


class _Window:
    """Sums since the last line of the log, and the time training took for them."""

    def __init__(self, device: torch.device):
        self.loss = torch.zeros((), device=device, dtype=torch.float64)
        self.nll = torch.zeros_like(self.loss)
        self.num_tokens = 0
        self.elapsed_s = 0.0
        self._since = time.perf_counter()
        self._unchecked: list[tuple[int, Pairs, torch.Tensor]] = []

    def add(self, update: int, pairs: Pairs, loss: Loss) -> None:
        """Take in the loss of one batch of an update."""
        smoothed = loss.smoothed.detach()
        self.loss += smoothed
        self.nll += loss.nll
        self.num_tokens += loss.num_tokens
        self._unchecked.append((update, pairs, smoothed))

    def check(self) -> None:
        """Raise if a loss that came in since the last check is not finite.

        This waits for the device.
        """
        if not self._unchecked:
            return
        finite = torch.stack([loss for *_, loss in self._unchecked]).isfinite().tolist()
        if not all(finite):
            update, pairs, loss = self._unchecked[finite.index(False)]
            raise ShapeshiftError(_not_finite(update, pairs, float(loss)))
        self._unchecked.clear()

    def pause(self) -> None:
        """Stop the clock: what follows is not training."""
        self.elapsed_s += time.perf_counter() - self._since

    def go_on(self) -> None:
        """Start the clock again."""
        self._since = time.perf_counter()


class Trainer:
    """Trains one model on one token store.

    Nothing depends on history but the weights, the optimiser's state and the cursor (update, epoch,
    batch): the order of the data is a function of (seed, epoch), dropout and offsets of (seed,
    update). So a run that was stopped and one that was not are the same run. A line of the log ends
    at each checkpoint for the same reason.

    A loss that is not finite ends training. On a CPU that is seen before the optimiser moves the
    weights. On a GPU, where reading the loss of each update would make the device wait, it is seen
    at the next line of the log; nothing was saved since, because each checkpoint follows a line.

    Args:
        model: with the weights to begin from.
        config: how to train.
        train, valid: token stores.
        checkpoints: where to save; if one is there, `resume` continues from the newest.
        validators: further measures of the model at each validation, name → function.

    Raises:
        ShapeshiftError: if a store is empty, a validation pair is longer than a batch may be, or
            the device or precision is not there.
    """

    def __init__(
        self,
        model: Transformer,
        config: TrainingConfig,
        train: TokenStore,
        valid: TokenStore,
        checkpoints: Checkpoints,
        validators: dict[str, Callable[[], float]] | None = None,
    ):
        for store in (train, valid):
            if not len(store):
                raise ShapeshiftError(
                    "holds no pairs; training and validation need one each", path=store.directory
                )
        self.device = choose_device(config.device)
        self.dtype = choose_precision(config.precision, self.device)
        self.model = model.to(self.device)
        self.config = config
        self.train, self.valid = train, valid
        self.checkpoints = checkpoints
        self.validators = validators or {}
        self.optimizer = build_optimizer(config.optimizer, model.parameters())
        self.progress = Progress()
        self._valid_plan = _plan_validation(valid, config)

    def resume(self) -> Resumed | None:
        """Continue from the newest checkpoint that is intact; return None if there is none."""
        resumed = self.checkpoints.resume(self.model, self.optimizer)
        if resumed is not None:
            self.progress = replace(resumed.progress)  # which training goes on counting
        return resumed

    def fit(self, log: Log, observer: Observer) -> None:
        """Train until `max_updates`, validating and saving on the way.

        Raises:
            ShapeshiftError: if a loss or a weight is not finite; a training pair is longer than a
                batch may be.
        """
        config = self.config
        if self.device.type == "cpu":
            tune_cpu()
        validate_every = config.validate_every or config.checkpoint_every
        window = _Window(self.device)
        batches = self._batches()
        began = time.perf_counter() - self.progress.elapsed_s
        while self.progress.update < config.max_updates:
            self._update([next(batches) for _ in range(config.accumulation)], window)
            done = self.progress.update
            last = done == config.max_updates
            saving = done % config.checkpoint_every == 0 or last
            if done % config.log_every == 0 or saving:
                self._report(window, log, observer)
                window = _Window(self.device)
            validating = done % validate_every == 0 or last
            if not saving and not validating:
                continue
            window.pause()
            if validating:
                loss = self._validate(log, observer)
                best = self.progress.best_loss
                if saving and (best is None or loss < best):
                    self.progress.best_update, self.progress.best_loss = done, loss
            if saving:
                self.progress.elapsed_s = time.perf_counter() - began
                log.sync()
                self.checkpoints.save(self.model, self.optimizer, self.progress)
            window.go_on()

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

    def _update(self, batches: list[Pairs], window: _Window) -> None:
        """One step of the optimiser on the summed loss of `batches` over their target tokens."""
        update = self.progress.update + 1
        num_tokens = sum(
            int(self.train.target_lengths[pairs].sum()) + len(pairs) for pairs in batches
        )
        self.model.train()
        for micro, pairs in enumerate(batches):
            torch.manual_seed(derive(self.config.seed, "dropout", update, micro))
            self.model.seed(derive(self.config.seed, "offsets", update, micro))
            loss = self._loss(self.train, pairs, self.config.label_smoothing)
            (loss.smoothed / num_tokens).backward()  # type: ignore[no-untyped-call]
            window.add(update, pairs, loss)
        if self.device.type == "cpu":
            window.check()
        rate = self._learning_rate(update)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.progress.update = update

    def _learning_rate(self, update: int) -> float:
        return learning_rate(
            self.config.schedule,
            update,
            dim=self.model.target.tokens.embedding_dim,
            max_updates=self.config.max_updates,
        )

    def _loss(self, store: TokenStore, pairs: Pairs, epsilon: float) -> Loss:
        batch = collate(store, pairs).to(self.device, non_blocking=True)
        with autocast(self.device, self.dtype):
            return label_smoothed_loss(
                self.model, batch.source, batch.target_input, batch.target_output, epsilon
            )

    def _report(self, window: _Window, log: Log, observer: Observer) -> None:
        window.check()
        loss = float(window.loss) / window.num_tokens
        window.pause()
        speed = window.num_tokens / window.elapsed_s
        update = self.progress.update
        log.write(
            update,
            loss=loss,
            nll=float(window.nll) / window.num_tokens,
            learning_rate=self._learning_rate(update),
            tokens_per_s=round(speed, 1),
        )
        observer.updated(update, loss, speed)

    @torch.no_grad()
    def _validate(self, log: Log, observer: Observer) -> float:
        self.model.eval()
        nll, num_tokens = 0.0, 0
        for pairs in self._valid_plan:
            loss = self._loss(self.valid, pairs, 0.0)
            nll += float(loss.nll)
            num_tokens += loss.num_tokens
        update = self.progress.update
        if not math.isfinite(nll):
            raise ShapeshiftError(
                f"the validation loss is {nll} after update {update}; train with a lower learning"
                " rate or with training.clip_norm"
            )
        values = {"valid_loss": nll / num_tokens}
        values.update((name, measure()) for name, measure in self.validators.items())
        log.write(update, **values)
        observer.validated(update, values)
        return values["valid_loss"]


def _plan_validation(store: TokenStore, config: TrainingConfig) -> list[Pairs]:
    # Made before training begins: a pair that fits into no batch should not end a run hours later.
    try:
        return plan_in_order(store.source_lengths, store.target_lengths, config.batch)
    except ShapeshiftError as error:
        raise ShapeshiftError(f"in the validation data, {error}", path=store.directory) from error


def _not_finite(update: int, pairs: Pairs, loss: float) -> str:
    named = ", ".join(map(str, sorted(pairs.tolist())[:MOST_NAMED]))
    more = f" and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    return (
        f"the loss of update {update} is {loss}, in the batch of training pairs {named}{more}"
        " (counted from 0); train with a lower learning rate, with training.clip_norm or with"
        " training.precision=fp32"
    )
