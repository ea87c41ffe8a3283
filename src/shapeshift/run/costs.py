"""Costs of a position representation compared with absolute positions: speed of training and
decoding, and memory of a training step.

Tokens per second in a log depend on what else ran at the time. Here both models take turns on the
same batches, so that whatever slows the machine slows both equally. On a CPU, processor time of
this process is measured.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shapeshift.data.batching import collate, plan_epoch
from shapeshift.data.prepared import Prepared
from shapeshift.decoding.capacity import capacity
from shapeshift.model import Transformer, build
from shapeshift.positions import SCHEMES, Scheme
from shapeshift.run.folder import Run
from shapeshift.run.measures import Metric, Result, declares
from shapeshift.training.precision import autocast, choose_precision, tuned
from shapeshift.training.step import TrainingStep, random_batch

BASELINE = SCHEMES["ape"]

MEMORY_LENGTH = 256
"""Subwords of each sentence, `</s>` among them, in the step whose memory is measured."""

DECODED_LENGTH = 32
"""Tokens that each sentence is decoded to when its speed is measured."""

_NUM_BATCHES, _MIN_ROUNDS = 4, 9
_NUM_SENTENCES, _NUM_ROUNDS = 32, 5

Work = Callable[[int], object]
"""Some work; its argument counts how often it was done."""


@declares(Metric("speed", "training speed relative to `ape`, on the same batches", "higher"))
def measure_speed(run: Run, data: Prepared, budget_s: float = 4.0) -> list[Result]:
    """Measure the speed of training over that of the same configuration with `position=ape` (Kiyono
    et al. 2021, Table 2): ape's time for a step over the model's own, the median over rounds of one
    step each. 1 for ape itself, by definition. The steps take the first batches of training and
    fresh weights; the trained ones stay as they are. Rounds are measured for `budget_s` seconds,
    nine however long they take."""
    training = run.training
    lengths = data.train.source_lengths, data.train.target_lengths
    plan = plan_epoch(*lengths, training.batch, seed=training.seed, epoch=0)
    batches = [collate(data.train, pairs).to(run.device) for pairs in plan[:_NUM_BATCHES]]

    def stepper(scheme: Scheme) -> Work:
        step = TrainingStep(_fresh_model(run, data, scheme, run.device), training)
        return lambda number: step(batches[number % len(batches)])

    with tuned(run.device):  # the first step on a new shape is slow, for the first model most
        ratio = _ratio_by_turns(run, stepper, len(batches), _MIN_ROUNDS, budget_s)
    return [Result(metric="speed", value=ratio, split="train")]


@declares(Metric("decoding_speed", "decoding speed relative to `ape`", "higher"))
def measure_decoding_speed(run: Run, data: Prepared) -> list[Result]:
    """Measure the speed of decoding token by token with a cache and fresh weights: APE's time over
    the model's own, the median over rounds (`decoding_speed`; 1 for APE itself, by definition).
    Both write `DECODED_LENGTH` tokens for each sentence, or as many as the model has positions for,
    whatever they would say, so that both do the same work."""
    dtype = choose_precision(run.training.precision, run.device)
    room = capacity(_fresh_model(run, data, run.config.position.scheme, "cpu"))
    length = min(DECODED_LENGTH, room.source or DECODED_LENGTH, room.target or DECODED_LENGTH)
    batch = random_batch(_NUM_SENTENCES, length, data.subwords.sizes, run.device)

    def decoder(scheme: Scheme) -> Work:
        model = _fresh_model(run, data, scheme, run.device).eval()

        @torch.inference_mode()
        def decode(number: int) -> None:
            with autocast(run.device, dtype):
                state = model.start(batch.source)
                for token in batch.target_input.unbind(1):
                    state.step(token)

        return decode

    ratio = _ratio_by_turns(run, decoder, 1, _NUM_ROUNDS)
    return [Result(metric="decoding_speed", value=ratio)]


@declares(
    Metric(
        "step_bytes",
        "peak memory of a training step in bytes",
        "lower",
        "bytes",
        buckets=(f"length {MEMORY_LENGTH}",),
        is_whole=True,
    ),
    Metric(
        "step_memory",
        "peak memory relative to `ape`",
        "lower",
        buckets=(f"length {MEMORY_LENGTH}",),
    ),
)
def measure_step_memory(run: Run, data: Prepared) -> list[Result]:
    """Measure the most bytes of tensors alive at a time in a training step (forward, backward,
    update) with fresh weights on sentences of `MEMORY_LENGTH` subwords, or as many as the model has
    positions for: `step_bytes`, weights and optimiser included, and `step_memory`, that over APE's.
    On a CPU what PyTorch's operations return is counted, on a GPU what its allocator hands out, so
    that neither other programs nor the interpreter count."""
    scheme = run.config.position.scheme
    room = capacity(_fresh_model(run, data, scheme, "cpu"), training=True)
    length = min(MEMORY_LENGTH, room.source or MEMORY_LENGTH, room.target or MEMORY_LENGTH)
    own, first = (_peak_bytes(run, data, each, length) for each in (scheme, BASELINE))
    bucket = f"length {length}"
    return [
        Result(metric="step_bytes", value=own, bucket=bucket),
        Result(metric="step_memory", value=own / first, bucket=bucket),
    ]


class TensorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context: counts the bytes of live tensors that operations returned, those alive `now` and the
    most that were alive at a time (`peak`). Memory that a kernel uses internally is not counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given, found = (
            {x.untyped_storage()._cdata: x.untyped_storage() for x in leaves if torch.is_tensor(x)}
            for leaves in (tree_leaves((args, kwargs)), tree_leaves(result))
        )
        for key, storage in found.items():
            if key not in given and storage not in self._known:
                self._known.add(storage)
                weakref.finalize(storage, self._remove, storage.nbytes())
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
        return result

    def _remove(self, size: int) -> None:
        self.now -= size


def _ratio_by_turns(
    run: Run, make: Callable[[Scheme], Work], warmup: int, rounds: int, budget_s: float = 0.0
) -> float:
    """Return APE's time for some work, divided by the time with the run's own scheme: the median
    over rounds, repeated until the time budget is used up. The two alternate in who goes first,
    after a few untimed rounds."""
    if run.config.position.scheme == BASELINE:
        return 1.0
    works = [make(scheme) for scheme in (BASELINE, run.config.position.scheme)]
    for number in range(warmup):
        for work in works:
            work(number)
    ratios: list[float] = []
    began = time.perf_counter()
    while len(ratios) < rounds or time.perf_counter() - began < budget_s:
        seconds = [0.0, 0.0]
        for which in (0, 1) if len(ratios) % 2 else (1, 0):
            start = _now(run.device)
            works[which](len(ratios))
            seconds[which] = _now(run.device) - start
        ratios.append(seconds[0] / seconds[1])
    return median(ratios)


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def _fresh_model(
    run: Run, data: Prepared, scheme: Scheme, device: torch.device | str
) -> Transformer:
    """Return an untrained model with a run's settings and this position scheme."""
    return build(run.config.model, scheme, *data.subwords.sizes).to(device)


def _peak_bytes(run: Run, data: Prepared, scheme: Scheme, length: int) -> int:
    config, device = run.training, run.device
    step = TrainingStep(_fresh_model(run, data, scheme, device), config)
    limits = config.batch
    num_sentences = max(1, limits.max_tokens // length)
    num_sentences = min(num_sentences, limits.max_sentences or num_sentences)
    batch = random_batch(num_sentences, length, data.subwords.sizes, device)
    step(batch)  # which allocates the optimiser's moments
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step(batch)
        return int(torch.cuda.max_memory_allocated(device))
    kept: list[Tensor] = [*step.model.parameters(), *step.model.buffers()]
    for state in step.optimizer.state.values():
        kept += [x for x in state.values() if torch.is_tensor(x)]
    with TensorBytes() as counted:
        step(batch)
    return int(counted.peak) + sum(x.nbytes for x in kept)
