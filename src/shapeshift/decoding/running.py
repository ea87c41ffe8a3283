"""A model made ready to compute: where, in which precision, in which shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

import torch

from shapeshift.decoding.capacity import capacity
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.invariance import (
    MOST_ROWS,
    Frame,
    by_shape_alone,
    frame,
    probe,
    rows_agree,
)
from shapeshift.decoding.scoring import ScoringModel, evaluating
from shapeshift.decoding.search import Stepper
from shapeshift.errors import ShapeshiftError


class RunningModel(ScoringModel, Protocol):
    """The part of the translation model that search and scoring call; also an `nn.Module`."""

    def start(self, source: torch.Tensor, beam: int) -> Stepper:
        """Encode source ids `(B, S)` (with `</s>`, padded on the right) for `beam` rows each."""
        ...


class Runner:
    """A model with its device, its precision and its limits.

    Args:
        model: already on `device`, in any mode.
        config: `beam` and `batch_invariant` of it are read.
        device: where the model is.
        autocast: the type of matrix products; None leaves it to the weights.

    Attributes:
        capacity: how long sentences may be.
    """

    def __init__(
        self,
        model: RunningModel,
        config: DecodingConfig,
        device: torch.device | str = "cpu",
        autocast: torch.dtype | None = None,
    ):
        self.model = model
        self.device = torch.device(device)
        self.capacity = capacity(model)
        self._config = config
        self._autocast = autocast
        self._most_rows: int | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Hold the model in evaluation mode and in its precision, without gradients.

        Raises:
            ShapeshiftError: in place of PyTorch's error, if memory runs out.
        """
        autocast = torch.autocast(
            self.device.type, self._autocast, enabled=self._autocast is not None
        )
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.model))
            stack.enter_context(autocast)
            if self._config.batch_invariant:
                stack.enter_context(by_shape_alone())
            try:
                yield
            except (MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error):
                    raise
                raise ShapeshiftError(
                    "not enough memory; cut long lines with decoding.on_long=split and"
                    " decoding.max_source_length, or take smaller batches with decoding.max_tokens"
                ) from error

    def source_frame(self, num_tokens: int) -> Frame:
        """Return the shape in which a source of so many tokens, with `</s>`, is computed."""
        return frame(num_tokens, self.capacity.source, self._rows())

    def target_frame(self, num_tokens: int) -> Frame:
        """Return the shape in which a target of so many tokens, with `</s>`, is computed."""
        return frame(num_tokens, self.capacity.target, self._rows())

    def _rows(self) -> int:
        """Return the most rows of a frame: one if this machine does not treat rows alike."""
        if self._most_rows is None:
            beam, room, device = self._config.beam, self.capacity, self.device
            with self.ready():
                state = self.model.start(probe(MOST_ROWS, room.source, device), beam)
                alike = rows_agree(state, MOST_ROWS * beam, room.target, device)
            self._most_rows = MOST_ROWS if alike else 1
        return self._most_rows


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return "DefaultCPUAllocator" in str(error)  # a plain RuntimeError on a CPU
