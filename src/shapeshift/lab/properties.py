"""What a position representation costs, whatever the model has learned: the memory of a training
step and the speed of decoding.

Ratios are to the same configuration with absolute positions, as in `lab.speed`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shapeshift.data.prepared import Prepared
from shapeshift.decoding.capacity import capacity
from shapeshift.lab.measures import Measurement
from shapeshift.lab.run import Run
from shapeshift.lab.speed import BASELINE, fresh_model, ratio_by_turns
from shapeshift.positions import Scheme
from shapeshift.training.precision import autocast, choose_device, choose_precision
from shapeshift.training.step import TrainingStep, random_batch

MEMORY_LENGTH = 256
"""Subwords of each sentence, `</s>` among them, in the step whose memory is measured."""

DECODED_LENGTH = 32
"""Tokens that each sentence is decoded to when its speed is measured."""

_NUM_SENTENCES, _NUM_ROUNDS = 32, 5


def measure_step_memory(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the most bytes of tensors alive at a time in a training step (forward, backward,
    update) with fresh weights on sentences of `MEMORY_LENGTH` subwords, or as many as the model has
    positions for: `step_bytes`, weights and optimiser included, and `step_memory`, that over APE's.
    On a CPU what PyTorch's operations return is counted, on a GPU what its allocator hands out, so
    that neither other programs nor the interpreter count."""
    scheme = run.config.position.scheme
    room = capacity(fresh_model(run, data, scheme, "cpu"), training=True)
    length = min(MEMORY_LENGTH, room.source or MEMORY_LENGTH, room.target or MEMORY_LENGTH)
    own, first = (_peak_bytes(run, data, each, length) for each in (scheme, BASELINE))
    bucket = f"length {length}"
    return [
        Measurement(metric="step_bytes", value=own, bucket=bucket),
        Measurement(metric="step_memory", value=own / first, bucket=bucket),
    ]


def measure_decoding_speed(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the speed of decoding token by token with a cache and fresh weights: APE's time over
    the model's own, the median over rounds (`decoding_speed`; 1 for APE itself, by definition).
    Both write `DECODED_LENGTH` tokens for each sentence whatever they would say, so that both do
    the same work."""
    device, own = run.device, run.config.position.scheme
    ratio = 1.0
    if own != BASELINE:
        decoders = [_decoder(run, data, scheme) for scheme in (BASELINE, own)]
        for decode in decoders:  # which is slow, the first time
            decode()
        ratio = ratio_by_turns(repeat(decoders), device, rounds=_NUM_ROUNDS)
    return [Measurement(metric="decoding_speed", value=ratio)]


class TensorBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts, within its block, the bytes of the tensors that operations return, until they are
    freed. What a kernel uses for itself does not show.

    Attributes:
        now: alive at the moment.
        peak: the most that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now: int = 0
        self.peak: int = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
        }
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in given:
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._remove, size)

    def _remove(self, size: int) -> None:
        self.now -= size


def _peak_bytes(run: Run, data: Prepared, scheme: Scheme, length: int) -> int:
    config = run.config.training
    device = choose_device(config.device)
    step = TrainingStep(fresh_model(run, data, scheme, device), config)
    num_sentences = max(1, config.batch.max_tokens // length)
    batch = random_batch(num_sentences, length, _vocabularies(data), device)
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
    held: int = sum(x.nbytes for x in kept)
    peak: int = counted.peak
    return peak + held


def _decoder(run: Run, data: Prepared, scheme: Scheme) -> Callable[[], None]:
    config = run.config.training
    device = choose_device(config.device)
    dtype = choose_precision(config.precision, device)
    model = fresh_model(run, data, scheme, device).eval()
    batch = random_batch(_NUM_SENTENCES, DECODED_LENGTH, _vocabularies(data), device)

    @torch.inference_mode()
    def decode() -> None:
        with autocast(device, dtype):
            state = model.start(batch.source)
            for token in batch.target_input.unbind(1):
                state.step(token)

    return decode


def _vocabularies(data: Prepared) -> tuple[int, int]:
    return data.subwords.source_size, data.subwords.target_size
