"""What shares a batch, in which order, and what happens to the rest."""

import threading
from concurrent.futures import CancelledError

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.serve.batcher import Batcher, Job
from shapeshift.serve.limits import RefusedError, StoppingError


class Recorder:
    """Computes upper case; the first batch waits until `go` is set."""

    def __init__(self):
        self.batches = []
        self.began, self.go = threading.Event(), threading.Event()

    def __call__(self, key, texts):
        self.batches.append((key, texts))
        self.began.set()
        assert self.go.wait(10)
        if "bad" in texts:
            raise ShapeshiftError("a bad sentence")
        if "bug" in texts:
            raise KeyError("bug")
        return [text.upper() for text in texts]


@pytest.fixture
def compute():
    return Recorder()


@pytest.fixture
def batcher(compute):
    """Busy with the job `first`, so that what is submitted waits until `go`."""
    batcher = Batcher(compute, max_tokens=12, max_waiting=6)
    batcher.submit([Job("k", "first", 1)])
    assert compute.began.wait(10)
    yield batcher
    compute.go.set()
    assert batcher.close(10)


def test_what_waits_is_one_batch_of_equal_keys_with_the_oldest_first(batcher, compute):
    jobs = [Job("a", "x", 2), Job("b", "y", 2), Job("a", "z", 2)]
    batcher.submit(jobs)
    compute.go.set()
    assert [job.result.result(10) for job in jobs] == ["X", "Y", "Z"]
    assert compute.batches == [("k", ["first"]), ("a", ["x", "z"]), ("b", ["y"])]


def test_a_batch_holds_the_padded_tokens_that_it_may(batcher, compute):
    jobs = [Job("k", text, size) for text, size in (("a", 3), ("b", 5), ("c", 4), ("d", 3))]
    huge = Job("k", "huge", 99)
    batcher.submit([*jobs, huge])
    compute.go.set()
    huge.result.result(10)
    batches = [texts for _, texts in compute.batches[1:]]
    assert batches == [["a", "b"], ["c", "d"], ["huge"]]  # 2 × 5; a third would make 3 × 5


def test_the_queue_takes_all_or_none_and_counts_no_cancelled_jobs(batcher, compute):
    waiting = [Job("k", str(n), 1) for n in range(5)]
    batcher.submit(waiting)
    with pytest.raises(RefusedError, match="too many"):
        batcher.submit([Job("k", "x", 1), Job("k", "y", 1)])
    assert batcher.num_waiting() == 5
    waiting[0].result.cancel()
    batcher.submit([Job("k", "x", 1), Job("k", "y", 1)])
    compute.go.set()
    waiting[1].result.result(10)
    assert "0" not in compute.batches[1][1]


def test_an_error_is_that_of_its_own_sentence(batcher, compute):
    good, bad = Job("k", "good", 1), Job("k", "bad", 1)
    batcher.submit([good, bad])
    compute.go.set()
    assert good.result.result(10) == "GOOD"
    with pytest.raises(ShapeshiftError):
        bad.result.result(10)


def test_a_bug_ends_its_batch_and_not_the_thread(batcher, compute):
    bug, after = Job("k", "bug", 1), Job("other", "after", 1)
    batcher.submit([bug, after])
    compute.go.set()
    with pytest.raises(KeyError):
        bug.result.result(10)
    assert after.result.result(10) == "AFTER"


def test_a_closed_queue_ends_what_waits_and_takes_nothing(batcher, compute):
    waiting, cancelled = Job("k", "x", 1), Job("k", "y", 1)
    batcher.submit([waiting, cancelled])
    cancelled.result.cancel()
    assert not batcher.is_idle()
    assert not batcher.close(0)  # the first batch is still computed
    with pytest.raises(StoppingError):
        waiting.result.result(10)
    with pytest.raises(CancelledError):
        cancelled.result.result(10)
    with pytest.raises(StoppingError):
        batcher.submit([Job("k", "z", 1)])
