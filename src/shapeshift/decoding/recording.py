"""Work that a GPU repeats from a record, a CUDA graph, in place of launching kernel by kernel.

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

_lock = Lock()  # one thread records at a time
_waits: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()
_last: dict[torch.cuda.Stream, torch.cuda.CUDAGraph] = {}  # whose memory the next one takes over


def serves(device: torch.device) -> bool:
    """Return whether a device can repeat work from a record."""
    return device.type == "cuda" and not torch.version.hip


_READS = {"_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select"}


class Recorded:
    """Calls `work`, which reads and writes the same tensors in every call. From the second call on
    a record of it is repeated; the first makes what is made once.

    Work that makes the host wait for the GPU, as a user's representation may, cannot be recorded,
    and is done as it is.

    Args:
        work: on the current device.
        model: what `work` computes with: whether that waits is found out once for each.
    """

    def __init__(self, work: Callable[[], None], model: nn.Module):
        self._work = self._run = work
        self._model = model
        self._calls = 0

    def __call__(self) -> None:
        self._calls += 1
        if self._calls == 1 and self._model not in _waits:
            with _Waits() as seen:
                self._work()
            _waits[self._model] = seen.found
            return
        if self._calls == 2 and not _waits[self._model]:
            self._run = record(self._work)
        self._run()


class _Waits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Finds out whether the host reads what is on a device, or copies to it, for which it waits."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name, tensors = func.overloadpacket.__name__, tree_leaves((args, kwargs, out))
        copies = name in ("_to_copy", "copy_")  # else a number on a CPU may stand beside the others
        devices = {x.device for x in tensors if isinstance(x, Tensor) and (x.ndim or copies)}
        self.found |= name in _READS or len(devices) > 1
        if name.startswith("index"):  # by True and False, which are counted
            places = tree_leaves(args[1])
            self.found |= any(isinstance(x, Tensor) and x.dtype is torch.bool for x in places)
        return out


def record(work: Callable[[], None]) -> Callable[[], None]:
    """Return a function that does what `work()` does, which is not done yet: a CUDA graph's."""
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
