"""The step of training: gradients of batches, and the optimiser's step on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from shapeshift._system.errors import ShapeshiftError, out_of_memory
from shapeshift.attention.backends import packed
from shapeshift.attention.call import has_varlen
from shapeshift.data.batching import Batch, make_batch
from shapeshift.data.subwords import SPECIAL_PIECES
from shapeshift.model import Loss, Transformer, label_smoothed_loss
from shapeshift.model.attention import Attention
from shapeshift.training.config import TrainingConfig
from shapeshift.training.optim import build_optimizer
from shapeshift.training.parallel import Parallel
from shapeshift.training.precision import autocast, choose_precision


class Objective(nn.Module):
    """The loss as a module, which DDP requires."""

    def __init__(self, model: Transformer, dtype: torch.dtype):
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, batch: Batch, epsilon: float) -> Loss:
        """Return the loss of a batch on the model's device; see `label_smoothed_loss`."""
        ids = batch.source, batch.target_input, batch.target_output
        with autocast(batch.source.device, self.dtype):
            return label_smoothed_loss(self.model, *ids, epsilon, batch.real)


class TrainingStep:
    """A model, which is set to training mode, and its optimiser.

    Called with a batch on the model's device, it does the work of an update of one process, to
    measure its time or memory. The learning rate is 0 then: the weights stay. On a GPU the work may
    continue after the call.

    Attributes:
        objective: of this process alone.
    """

    def __init__(
        self, model: Transformer, config: TrainingConfig, parallel: Parallel | None = None
    ):
        self.model = model.train()
        if config.compile:
            compile_layers(model)
        self.optimizer = build_optimizer(config.optimizer, model.parameters())
        self._config = config
        self._device = model.output.weight.device
        self.objective = Objective(model, choose_precision(config.precision, self._device))
        self._shared = (parallel or Parallel()).average_gradients(self.objective)

    def add_gradient(self, batch: Batch, num_tokens: float, exchange: bool = True) -> Loss:
        """Add the gradient of the summed loss of a batch, which is on the model's device, divided
        by `num_tokens`; return the loss. With `exchange`, all gradients so far are averaged over
        the processes."""
        no_sync = getattr(self._shared, "no_sync", nullcontext)  # of DDP
        with self._naming_failures(batch), nullcontext() if exchange else no_sync():
            loss: Loss = self._shared(batch, self._config.label_smoothing)
            (loss.smoothed / num_tokens).backward()  # type: ignore[no-untyped-call]
        return loss

    def finish(self) -> None:
        """Take the optimiser's step, and clear the gradients."""
        with self._naming_failures():
            if self._config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._config.clip_norm)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def __call__(self, batch: Batch) -> None:
        """Run a whole step on one batch."""
        self.add_gradient(batch, batch.num_target_tokens)
        self.finish()

    @contextmanager
    def _naming_failures(self, batch: Batch | None = None) -> Iterator[None]:
        """Raise a `ShapeshiftError` where memory runs out, for the gradient of a batch or in the
        optimiser's step, and for what the compiler of `torch.compile` complains about."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                reason = " ".join(str(error).split("\n\n")[0].split())
                raise ShapeshiftError(
                    f"torch.compile failed ({reason}); provide what it needs, or set"
                    " training.compile=false"
                ) from error
            if not out_of_memory(error):
                raise
            what = "the optimiser's step; lower the size of the model"
            if batch is not None:
                what = (
                    f"a batch of {len(batch)} pairs of at most {batch.source.shape[1]} source and"
                    f" {batch.target_output.shape[1]} target tokens; lower"
                    " training.batch.max_tokens (and raise training.accumulation by as much)"
                )
            raise ShapeshiftError(f"out of memory on {self._device} with {what}") from error


def compile_layers(model: Transformer) -> None:
    """Let `torch.compile` compile each layer at its first call, as one graph for all lengths. Equal
    layers share it. Under `torch.compiler.set_stance("force_eager")` they run as they are."""
    # One graph for all lengths, whatever is padding: all attentions are packed, or none is.
    attentions = [x for x in model.modules() if isinstance(x, Attention)]
    model.packs = has_varlen(model.output.weight.device) and all(
        packed.takes(x.position, x.head_dim, dtype, x.dropout) and not x.position.acts("inputs")
        for x in attentions
        for dtype in (torch.float32, torch.bfloat16)
    )
    for layer in (*model.encoder, *model.decoder):
        layer.compile(fullgraph=True, dynamic=True)


def random_batch(
    num_sentences: int, length: int, vocabularies: tuple[int, int], device: torch.device
) -> Batch:
    """Return pairs of random subwords, the same ones for the same arguments. `length` counts
    `</s>`; `vocabularies` are the sizes of the source's and the target's."""
    generator = torch.Generator().manual_seed(0)
    shape, first = (num_sentences, length - 1), len(SPECIAL_PIECES)
    sides = (torch.randint(first, size, shape, generator=generator) for size in vocabularies)
    return make_batch(*(side.tolist() for side in sides)).to(device)
