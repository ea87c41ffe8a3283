"""What shares a batch, in which order, and what happens to the rest."""

import asyncio
import threading

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.serve.batcher import Batcher, Job

pytestmark = pytest.mark.anyio


class Recorder:
    """Computes upper case; the first batch waits until `go` is set."""

    def __init__(self):
        self.batches, self.go = [], threading.Event()

    def __call__(self, key, texts):
        self.batches.append((key, texts))
        assert self.go.wait(10)
        if "bad" in texts:
            raise ShapeshiftError("a bad sentence")
        if "bug" in texts:
            raise KeyError("bug")
        return [text.upper() for text in texts]


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def busy():
    """A batcher that computes `first`, so that what is submitted waits until `compute.go`."""
    compute = Recorder()
    batcher = Batcher(compute, max_tokens=12, max_waiting=5)
    first = asyncio.create_task(batcher.results([Job("k", "first", 1)]))
    while not compute.batches:
        await asyncio.sleep(0.01)
    yield batcher, compute
    compute.go.set()
    assert await first == ["FIRST"]


def submit(batcher, *jobs):
    return asyncio.create_task(batcher.results([Job(*job) for job in jobs]))


@pytest.mark.parametrize(
    ("jobs", "batches"),
    [
        ([("a", "x", 2), ("b", "y", 2), ("a", "z", 2)], [["x", "z"], ["y"]]),
        # 2 × 5 tokens; a third would make 3 × 5
        (
            [("k", "a", 3), ("k", "b", 5), ("k", "c", 4), ("k", "d", 3), ("k", "huge", 99)],
            [["a", "b"], ["c", "d"], ["huge"]],
        ),
    ],
)
async def test_a_batch_has_one_key_the_oldest_job_and_the_padded_tokens_that_it_may(
    busy, jobs, batches
):
    batcher, compute = busy
    waiting = submit(batcher, *jobs)
    await asyncio.sleep(0)
    compute.go.set()
    assert await waiting == [text.upper() for _, text, _ in jobs]
    assert [texts for _, texts in compute.batches[1:]] == batches


async def test_an_error_is_that_of_its_own_sentence_and_a_bug_that_of_its_batch(busy):
    batcher, compute = busy
    good, bad = submit(batcher, ("k", "good", 1)), submit(batcher, ("k", "bad", 1))
    bug, other = submit(batcher, ("x", "bug", 1)), submit(batcher, ("x", "other", 1))
    await asyncio.sleep(0)
    compute.go.set()
    results = await asyncio.gather(good, bad, bug, other, return_exceptions=True)
    assert results[0] == ["GOOD"]
    assert [type(x) for x in results[1:]] == [ShapeshiftError, KeyError, KeyError]
    assert await submit(batcher, ("k", "after", 1)) == ["AFTER"]
