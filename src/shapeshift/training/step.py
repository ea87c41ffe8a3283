"""A training step by itself, to measure its time or memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from shapeshift.data.batching import Batch, make_batch
from shapeshift.data.subwords import SPECIAL_PIECES
from shapeshift.errors import ShapeshiftError
from shapeshift.model import Transformer, label_smoothed_loss
from shapeshift.training.config import TrainingConfig
from shapeshift.training.optim import build_optimizer
from shapeshift.training.precision import autocast, choose_precision


class TrainingStep:
    """Forward pass, backward pass and step of the optimiser on one batch, with the work of an
    update of one process. The learning rate is 0: the weights stay. On a GPU the work may continue
    after the call.

    Args:
        model: on its device; it is set to training mode.
        config: how to train.
    """

    def __init__(self, model: Transformer, config: TrainingConfig):
        self.model = model.train()
        if config.compile:
            compile_layers(model)
        self.optimizer = build_optimizer(config.optimizer, model.parameters())
        self._config = config
        self._device = model.output.weight.device
        self._dtype = choose_precision(config.precision, self._device)

    def __call__(self, batch: Batch) -> None:
        """Take the step on a batch on the model's device."""
        shape = f"with a batch of {tuple(batch.source.shape)}; lower training.batch.max_tokens"
        with naming_failures(self._device, shape), autocast(self._device, self._dtype):
            loss = label_smoothed_loss(
                self.model,
                batch.source,
                batch.target_input,
                batch.target_output,
                self._config.label_smoothing,
                batch.real,
            )
        (loss.smoothed / loss.num_tokens).backward()  # type: ignore[no-untyped-call]
        if self._config.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def compile_layers(model: Transformer) -> None:
    """Let `torch.compile` compile each layer at its first call, as one graph for all lengths. Equal
    layers share it.

    Under `torch.compiler.set_stance("force_eager")` they run as they are.
    """
    model.packs = False  # one graph for all lengths, whatever is padding
    for layer in (*model.encoder, *model.decoder):
        layer.compile(fullgraph=True, dynamic=True)


@contextmanager
def naming_failures(device: torch.device, where: str) -> Iterator[None]:
    """Raise a `ShapeshiftError` where PyTorch, on a GPU or a CPU, or Python runs out of memory, and
    for what the compiler of `torch.compile` complains about.

    Args:
        device: at work.
        where: memory runs out, and what to lower.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            reason = " ".join(str(error).split("\n\n")[0].split())
            raise ShapeshiftError(
                f"torch.compile failed ({reason}); provide what it needs, or set"
                " training.compile=false"
            ) from error
        exhausted = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not exhausted and "DefaultCPUAllocator" not in str(error):
            raise
        raise ShapeshiftError(f"out of memory on {device} {where}") from error


def random_batch(
    num_sentences: int, length: int, vocabularies: tuple[int, int], device: torch.device
) -> Batch:
    """Return pairs of random subwords, the same ones for the same arguments.

    Args:
        num_sentences: B.
        length: subwords of each sentence, with `</s>`.
        vocabularies: sizes of the source's and the target's vocabulary.
        device: where to put the batch.
    """
    generator = torch.Generator().manual_seed(0)
    shape, first = (num_sentences, length - 1), len(SPECIAL_PIECES)
    sides = (torch.randint(first, size, shape, generator=generator) for size in vocabularies)
    return make_batch(*(side.tolist() for side in sides)).to(device)
