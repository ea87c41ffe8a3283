"""Trained runs that stay loaded, and the work that they do for requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from shapeshift.data.batching import make_batch
from shapeshift.decoding.translator import TranslatedLine, Translator
from shapeshift.errors import ShapeshiftError
from shapeshift.export.folder import REPORT
from shapeshift.lab.inspection import Kind, record_attention
from shapeshift.lab.run import TORCH, Run
from shapeshift.model import Transformer
from shapeshift.training.precision import choose_device

from .batcher import Batcher, ClosedError, Job, QueueFullError

MAX_ATTENTION = 64
"""Subwords of a sentence whose attention is shown: what is sent grows with the square."""


@dataclass(frozen=True)
class Limits:
    """What a server takes.

    Attributes:
        max_subwords: of a sentence.
        max_body: bytes of a request.
        max_waiting: sentences in the queue, one for each run that is to translate it.
        max_connections: open at a time.
        batch_tokens: size of a batch: sentences × subwords of the longest of them.
        head_s, body_s: for the head and for the body of a request to arrive.
        request_s: for the whole request, from the end of its head on.
        drain_s: after a signal, for what is in the queue.
    """

    max_subwords: int = 256
    max_body: int = 256 * 1024
    max_waiting: int = 512
    max_connections: int = 256
    batch_tokens: int = 1024
    head_s: float = 10.0
    body_s: float = 10.0
    request_s: float = 30.0
    drain_s: float = 30.0


class RefusedError(Exception):
    """A request that is not served.

    Attributes:
        status: of HTTP.
        retry_after_s: when it may be served; None: never.
    """

    def __init__(self, status: int, message: str, retry_after_s: int | None = None):
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Task:
    """What is to be done with a sentence; sentences with equal tasks share a batch."""

    run: str
    n_best: int = 1
    tokens: bool = False
    attention: Kind | None = None


class ServedRun:
    """A run that stays loaded.

    Args:
        path: of a run, or of a model that `shapeshift export` wrote into a run's folder.
        settings: to differ from those of the run.

    Attributes:
        name: of the run's folder, and of the exported model's in it.
        model: whose attention can be seen; None in another engine.
        translator: of the run.

    Raises:
        ShapeshiftError: it is neither.
    """

    def __init__(self, path: Path, settings: Sequence[str] = ()):
        self.path = path = path.resolve()
        is_export = (path / REPORT).exists()
        directory, self.engine = (path.parent, path.name) if is_export else (path, TORCH)
        run = Run(directory, settings)
        self.name = "/".join(path.parts[-2:]) if is_export else path.name
        self.config = run.config
        self.device = choose_device(run.config.training.device)
        self.subwords = run.subwords()
        self.model: Transformer | None = None if is_export else run.model(device=self.device)
        self.translator: Translator = run.translator(
            model=self.model, subwords=self.subwords, engine=self.engine
        )

    @property
    def position(self) -> str:
        """The name of its position representation, and what it consists of."""
        name, scheme = self.config.position.name, self.config.position.scheme
        parts = " + ".join(map(str, scheme.parts)) or "no position"
        return f"{name}: {parts}, position ids {scheme.position_ids}"

    @cached_property
    def _ids(self) -> dict[str, int]:
        pieces = self.subwords.target_pieces(range(self.subwords.target_size))
        return {piece: number for number, piece in enumerate(pieces)}

    def num_subwords(self, sentence: str) -> int:
        """Return the length of a sentence.

        Raises:
            RefusedError: this model does not translate such text.
        """
        try:
            self.subwords.check_source(sentence)
        except ShapeshiftError as error:
            raise RefusedError(422, f"{self.name}: {error}") from error
        return len(self.translator.encode([sentence])[0])

    def translate(self, task: Task, sentences: Sequence[str]) -> list[dict[str, Any]]:
        """Return the translations of each sentence, and its attention if the task says so."""
        lines = self.translator.translate_lines(sentences, task.n_best, each_token=task.tokens)
        results: list[dict[str, Any]] = []
        for sentence, line in zip(sentences, lines, strict=True):
            result: dict[str, Any] = {"candidates": [vars_of(each) for each in line.candidates]}
            if task.attention is not None:
                result |= self._attention(sentence, line, task.attention)
            results.append(result)
        return results

    def _attention(self, sentence: str, line: TranslatedLine, kind: Kind) -> dict[str, Any]:
        (source,) = self.translator.encode([sentence])
        pieces = [piece for piece, _ in line.candidates[0].tokens or ()]
        reads = ["<s>", *pieces[:-1]]
        source_pieces = [*self.subwords.source_pieces(source), "</s>"]
        attention = None
        if self.model is not None:
            batch = make_batch([source], [[self._ids[piece] for piece in pieces[:-1]]])
            probs = record_attention(self.model, batch.to(self.device))[kind]
            attention = np.round(probs.astype(np.float64), 4).tolist()
        return {
            "rows": source_pieces if kind == "encoder self-attention" else reads,
            "columns": reads if kind == "decoder self-attention" else source_pieces,
            "attention": attention,
        }


def vars_of(candidate: Any) -> dict[str, Any]:
    """Return a translation as it is sent."""
    tokens = candidate.tokens
    return {
        "text": candidate.text,
        "score": candidate.score,
        "log_prob": candidate.log_prob,
        "at_limit": candidate.at_limit,
        "tokens": None if tokens is None else [piece for piece, _ in tokens],
        "token_log_probs": None if tokens is None else [log_prob for _, log_prob in tokens],
    }


class Metrics:
    """What a server counts, for Prometheus."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "shapeshift_requests", "Requests.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "shapeshift_request_seconds", "Duration of requests.", ["path"], registry=registry
        )
        self.batches = Histogram(
            "shapeshift_batch_sentences",
            "Sentences of a batch.",
            buckets=[2**n for n in range(10)],
            registry=registry,
        )
        self.waiting = Gauge(
            "shapeshift_waiting_sentences", "Sentences in the queue.", registry=registry
        )


class Service:
    """Runs, the queue before them, and whether new work is taken.

    Args:
        runs: named by their paths where two have the same name.
        limits: on requests.
    """

    def __init__(self, runs: Sequence[ServedRun], limits: Limits):
        names = [run.name for run in runs]
        self.runs = {run.name if names.count(run.name) == 1 else str(run.path): run for run in runs}
        self.limits = limits
        self.metrics = Metrics()
        self.draining = False
        self.batcher = Batcher(
            lambda task, sentences: self.runs[task.run].translate(task, sentences),
            max_tokens=limits.batch_tokens,
            max_waiting=limits.max_waiting,
            observe=self.metrics.batches.observe,
        )
        self.metrics.waiting.set_function(self.batcher.num_waiting)

    def chosen(self, names: Sequence[str] | None) -> list[ServedRun]:
        """Return the runs of these names, all where there are none.

        Raises:
            RefusedError: there is no such run.
        """
        for name in names or ():
            if name not in self.runs:
                known = ", ".join(self.runs)
                raise RefusedError(404, f"no run {name[:100]!r}; there are {known}")
        return [self.runs[name] for name in dict.fromkeys(names or self.runs)]

    def limit(self, run: ServedRun) -> int:
        """Return the most subwords of a sentence."""
        own = run.translator.limit
        return self.limits.max_subwords if own is None else min(own, self.limits.max_subwords)

    async def work(
        self, tasks: Sequence[tuple[ServedRun, Task]], sentences: Sequence[str]
    ) -> list[list[dict[str, Any]]]:
        """Return what each run makes of each sentence; when this is cancelled, what has not begun
        is dropped.

        Raises:
            RefusedError: a sentence is too long, the queue is full, or the server is about to stop.
        """
        if self.draining:
            raise RefusedError(503, "the server is about to stop", 10)
        sizes = await asyncio.to_thread(self._sizes, tasks, sentences)
        jobs = [
            [Job(task, text, size) for text, size in zip(sentences, row, strict=True)]
            for (_, task), row in zip(tasks, sizes, strict=True)
        ]
        every = [job for row in jobs for job in row]
        try:
            self.batcher.submit(every)
            await asyncio.gather(*(asyncio.wrap_future(job.result) for job in every))
        except QueueFullError:
            raise RefusedError(429, "too many sentences wait; ask again later", 1) from None
        except ClosedError:
            raise RefusedError(503, "the server is about to stop", 10) from None
        except ShapeshiftError as error:
            raise RefusedError(503, f"this cannot be translated now: {error}", 10) from error
        finally:
            for job in every:
                job.result.cancel()
        return [[job.result.result() for job in row] for row in jobs]

    def _sizes(
        self, tasks: Sequence[tuple[ServedRun, Task]], sentences: Sequence[str]
    ) -> list[list[int]]:
        sizes = []
        for run, task in tasks:
            limit = self.limit(run)
            if task.attention is not None:
                limit = min(limit, MAX_ATTENTION)
            sizes.append([run.num_subwords(sentence) for sentence in sentences])
            for number, size in enumerate(sizes[-1], start=1):
                if size > limit:
                    raise RefusedError(
                        413,
                        f"sentence {number} has {size:,} subwords in {run.name}, which takes at"
                        f" most {limit:,} at a time; send it in parts",
                    )
        return sizes
