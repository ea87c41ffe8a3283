"""Trained runs that stay loaded, and how they serve requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import make_batch
from shapeshift.decoding.translator import TranslatedLine, Translation
from shapeshift.export.folder import REPORT
from shapeshift.run.folder import TORCH, Run
from shapeshift.run.inspection import Kind, record_attention

from .batcher import Batcher, Job, RefusedError, StoppingError
from .limits import Limits

MAX_SUBWORDS = 256
"""Maximum length of a sentence, unless `decoding.max_source_length` is set."""

MAX_ATTENTION = 64
"""Maximum length of a sentence whose attention is requested: the response grows with its square."""


@dataclass(frozen=True)
class Task:
    """The run that translates a sentence, and the kind of attention to return with it, if any. Only
    sentences with equal tasks share a batch."""

    run: str
    attention: Kind | None = None


@dataclass(frozen=True)
class RunInfo:
    """Description of a run for the page."""

    name: str
    position: str
    engine: str
    beam: int
    max_subwords: int


@dataclass(frozen=True)
class RunTranslations:
    """Translations of all sentences by one run."""

    run: str
    lines: Sequence[TranslatedLine]


@dataclass(frozen=True)
class Attention:
    """A translation and its attention weights, by layer, head, row and column; null if the model is
    an export, which does not return them."""

    run: str
    translation: Translation
    rows: list[str]
    columns: list[str]
    attention: list[list[list[list[float]]]] | None


class ServedRun:
    """A run that stays loaded.

    Args:
        path: of a run, or of a model that `shapeshift export` wrote into a run's folder.
        settings: override those of the run.

    Attributes:
        name: name of the run's folder; for an export, followed by the name of the export's folder.
        limit: maximum length of a sentence, in subwords.

    Raises:
        ShapeshiftError: the path is neither a run nor an export.
    """

    def __init__(self, path: Path, settings: Sequence[str] = ()):
        self.path = path = path.resolve()
        is_export = (path / REPORT).exists()
        directory, self.engine = (path.parent, path.name) if is_export else (path, TORCH)
        run = Run(directory, settings)
        self.name = "/".join(path.parts[-2:]) if is_export else path.name
        self.config = run.config
        self.device = run.device
        self.translator = run.translator(engine=self.engine)
        self.model = None if is_export else self.translator.runner.model
        self.subwords = self.translator.subwords
        self.limit = self.config.decoding.max_source_length or MAX_SUBWORDS
        self.limit = min(self.limit, self.translator.limit)

    @cached_property
    def _ids(self) -> dict[str, int]:
        pieces = self.subwords.target_pieces(range(self.subwords.target_size))
        return {piece: number for number, piece in enumerate(pieces)}

    def compute(self, task: Task, sentences: list[str]) -> list[TranslatedLine] | list[Attention]:
        """Return the translations of each sentence, or its attention if the task asks for it."""
        if task.attention is None:
            return [*self.translator.translate_lines(sentences)]
        lines = self.translator.translate_lines(sentences, each_token=True)
        return [
            self._attention(task.run, sentence, line.candidates[0], task.attention)
            for sentence, line in zip(sentences, lines, strict=True)
        ]

    def _attention(self, run: str, sentence: str, best: Translation, kind: Kind) -> Attention:
        (source,) = self.translator.encode([sentence])
        pieces = [piece for piece, _ in best.tokens or ()][:-1]
        source_pieces, reads = [*self.subwords.source_pieces(source), "</s>"], ["<s>", *pieces]
        attention = None
        if self.model is not None:
            batch = make_batch([source], [[self._ids[piece] for piece in pieces]])
            probs = record_attention(self.model, batch.to(self.device))[kind]
            attention = np.round(probs.astype(np.float64), 4).tolist()
        rows = source_pieces if kind == "encoder self-attention" else reads
        columns = reads if kind == "decoder self-attention" else source_pieces
        return Attention(run, best, rows, columns, attention)


class Service:
    """The runs, the queue of sentences in front of them, and the metrics. Two runs of the same name
    are named by their paths.

    Attributes:
        draining: if True, new requests are refused.
        registry: metrics for Prometheus.
    """

    def __init__(self, runs: Sequence[ServedRun], limits: Limits):
        names = [run.name for run in runs]
        self.runs = {run.name if names.count(run.name) == 1 else str(run.path): run for run in runs}
        self.limits = limits
        self.draining = False
        # One thread: each has a part of the heap of its own, which grows to the most it ever held.
        self._encoder = ThreadPoolExecutor(1, "encoder")
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "shapeshift_requests", "Requests.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "shapeshift_request_seconds", "Duration of requests.", ["path"], registry=registry
        )
        buckets = [2**n for n in range(10)]
        batches = Histogram(
            "shapeshift_batch_sentences", "Size of batches.", buckets=buckets, registry=registry
        )
        self.batcher = Batcher(
            lambda task, sentences: self.runs[task.run].compute(task, sentences),
            max_tokens=limits.batch_tokens,
            max_waiting=limits.max_waiting,
            observe=batches.observe,
        )
        waiting = Gauge("shapeshift_waiting_sentences", "In the queue.", registry=registry)
        waiting.set_function(self.batcher.num_waiting)

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Record a request in the metrics."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def names(self, names: Sequence[str] | None) -> list[str]:
        """Return the given names of runs without duplicates, or all names if none are given.

        Raises:
            RefusedError: there is no such run.
        """
        for name in names or ():
            if name not in self.runs:
                raise RefusedError(404, f"no run {name[:100]!r}; there are {', '.join(self.runs)}")
        return [*dict.fromkeys(names or self.runs)]

    def info(self) -> list[RunInfo]:
        """Describe the runs."""
        return [
            RunInfo(
                name,
                f"{run.config.position.name}: {run.config.position.scheme}",
                run.engine,
                run.config.decoding.beam,
                run.limit,
            )
            for name, run in self.runs.items()
        ]

    def refuse_if_draining(self) -> None:
        """Raise `RefusedError` if the server is stopping."""
        if self.draining:
            raise StoppingError

    async def work(self, tasks: Sequence[Task], sentences: Sequence[str]) -> list[list[Any]]:
        """Return the result of each task for each sentence, see `ServedRun.compute`. If the call is
        cancelled, sentences that still wait are dropped.

        Raises:
            RefusedError: a sentence is too long, the queue is full, or the server is about to stop.
        """
        self.refuse_if_draining()
        loop = asyncio.get_running_loop()
        jobs = []
        for task in tasks:
            sizes = await loop.run_in_executor(self._encoder, self._sizes, task, sentences)
            pairs = zip(sentences, sizes, strict=True)
            jobs += [Job(task, sentence, size) for sentence, size in pairs]
        try:
            results = iter(await self.batcher.results(jobs))
        except ShapeshiftError as error:
            raise RefusedError(503, f"this cannot be translated now: {error}", 10) from error
        return [[next(results) for _ in sentences] for _ in tasks]

    def _sizes(self, task: Task, sentences: Sequence[str]) -> list[int]:
        run = self.runs[task.run]
        limit = run.limit if task.attention is None else min(run.limit, MAX_ATTENTION)
        for sentence in sentences:
            try:
                run.subwords.check_source(sentence)
            except ShapeshiftError as error:
                raise RefusedError(422, f"{task.run}: {error}") from error
        sizes = [len(ids) for ids in run.translator.encode(sentences)]
        for number, size in enumerate(sizes, start=1):
            if size > limit:
                raise RefusedError(
                    413,
                    f"sentence {number} has {size:,} subwords in {task.run}, which takes at most"
                    f" {limit:,} at a time; send it in parts",
                )
        return sizes
