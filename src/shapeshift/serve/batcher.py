"""Dynamic batching: sentences of many requests, computed together by one thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from shapeshift.errors import ShapeshiftError

from .limits import RefusedError, StoppingError


@dataclass(frozen=True, slots=True)
class Job:
    """One sentence.

    Attributes:
        key: task of the job; only jobs with equal keys share a batch.
        text: the sentence.
        size: its number of tokens.
        result: future result. If it is cancelled before its batch starts, the job is dropped.
    """

    key: Hashable
    text: str
    size: int
    result: Future[Any] = field(default_factory=Future)


class Batcher:
    """A queue of sentences and the thread that computes them, batch after batch.

    Jobs that arrive while a batch is computed wait, and those with equal keys form the next batch:
    batches are large under load, and a single job starts at once. The oldest job is always in the
    next batch, so that no job waits forever. One thread computes the batches of all models, so that
    each batch has the whole processor.

    Args:
        compute: called in the thread with a key and texts; returns a result for each text.
        max_tokens: maximum size of a batch: number of jobs × size of the longest one. A job that is
            longer is a batch of its own.
        max_waiting: maximum number of waiting jobs.
        observe: called with the number of jobs of each batch.
    """

    def __init__(
        self,
        compute: Callable[[Any, list[str]], Sequence[Any]],
        *,
        max_tokens: int,
        max_waiting: int,
        observe: Callable[[int], None] = lambda size: None,
    ):
        self._compute = compute
        self._max_tokens = max_tokens
        self._max_waiting = max_waiting
        self._observe = observe
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._busy = self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Add jobs to the queue, all of them or none.

        Raises:
            RefusedError: the queue is full (429) or closed (503).
        """
        with self._changed:
            if self._closed:
                raise StoppingError
            if self._num_waiting() + len(jobs) > self._max_waiting:
                raise RefusedError(429, "too many sentences wait; ask again later", 1)
            self._waiting.extend(jobs)
            self._changed.notify()

    def num_waiting(self) -> int:
        """Return the number of waiting jobs that are not cancelled."""
        with self._changed:
            return self._num_waiting()

    def is_idle(self) -> bool:
        """Return whether there is no waiting or running job."""
        with self._changed:
            return not self._busy and not self._num_waiting()

    def close(self, timeout_s: float) -> bool:
        """Close the queue, and end waiting jobs with `StoppingError`; return whether the thread has
        ended."""
        with self._changed:
            self._closed = True
            for job in self._waiting:
                if job.result.set_running_or_notify_cancel():
                    job.result.set_exception(StoppingError())
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _num_waiting(self) -> int:
        self._waiting = deque(job for job in self._waiting if not job.result.cancelled())
        return len(self._waiting)

    def _work(self) -> None:
        while batch := self._next():
            self._observe(len(batch))
            self._run(batch)

    def _next(self) -> list[Job]:
        """Wait for jobs and return those of the next batch; none if the queue is closed."""
        with self._changed:
            self._busy = False
            while not self._closed:
                batch = self._take()
                if batch:
                    self._busy = True
                    return batch
                self._changed.wait()
            return []

    def _take(self) -> list[Job]:
        batch: list[Job] = []
        left: deque[Job] = deque()
        longest = 0
        for job in self._waiting:
            width = max(longest, job.size)
            fits = not batch or (
                job.key == batch[0].key and (len(batch) + 1) * width <= self._max_tokens
            )
            if not fits:
                left.append(job)
            elif job.result.set_running_or_notify_cancel():
                batch.append(job)
                longest = width
        self._waiting = left
        return batch

    def _run(self, batch: list[Job]) -> None:
        try:
            results = self._compute(batch[0].key, [job.text for job in batch])
            for job, result in zip(batch, results, strict=True):
                job.result.set_result(result)
        except ShapeshiftError as error:
            if len(batch) == 1:
                batch[0].result.set_exception(error)
                return
            for job in batch:  # the error of one sentence is not that of the others
                self._run([job])
        except BaseException as error:
            for job in batch:
                if not job.result.done():
                    job.result.set_exception(error)
