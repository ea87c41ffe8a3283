"""Estimates of a run before it begins: parameters, disk space, and the time of a measured step.
No data are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from shapeshift._system.threads import WATCH_INTERVAL_S, is_crowded, watch_others
from shapeshift.data.config import DataConfig, Interpolate
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.model.meta import without_numbers
from shapeshift.positions import Scheme
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import choose_device, tuned
from shapeshift.training.step import TrainingStep, random_batch

TYPICAL_LENGTH = 30
"""Assumed subwords of a sentence: about the mean of WMT's news text."""
CPU_TOKENS = 4096  # most of a batch that is measured on a CPU: its time is proportional to them
WARM_UP_TOKENS = 256  # of the batch before those, which is slower
NUM_BATCHES = 3  # that are measured at most
BUDGET_S = 0.5  # after which no further batch is measured


class UpdateTime(NamedTuple):
    """Seconds of an update.

    Attributes:
        low: if no other program used the processor.
        high: as measured, next to the other programs that run now; `low` if there are none.
        others: cores that they used meanwhile.
    """

    low: float
    high: float
    others: float = 0.0


def assumed_length(data: DataConfig) -> int:
    """Return the assumed number of tokens of a text: for each joined sentence, `TYPICAL_LENGTH` and
    its `<sep>` or `</s>`."""
    count = data.recipe.num_joined if isinstance(data.recipe, Interpolate) else 1
    return count * (TYPICAL_LENGTH + 1)


def count_parameters(model: ModelConfig, scheme: Scheme, vocab_size: int) -> int:
    """Return the number of parameters of a model, which is built on the `meta` device."""
    with without_numbers():
        return sum(p.numel() for p in build(model, scheme, vocab_size, vocab_size).parameters())


def disk_bytes(training: TrainingConfig, num_parameters: int, directory: Path | None = None) -> int:
    """Return the disk space that a run needs at most, in bytes: the newest checkpoints, the best
    one, an irregular one and the one being written (weights and moments each), and the averaged
    weights. The size of the files in the run's `directory` is subtracted."""
    weights, updates = 4 * num_parameters, training.max_updates  # fp32
    num_saves = -(-updates // training.checkpoint_every)
    num_saves += updates // (training.validate_every or updates + 1)
    num_checkpoints = min(training.keep_checkpoints + 3, num_saves)
    needed = num_checkpoints * 3 * weights + weights  # Adam and its variants have two moments
    files = directory.rglob("*") if directory else ()
    return max(0, needed - sum(file.stat().st_size for file in files if file.is_file()))


def measure(model: Transformer, training: TrainingConfig, length: int) -> UpdateTime:
    """Return the seconds of an update, of all its batches, measured here on a few batches of random
    sentences of `length` tokens with `</s>`, and scaled up if those are smaller than training's.
    The model is moved to the run's device; its weights stay.

    Where other programs use the cores that the threads of this one need, the time that it worked
    stands for the time that it would take alone.
    """
    device = choose_device(training.device)
    length = min(length, training.batch.max_tokens)
    most = training.batch.max_sentences or training.batch.max_tokens
    whole = min(training.batch.max_tokens // length, most)
    num_pairs = warm_up = whole
    if device.type == "cpu":
        num_pairs, warm_up = (min(whole, max(1, x // length)) for x in (CPU_TOKENS, WARM_UP_TOKENS))
    sizes = model.source.tokens.num_embeddings, model.target.tokens.num_embeddings
    batch = random_batch(num_pairs, length, sizes, device)
    with tuned(device):
        step = TrainingStep(model.to(device), training)
        step(random_batch(warm_up, length, sizes, device))
        if training.compile:  # compiled for lengths that differ
            step(batch)
        seconds, worked, others = _time(lambda: step(batch), device)
        num_threads = torch.get_num_threads()
        crowded = device.type == "cpu" and is_crowded(others, num_threads)
        if crowded and num_threads > 1:  # threads that wait for others soon learn to sleep
            time.sleep(1.2 * WATCH_INTERVAL_S)
            seconds, worked, others = _time(lambda: step(batch), device)
    scale = training.accumulation * whole / num_pairs
    low = min(seconds, worked / num_threads) if crowded else seconds
    return UpdateTime(low * scale, seconds * scale, others if crowded else 0.0)


def _time(step: Callable[[], object], device: torch.device) -> tuple[float, float, float]:
    """Return the median seconds of a step and of the processor's work for it, and how many cores
    others used meanwhile."""
    times: list[float] = []
    work: list[float] = []
    others = watch_others()
    while len(times) < NUM_BATCHES and sum(times) < BUDGET_S:
        began, worked = time.perf_counter(), time.process_time()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
        work.append(time.process_time() - worked)
    return median(times), median(work), others()
