"""What a training run will take, before it begins: FLOPs, time, memory, disk. Needs no data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

import torch

from shapeshift.data.config import DataConfig, Extrapolate, Interpolate, LengthSlice
from shapeshift.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build
from shapeshift.model.cost import (
    FP32,
    BatchShape,
    ByPart,
    activation_bytes,
    count_parameters,
    forward_flops,
)
from shapeshift.positions import Scheme
from shapeshift.training.config import TrainingConfig
from shapeshift.training.precision import choose_device, tuned
from shapeshift.training.step import TrainingStep, random_batch

TYPICAL_LENGTH = 30
"""Subwords of a sentence where nothing is known of the data: the mean of WMT's news text, or so."""
BACKWARD = 2
"""FLOPs of the backward pass for each one of the forward pass: a product's two gradients."""
MOMENTS = 2
"""Numbers that Adam, AdamW and RAdam keep for each parameter."""


@dataclass(frozen=True)
class Memory:
    """Bytes on the device when the backward pass of an update begins, where they are most.

    Attributes:
        weights: 4 a parameter.
        gradients: 4 a parameter.
        moments: 8 a parameter, Adam's first and second.
        casts: the layers' weights in bf16, which autocast keeps until the pass is over; 0 in fp32.
        activations: see `shapeshift.model.cost.activation_bytes`.
    """

    weights: int
    gradients: int
    moments: int
    casts: int
    activations: ByPart

    @property
    def total(self) -> int:
        """The sum; the framework's own needs and fragmentation come on top."""
        return self.weights + self.gradients + self.moments + self.casts + self.activations.total


@dataclass(frozen=True)
class Estimate:
    """What `estimate` finds.

    Attributes:
        parameters: exact numbers.
        batch: one batch, as it was assumed.
        device: that activations were estimated for, `cuda` or `cpu`.
        dtype: of the matrix products.
        max_tokens_per_update: `max_tokens` x `accumulation`: padded tokens of the longer side.
        flops_per_update: forward and backward, of all batches of an update.
        num_updates: updates of the run.
        memory: bytes on the device.
        checkpoint_bytes: one checkpoint: weights and moments.
        disk_bytes: what the run leaves on the disk: the newest checkpoints, the best one if it is
            none of them, and the average.
    """

    parameters: ByPart
    batch: BatchShape
    device: str
    dtype: torch.dtype
    max_tokens_per_update: int
    flops_per_update: ByPart
    num_updates: int
    memory: Memory
    checkpoint_bytes: int
    disk_bytes: int

    @property
    def total_flops(self) -> int:
        """FLOPs of the run's updates; validation and tests come on top."""
        return self.num_updates * self.flops_per_update.total

    def hours(self, tflops_per_s: float) -> float:
        """Return the hours of training at a speed that is really reached, in 10^12 FLOP/s."""
        return self.total_flops / (tflops_per_s * 1e12) / 3600


def assumed_length(data: DataConfig) -> int:
    """Return the tokens of a sentence, `</s>` included, that an estimate may assume of the data:
    `TYPICAL_LENGTH`, within the limits of the dataset."""
    match data.dataset:
        case Interpolate(num_joined=count):
            subwords = count * TYPICAL_LENGTH + count - 1  # `<sep>` between them
        case Extrapolate(max_length=limit):
            subwords = min(TYPICAL_LENGTH, limit)
        case LengthSlice(min_length=low, max_length=high):
            subwords = max(low, TYPICAL_LENGTH if high is None else min(TYPICAL_LENGTH, high - 1))
        case _:
            subwords = TYPICAL_LENGTH
    return subwords + 1


def estimate(
    model: ModelConfig, scheme: Scheme, training: TrainingConfig, vocab_size: int, length: int
) -> Estimate:
    """Estimate a run on batches as full as `max_tokens` allows, all sentences of one length.

    Parameters are counted on the model itself, which is built without memory (on the `meta`
    device). FLOPs and activations follow the formulas of `shapeshift.model.cost`; training takes
    three times the FLOPs of a forward pass. The device `auto` is taken for a GPU, the precision
    `auto` for bf16, whatever this machine has.

    Args:
        model: the model's shape.
        scheme: its positions.
        training: batches, updates, checkpoints.
        vocab_size: V, of either side.
        length: tokens of a sentence with `</s>`, on either side: the data's mean, or so.

    Raises:
        ShapeshiftError: if not even one sentence of this length fits into a batch, or the scheme
            cannot number it.
    """
    max_tokens = training.batch.max_tokens
    if not 1 <= length <= max_tokens:
        raise ShapeshiftError(
            f"a sentence of {length:,} tokens does not fit into training.batch.max_tokens="
            f"{max_tokens:,}; estimate for another length, or raise max_tokens"
        )
    num_pairs = min(max_tokens // length, training.batch.max_sentences or max_tokens)
    shape = BatchShape(num_pairs, length, length)
    device = "cpu" if training.device == "cpu" else "cuda"
    dtype = torch.float32 if training.precision == "fp32" else torch.bfloat16
    with torch.device("meta"):
        parameters = count_parameters(build(model, scheme, vocab_size, vocab_size))
    forward = forward_flops(model, scheme, vocab_size, shape)
    factor = (1 + BACKWARD) * training.accumulation
    num_bytes = FP32 * parameters.total
    in_layers = parameters.encoder + parameters.decoder
    memory = Memory(
        weights=num_bytes,
        gradients=num_bytes,
        moments=MOMENTS * num_bytes,
        casts=0 if dtype == torch.float32 else dtype.itemsize * in_layers,
        activations=activation_bytes(model, scheme, vocab_size, shape, dtype=dtype, device=device),
    )
    checkpoint = memory.weights + memory.moments
    saved = min(
        training.keep_checkpoints + 1, -(-training.max_updates // training.checkpoint_every)
    )
    return Estimate(
        parameters=parameters,
        batch=shape,
        device=device,
        dtype=dtype,
        max_tokens_per_update=max_tokens * training.accumulation,
        flops_per_update=forward.scaled(factor),
        num_updates=training.max_updates,
        memory=memory,
        checkpoint_bytes=checkpoint,
        disk_bytes=saved * checkpoint + memory.weights,
    )


def measure_speed(
    model: ModelConfig, scheme: Scheme, training: TrainingConfig, vocab_size: int, made: Estimate
) -> float:
    """Return the speed of training on this machine in 10^12 FLOP/s, from a few batches of random
    sentences with a step of the optimiser each.

    Args:
        model, scheme, training, vocab_size: as they were for `estimate`.
        made: what it has found.
    """
    device = choose_device(training.device)
    vocabularies, times = (vocab_size, vocab_size), list[float]()
    batch = random_batch(made.batch.num_pairs, made.batch.source_length, vocabularies, device)
    with tuned(device):
        step = TrainingStep(build(model, scheme, *vocabularies).to(device), training)
        for _ in range(_MEASURED + 1):  # the first one is slower
            began = time.perf_counter()
            step(batch)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - began)
    flops = made.flops_per_update.total / training.accumulation
    return flops / median(times[1:]) / 1e12


_MEASURED = 3
"""Batches."""
