"""CUDA graphs for decoding: a GPU replays recorded work instead of launching kernel by kernel.

A step of decoding launches some 250 kernels. That takes a CPU several times as long as the GPU
computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_READS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}

_lock = Lock()  # one thread records at a time
_waits: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}  # whose memory the next one takes over


def serves(device: torch.device) -> bool:
    """Return whether a device supports CUDA graphs."""
    return device.type == "cuda" and not torch.version.hip


class Recorded:
    """Calls `work`, which reads and writes the same tensors in every call. The first call runs it,
    later calls replay a CUDA graph. Work that makes the host wait for the GPU, as a user's
    representation may, cannot be recorded and runs normally.

    Args:
        work: on the current device.
        model: what `work` computes with: whether that waits is found out once for each.
    """

    def __init__(self, work: Callable[[], None], model: nn.Module):
        self._work, self._model = work, model
        self._replay: Callable[[], None] | None = None
        self._calls = 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls > 1 and self._replay is None:
            if self._model not in _waits:
                with _Waits() as seen:
                    self._work()
                _waits[self._model] = seen.found
                return
            if not _waits[self._model]:
                self._replay = record(self._work)
        (self._replay or self._work)()


class _Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Detects operations for which the host waits: reads from the device and copies to it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor)]
        if name.startswith("index"):  # by True and False, which are counted
            self.found |= any(x.dtype is torch.bool for x in tensors[1:])
        else:
            self.found |= name == "is_nonzero" or not _READS.isdisjoint(func.tags)
        copies = name in ("to", "_to_copy", "copy_")  # other operators take single numbers of a CPU
        self.found |= len({x.device for x in tensors if x.ndim or copies}) > 1
        return out


def record(work: Callable[[], None]) -> Callable[[], None]:
    """Capture `work()` in a CUDA graph without running it, and return a function that replays
    it."""
    stream = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    with _lock:
        side, before = _side_stream(stream.device), _last.get(stream)
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            pool = None if before is None else before.pool()
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        _last[stream] = graph
    return graph.replay


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
