"""Work that a GPU repeats from a record, a CUDA graph, in place of launching kernel by kernel.

A step of decoding launches some 250 kernels. That takes a CPU several times as long as the GPU
computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock

import torch

_lock = Lock()  # one thread records at a time
_last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}  # whose memory the next one takes over


def serves(device: torch.device) -> bool:
    """Return whether a device can repeat work from a record."""
    return device.type == "cuda" and not torch.version.hip


class Recorded:
    """Calls `work`, which reads and writes the same tensors in every call. From the second call on
    a record of it is repeated; the first makes what is made once."""

    def __init__(self, work: Callable[[], None]):
        self._work = self._run = work
        self._calls = 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == 2:
            self._run = record(self._work)
        self._run()


def record(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does what `work()` does on the current device.

    Work that waits for the GPU, as a user's representation may let it do, cannot be recorded; it is
    returned as it is.
    """
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    with _lock:
        side, before = _side_stream(stream.device), _last.get(stream)
        side.wait_stream(stream)
        try:
            with torch.cuda.stream(side):
                pool = None if before is None else before.pool()
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    work()
                finally:
                    graph.capture_end()
        except RuntimeError:
            return work
        _last[stream] = graph
    return graph.replay


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
