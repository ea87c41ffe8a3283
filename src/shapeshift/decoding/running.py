"""Search and forced scoring of ids with a model: batches, precision, memory, batch invariance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from shapeshift._system.errors import ShapeshiftError, out_of_memory
from shapeshift.attention import ANY_SHAPE
from shapeshift.data.batching import make_batch
from shapeshift.data.subwords import EOS, PAD
from shapeshift.decoding.capacity import capacity
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.invariance import MAX_ROWS, Frame, fill, frame, rows_agree
from shapeshift.decoding.scoring import evaluating, score_references
from shapeshift.decoding.search import Hypothesis, beam_search
from shapeshift.model import Transformer, copy_for_inference
from shapeshift.positions.base import has_hooks

Ids = Sequence[Sequence[int]]


class Runner:
    """A model with its device, its precision and its limits.

    Args:
        model: already on `device`, in any mode.
        config: how to search, and the size of batches.
        device: where the model is.
        autocast: the type of matrix products; None leaves it to the weights.

    Attributes:
        capacity: how long sentences may be.
        model, config: as given.
    """

    def __init__(
        self,
        model: Transformer,
        config: DecodingConfig,
        device: torch.device | str = "cpu",
        autocast: torch.dtype | None = None,
    ):
        self.capacity = capacity(model)
        self.model = model
        self.config = config
        self._device = torch.device(device)
        self._autocast = autocast
        # The weights, held so that no other tensor takes their place in memory, and their versions.
        self._copied: list[tuple[Tensor, int]] = []
        self._copy: Transformer | None = None

    def search(self, sources: Ids, n_best: int = 1) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Args:
            sources: ids without `</s>`, for example from a token store. An empty one has one
                hypothesis, empty, with score 0.
            n_best: hypotheses of each source, at most the beam.

        Raises:
            ShapeshiftError: the model has no positions for a source, gives NaN, or memory runs out;
                `n_best` exceeds the beam.
        """
        if not 1 <= n_best <= self.config.beam:
            raise ShapeshiftError(
                f"n_best is {n_best}, expected 1 to decoding.beam={self.config.beam}; set"
                f" decoding.beam={n_best} (`shapeshift translate --set decoding.beam={n_best}`)"
            )
        results = [[Hypothesis([], log_prob=0.0, score=0.0)] for _ in sources]
        model = self._fast_model()
        for numbers, shape in self._batches([(len(ids) + 1,) if ids else (0,) for ids in sources]):
            found = self._search_batch(model, [sources[n] for n in numbers], n_best, shape)
            for number, hypotheses in zip(numbers, found, strict=True):
                results[number] = hypotheses
        return results

    def score(self, sources: Ids, targets: Ids) -> list[list[float]]:
        """Return the log-probability of each token of each target, with its `</s>`.

        Args:
            sources, targets: sequences of ids, one of each for every pair, without special ones.
        """
        sizes = [(len(x) + 1, len(y) + 1) for x, y in zip(sources, targets, strict=True)]
        scores: list[list[float]] = [[] for _ in sizes]
        model = self._fast_model()
        for numbers, shape in self._batches(sizes):
            batch = make_batch([sources[n] for n in numbers], [targets[n] for n in numbers])
            if shape is not None:
                width, target_width = shape.widths
                batch = replace(
                    batch,
                    source=fill(batch.source, shape.rows, width),
                    target_input=fill(batch.target_input, shape.rows, target_width),
                    target_output=fill(batch.target_output, shape.rows, target_width),
                )
            with self._ready():
                log_probs = score_references(model, batch.to(self._device))
            for number, tokens in zip(numbers, log_probs.tolist(), strict=False):
                scores[number] = tokens[: sizes[number][1]]
        return scores

    def length_limit(self, source_length: int) -> int:
        """Return the most tokens, `</s>` included, for a source of `source_length` subwords."""
        most = self.capacity.target
        limit = self.config.length_limit(source_length)
        return limit if most is None else min(limit, most)

    def _fast_model(self) -> Transformer:
        """Return a copy of the model with its current weights in a layout for fast products."""
        model = self.model
        needless = self._device.type != "cpu" and self._autocast is None
        if needless or not isinstance(model, Transformer):
            return model
        # Hooks are the model's alone, and changes of inference tensors leave no trace.
        weights = [*model.parameters()]
        if any(x.is_inference() for x in weights) or any(map(has_hooks, model.modules())):
            return model
        is_same = len(weights) == len(self._copied) and all(
            x.data_ptr() == kept.data_ptr() and x._version == version
            for x, (kept, version) in zip(weights, self._copied, strict=True)
        )
        if self._copy is None or not is_same:
            self._copied = [(x.detach(), x._version) for x in weights]
            self._copy = copy_for_inference(model, self._autocast or model.output.weight.dtype)
        return self._copy

    def _search_batch(
        self, model: Transformer, sources: Ids, n_best: int, shape: Frame | None
    ) -> list[list[Hypothesis]]:
        beam = self.config.beam
        rows = [torch.tensor([*ids, EOS], device="cpu") for ids in sources]
        source = pad_sequence(rows, batch_first=True, padding_value=PAD)  # (B, S)
        if shape is not None:
            source = fill(source, shape.rows, *shape.widths)  # (rows, width)
        limits = [self.length_limit(len(ids)) for ids in sources]
        limits += limits[-1:] * (len(source) - len(limits))  # of the copies
        with self._ready():
            found = beam_search(
                model.start(source.to(self._device), beam),
                torch.tensor(limits, device=self._device),
                beam=beam,
                n_best=n_best,
                penalty=self.config.length_penalty,
                fixed_rows=shape is not None,
            )
        return found[: len(sources)]

    def _batches(
        self, sizes: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[list[int], Frame | None]]:
        """Yield the item numbers of each batch and, for batch-invariant decoding, their common
        frame. The longest come first, so that a lack of memory shows at once. `sizes` are the
        tokens of each sentence, or of both sides of each pair, with `</s>`; sentences of 0 tokens
        are left out."""
        config = self.config
        numbers = [number for number, size in enumerate(sizes) if any(size)]
        frames: dict[int, Frame] = {}
        if config.batch_invariant:
            frames = {n: frame(sizes[n], self.capacity, self._max_rows) for n in numbers}

        def widths(number: int) -> tuple[int, ...]:
            return frames[number].widths if frames else ()

        numbers.sort(key=lambda number: (widths(number), max(sizes[number])), reverse=True)
        while numbers:
            first = numbers[0]
            size = min(max(1, config.max_tokens // max(sizes[first])), config.max_sentences)
            if frames:
                size = min(size, frames[first].rows)
            batch = [number for number in numbers[:size] if widths(number) == widths(first)]
            yield batch, frames.get(first)
            numbers = numbers[len(batch) :]

    @cached_property
    def _max_rows(self) -> int:
        """Number of rows of a frame; one if rows of a batch differ in their bits on this
        machine."""
        with self._ready():
            agree = rows_agree(self._fast_model(), self.config.beam, self.capacity, self._device)
        return MAX_ROWS if agree else 1

    @contextmanager
    def _ready(self) -> Iterator[None]:
        """Context: the model in evaluation mode and in its precision, without gradients.

        Raises:
            ShapeshiftError: in place of PyTorch's error, if memory runs out.
        """
        device, dtype = self._device.type, self._autocast
        autocast = torch.autocast(device, dtype, enabled=dtype is not None)
        kernels = SDPBackend.MATH if self.config.batch_invariant else ANY_SHAPE
        with evaluating(self.model), autocast, sdpa_kernel(kernels):
            try:
                yield
            except (MemoryError, RuntimeError) as error:
                if not out_of_memory(error):
                    raise
                raise ShapeshiftError(
                    "not enough memory; cut long lines with decoding.on_long=split and"
                    " decoding.max_source_length, or take smaller batches with decoding.max_tokens"
                ) from error
