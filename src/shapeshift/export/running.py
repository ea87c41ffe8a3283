"""Search with an exported model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from shapeshift._system.errors import ShapeshiftError, out_of_memory, reason, shell_command
from shapeshift._system.files import refuse_irregular
from shapeshift._system.hashes import verify
from shapeshift.data.subwords import Subwords
from shapeshift.decoding.config import DecodingConfig, exponent
from shapeshift.decoding.running import Ids, Runner
from shapeshift.decoding.search import Hypothesis

from .ctranslate2 import CTranslate2Model
from .folder import REMEDY, read_report
from .onnx import OnnxModel


def open_export(
    folder: Path, subwords: Subwords, config: DecodingConfig, device: torch.device
) -> Runner:
    """Open a model that `shapeshift export` wrote, for search.

    Raises:
        ShapeshiftError: the folder holds no exported model, a damaged one, one for transformers, or
            one with other subword models; the engine is not installed, or cannot do what
            `config` asks for.
    """
    limits = read_report(folder).capacity
    refuse_irregular(folder)
    verify(folder, remedy=REMEDY, sums_remedy=REMEDY)
    is_onnx = (folder / "encoder.onnx").exists()
    if not is_onnx and (folder / "config.json").exists() and not (folder / "model.bin").exists():
        raise ShapeshiftError(
            "is a model for transformers, which `translate` does not run; export the run for"
            " another engine: `shapeshift export --to ctranslate2`, or onnx",
            path=folder,
        )
    own = folder / "subwords"
    if own.is_dir() and Subwords.load(own).fingerprint != subwords.fingerprint:
        export = shell_command(
            "export", folder.parent, "--to", "onnx" if is_onnx else "ctranslate2"
        )
        raise ShapeshiftError(
            "was exported from a run with other subword models; move it away, and export this run:"
            f" {export}",
            path=folder,
        )
    if not is_onnx and config.batch_invariant:
        raise ShapeshiftError(
            "decoding.batch_invariant has no effect in CTranslate2; use `shapeshift translate"
            " --engine torch`, or leave it out"
        )
    try:
        if is_onnx:
            return ExportRunner(folder, OnnxModel(folder, limits), config)
        return CTranslate2Runner(folder, CTranslate2Model(folder, subwords, limits, device), config)
    except ShapeshiftError:
        raise
    except Exception as error:  # no other class has all errors of onnxruntime
        remedy = REMEDY if device.type == "cpu" else f"take training.device=cpu, or {REMEDY}"
        raise ShapeshiftError(
            f"cannot be opened ({reason(error)}); {remedy}", path=folder
        ) from error


class ExportRunner(Runner):
    """A model that `shapeshift export` wrote, in our search. An error of its engine becomes a
    `ShapeshiftError`, since an exported model may contain anything."""

    def __init__(self, folder: Path, model: Any, config: DecodingConfig):
        super().__init__(model, config)
        self._folder = folder

    @contextmanager
    def _ready(self) -> Iterator[None]:
        try:
            with super()._ready():
                yield
        except ShapeshiftError:
            raise
        except Exception as error:
            message = f"fails in its engine ({reason(error)}); {REMEDY}"
            raise out_of_memory(error) or ShapeshiftError(message, path=self._folder) from error


class CTranslate2Runner(ExportRunner):
    """A model that `shapeshift export` wrote for CTranslate2.

    The engine's own beam search finds the hypotheses, which are then ranked by
    `config.length_penalty`. It differs from ours in three ways: the engine divides by n^alpha while
    it searches; it ends when it has as many hypotheses as the beam is wide; one that reaches the
    length limit is not charged for its `</s>`. Greedy search is the same.
    """

    def _search_batch(
        self, model: Any, sources: Ids, n_best: int, shape: object
    ) -> list[list[Hypothesis]]:
        beam = self.config.beam
        limits = [self.length_limit(len(ids)) for ids in sources]
        most = max(1, max(limits) - 1)  # it does not count the `</s>`
        with self._ready():
            found = model.translate(
                [list(ids) for ids in sources],
                beam_size=beam,
                num_hypotheses=beam,
                length_penalty=exponent(self.config.length_penalty),
                min_decoding_length=0,
                max_decoding_length=most,
            )
        ranked = []
        for hypotheses, limit in zip(found, limits, strict=True):
            ours = [self._hypothesis(ids, score, most, limit) for ids, score in hypotheses]
            ranked.append(sorted(ours, key=lambda hypothesis: -hypothesis.score)[:n_best])
        return ranked

    def score(self, sources: Ids, targets: Ids) -> list[list[float]]:
        """As `decoding.running.Runner.score`."""
        model, most = cast(CTranslate2Model, self.model), self.config.max_tokens
        with self._ready():
            return model.score([*map(list, sources)], [*map(list, targets)], most)

    def _hypothesis(self, ids: list[int], score: float, most: int, limit: int) -> Hypothesis:
        """Return a hypothesis, cut at its own length limit, which may be below that of its batch.

        Args:
            score: log p / n^power, where n counts the `</s>` of what is shorter than `most`.
        """
        n = len(ids) + (len(ids) < most)
        log_prob = score * n ** exponent(self.config.length_penalty)
        kept = ids[: limit - 1]
        return Hypothesis(kept, log_prob, log_prob / self.config.length_penalty(len(kept) + 1))
