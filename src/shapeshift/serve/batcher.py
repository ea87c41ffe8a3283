"""Dynamic batching: sentences of many requests, computed together in one thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.exceptions import HTTPException

from shapeshift._system.errors import ShapeshiftError


class RefusedError(HTTPException):
    """A refused request, with its reason.

    Args:
        status: HTTP status of the response.
        message: of the response.
        retry_after_s: seconds after which the client may try again; None: the request is wrong.
    """

    def __init__(self, status: int, message: str, retry_after_s: int | None = None):
        headers = None if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        super().__init__(status, message, headers)


class StoppingError(RefusedError):
    """The server is stopping and does not answer this request."""

    def __init__(self) -> None:
        super().__init__(503, "the server is about to stop", 10)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One sentence.

    Attributes:
        key: of the job; only jobs with equal keys share a batch.
        text: the sentence.
        size: its number of tokens.
        result: future result. If it is cancelled before its batch starts, the job is dropped.
    """

    key: Hashable
    text: str
    size: int
    result: asyncio.Future[Any] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Batcher:
    """A queue of sentences; one thread computes them, batch after batch.

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
        self._thread = ThreadPoolExecutor(1, "batcher")
        self._batch: Future[Sequence[Any]] | None = None
        self._working: asyncio.Task[None] | None = None
        self._is_closed = False

    async def results(self, jobs: Sequence[Job]) -> list[Any]:
        """Add jobs to the queue, all of them or none, and return their results. If the call is
        cancelled, jobs that still wait are dropped.

        Raises:
            RefusedError: the queue is full (429) or closed (503).
        """
        if self._is_closed:
            raise StoppingError
        if self.num_waiting() + len(jobs) > self._max_waiting:
            raise RefusedError(429, "too many sentences wait; ask again later", 1)
        self._waiting.extend(jobs)
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        try:
            return await asyncio.gather(*(job.result for job in jobs))
        finally:
            for job in jobs:
                job.result.cancel()

    def num_waiting(self) -> int:
        """Return the number of waiting jobs that are not cancelled."""
        return sum(not job.result.done() for job in list(self._waiting))

    def is_idle(self) -> bool:
        """Return whether there is no waiting or running job."""
        return not self.num_waiting() and (self._batch is None or self._batch.done())

    def close(self) -> None:
        """Close the queue, and end waiting jobs with `StoppingError`."""
        self._is_closed = True
        for job in self._waiting:
            if not job.result.done():
                job.result.set_exception(StoppingError())
        self._waiting.clear()

    async def _work(self) -> None:
        while batch := self._take():
            self._observe(len(batch))
            await self._run(batch)

    def _take(self) -> list[Job]:
        batch: list[Job] = []
        left: deque[Job] = deque()
        longest = 0
        for job in self._waiting:
            width = max(longest, job.size)
            if job.result.done():
                continue
            if not batch or (
                job.key == batch[0].key and (len(batch) + 1) * width <= self._max_tokens
            ):
                batch.append(job)
                longest = width
            else:
                left.append(job)
        self._waiting = left
        return batch

    async def _run(self, batch: list[Job]) -> None:
        self._batch = self._thread.submit(self._compute, batch[0].key, [x.text for x in batch])
        try:
            results = await asyncio.wrap_future(self._batch)
        except Exception as error:
            if isinstance(error, ShapeshiftError) and len(batch) > 1:
                for job in batch:  # the error of one sentence is not that of the others
                    await self._run([job])
                return
            for job in batch:
                if not job.result.done():
                    job.result.set_exception(error)
        else:
            for job, result in zip(batch, results, strict=True):
                if not job.result.done():
                    job.result.set_result(result)
