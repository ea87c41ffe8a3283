"""Loads the libraries in C, chooses one for this processor, and calls their functions."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import math
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError, reason, unknown

from .processor import NEEDS, instruction_sets, is_intel

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

_VARIABLE = "SHAPESHIFT_KERNELS"

log = logging.getLogger(__name__)

LONG_WORK = 1 << 32
"""Products of two numbers from which a call may take a second."""

_TENSOR, _LONG, _FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float
_DRAWN = _LONG, _LONG, _FLOAT  # seed, threshold, scale
_PROBS = *[_TENSOR] * 3, *_DRAWN, _TENSOR  # batch, bias, mask; saved
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "attention_forward": (*[_TENSOR] * 3, *_PROBS, _TENSOR, _LONG),
    "attention_backward": (*[_TENSOR] * 4, *_PROBS, *[_TENSOR] * 7, _LONG),
    "decode_step": (*[_TENSOR] * 7, _FLOAT, *[_TENSOR] * 2, *[_LONG] * 7),
    "best_continuations": (*[_TENSOR] * 3, *[_LONG] * 2, *[_TENSOR] * 2, *[_LONG] * 5),
    "panels": (*[_TENSOR] * 2, *[_LONG] * 3),
    "linear": (*[_TENSOR] * 3, _LONG, _TENSOR, *[_LONG] * 4),
    "cross_entropy": (*[_TENSOR] * 2, _FLOAT, _LONG, *[_TENSOR] * 2, *[_LONG] * 3),
    "dropout": (*[_TENSOR] * 2, *_DRAWN, _LONG, *[_TENSOR] * 3, *[_LONG] * 2),
    "dropout_backward": (*[_TENSOR] * 4, _FLOAT, *[_LONG] * 2),
}
"""The functions in C and the types of their arguments. All return a status."""


class Argument(NamedTuple):
    """A tensor that a function in C reads or writes, or None for a null pointer."""

    name: str
    tensor: Tensor | None
    dtype: torch.dtype
    size: Sequence[int] | None = None
    """Of a contiguous tensor, or one with as many elements; None if only the last dimension has to
    be contiguous, and the caller has checked the size."""

    def address(self, function: str) -> int:
        """Return the address of the tensor, after checking that the function may access it.

        Raises:
            ShapeshiftError: if it is not in the memory of the CPU, or has another dtype or size.
        """
        x = self.tensor
        if x is None:
            return 0
        if isinstance(x, Tensor) and x.is_cpu and x.dtype is self.dtype:
            if x.layout is not torch.strided:
                fits = False
            elif self.size is None:
                fits = not x.ndim or x.stride(-1) == 1 or x.shape[-1] <= 1
            else:
                fits = x.numel() == math.prod(self.size) and x.is_contiguous()
            address = x.data_ptr() if fits else 0
            if fits and (address or not x.numel()):
                return address
        wanted = str(self.dtype).removeprefix("torch.")
        if self.size is not None:
            wanted = f"contiguous {wanted} {tuple(self.size)}"
        got = f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, Tensor) else repr(x)
        raise ShapeshiftError(
            f"{self.name} of {function} must be a tensor on the CPU, {wanted}, got {got}; move the"
            " module and its inputs to one device and dtype with .to(...)"
        )


def wrong_size(what: str, size: Sequence[object], wanted: str) -> ShapeshiftError:
    return ShapeshiftError(f"{what} must be {wanted}, got {tuple(size)}")


def call(name: str, dtype: torch.dtype, work: int, *arguments: Any) -> None:
    """Call a function in C of the library for `dtype`.

    Args:
        work: about how many products of two numbers it computes.
        arguments: each an `Argument`, a number, or an array of C whose last number the function
            reads while it runs: other than 0 it stops.

    Raises:
        ShapeshiftError: if there is no such library, or a tensor is not what the function expects.
        IndexError: if an index in a tensor is out of range; nothing is written.
        MemoryError: if there is too little memory.
    """
    function = _function(name, dtype)
    values = [x.address(name) if isinstance(x, Argument) else x for x in arguments]
    # The main thread alone handles signals.
    is_long = work >= LONG_WORK and threading.current_thread() is threading.main_thread()
    status = (_run_long if is_long else _run)(function, values, arguments)
    if status == 1:
        raise MemoryError(f"{name} has too little memory")
    if status == 2:
        raise IndexError(f"{name} got an index that is out of range")


def _run(function: Any, values: list[Any], arguments: tuple[Any, ...]) -> int:
    """Return the status of a call; `arguments` hold the tensors until it ends."""
    return int(function(*values))


def _run_long(function: Any, values: list[Any], arguments: tuple[Any, ...]) -> int:
    """Like `_run`, but in a thread, so that Python handles signals meanwhile. If a handler raises
    an exception, the function in C is stopped."""
    status: list[int] = []
    ended = threading.Event()  # `Thread.join` takes an interrupted thread for one that has ended

    def compute() -> None:
        try:
            status.append(_run(function, values, arguments))
        finally:
            ended.set()

    try:  # daemon: a second exception does not wait for it
        threading.Thread(target=compute, name="kernel", daemon=True).start()
    except RuntimeError:  # no more threads
        compute()
    try:
        while not ended.wait(0.1):
            pass
    except BaseException:
        for x in arguments:
            if isinstance(x, ctypes.Array):
                x[-1] = 1
        ended.wait()
        raise
    return status[0]


@cache
def _function(name: str, dtype: torch.dtype) -> Any:
    """Return a function in C with declared argument types; a call takes 4 µs instead of 7 with
    undeclared ones."""
    found = library(dtype) if dtype in DTYPES else None
    if found is None:
        raise ShapeshiftError(f"no compiled kernels serve for {dtype} here; {describe()}")
    function = getattr(found, name)
    function.argtypes, function.restype = FUNCTIONS[name], ctypes.c_long
    return function


def describe() -> str:
    """Return which instruction sets the kernels use here, or why there are none."""
    found = {name: _found(dtype) for dtype, name in DTYPES.items()}
    if not any(made for made, _ in found.values()):
        return f"plain PyTorch: {found['float32'][1]}"
    return "compiled kernels: " + ", ".join(
        f"{name} {why}" if made else f"{name} in plain PyTorch ({why})"
        for name, (made, why) in found.items()
    )


def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the kernels for `dtype`; None where there are none, with one warning if they are
    expected."""
    found, why = _found(dtype)
    if found is None and sys.platform == "linux" and os.environ.get(_VARIABLE) != "none":
        _warn(why)
    return found


@cache
def _warn(why: str) -> None:
    log.warning("without compiled kernels, attention on the CPU is slower: %s", why)


@cache
def _found(dtype: torch.dtype) -> tuple[ctypes.CDLL | None, str]:
    """Return the kernels for `dtype` and their instruction set, or None and why there are none.

    Raises:
        ShapeshiftError: if `SHAPESHIFT_KERNELS` names what the processor or the package lacks.
    """
    wanted = os.environ.get(_VARIABLE, "")
    usable = instruction_sets()
    if wanted == "none":
        return None, f"{_VARIABLE}=none"
    if wanted and wanted not in NEEDS:
        raise ShapeshiftError(unknown(f"{_VARIABLE}: no kernels", wanted, ("none", *NEEDS)))
    if wanted and wanted not in usable:
        raise ShapeshiftError(
            f"{_VARIABLE}={wanted}: this processor lacks it; use {' or '.join(('none', *usable))}"
        )
    if wanted:
        usable = usable[usable.index(wanted) :]
    elif is_intel():  # whose dot products are slower than floats
        usable = tuple(x for x in usable if x != "avx512_bf16")
    if sys.platform != "linux":
        return None, "kernels are built on Linux alone"
    folder = Path(__file__).parent
    for name in usable:
        path = folder / f"{name}-{DTYPES[dtype]}.so"
        if path.exists():
            return _loaded(path, name)
    return None, "none were built when the package was installed (CONTRIBUTING.md)"


def _loaded(path: Path, name: str) -> tuple[ctypes.CDLL | None, str]:
    """Load a library if it was built from the sources next to it."""
    sources = sorted(path.parent.glob("*.[ch]"))
    expected = hashlib.sha256(b"".join(x.read_bytes() for x in sources)).hexdigest()
    try:
        library = ctypes.CDLL(str(path))
        made_of = (ctypes.c_char * 64).in_dll(library, "sources").value.decode("ascii")
    except (OSError, ValueError) as error:
        return None, reason(error)
    if made_of != expected:
        return None, f"{path.name} is older than its sources; install the package again"
    return library, name
