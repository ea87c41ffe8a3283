"""The libraries in C: which one serves here, and calls of their functions."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError, reason, unknown

from .processor import NEEDS, instruction_sets, is_intel

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}

_VARIABLE = "SHAPESHIFT_KERNELS"

log = logging.getLogger(__name__)

LONG = 1 << 32
"""Products of two numbers from which a call may take a second."""


class _Kind(NamedTuple):
    """What an argument of a kernel must be: a number, or a tensor."""

    name: str
    ctype: Any
    dtype: torch.dtype | None = None  # of a tensor; None for the library's
    is_tensor: bool = False
    is_optional: bool = False
    sizes: tuple[int, ...] = ()  # of a contiguous tensor: which arguments say them


def _kinds(**arguments: str) -> tuple[_Kind, ...]:
    """Return the arguments of a function in C, each from one word: `long`, `real` (a float),
    `array` (of longs), or the dtype of a tensor, `number` for the library's. Names in brackets are
    the arguments that say the sizes of a contiguous tensor; of others the last dimension is
    contiguous. With `?` it may be None."""
    numbers = {"long": ctypes.c_long, "real": ctypes.c_float, "array": ctypes.c_void_p}
    names = [*arguments, "threads"]
    kinds = []
    for name, text in {**arguments, "threads": "long"}.items():
        word, _, sizes = text.strip("?]").partition("[")
        if word in numbers:
            kinds.append(_Kind(name, numbers[word]))
            continue
        dtype = None if word == "number" else getattr(torch, word)
        at = tuple(map(names.index, sizes.split()))
        kinds.append(_Kind(name, ctypes.c_void_p, dtype, True, text.endswith("?"), at))
    return tuple(kinds)


SENTENCES = _Kind("a sentence", ctypes.c_void_p, torch.int64, True)
TABLE = _Kind("a table by distance", ctypes.c_void_p, torch.float32, True, True)
TURN = _Kind("cosines and sines", ctypes.c_void_p, torch.float32, True)
_STOPPED = -1
"""Where an array, such as `struct batch` of `attention.c`, says that a call is stopped."""

_HEADS = {"q": "number", "k": "number", "v": "number"}
_DRAWN = {"seed": "long", "threshold": "long", "scale": "real"}
_PROBS = {"batch": "array", "bias": "number?", "mask": "number?", **_DRAWN, "saved": "number?"}
_FUNCTIONS = {
    "attention_forward": _kinds(**_HEADS, **_PROBS, out="number"),
    "attention_backward": _kinds(
        **_HEADS,
        grad="number",
        **_PROBS,
        q_grad="number",
        k_grad="number",
        v_grad="number",
        bias_grads="number?",
        bias_sums="float32?",
        key_grads="float32?",
        value_grads="float32?",
    ),
    "attend_few": _kinds(
        **_HEADS,
        steps="array",
        rows="int32[K N]?",
        bias="number?",
        mask="number[N K]?",
        scale="real",
        out="number[N H Q E]",
        probs="number[N H Q K]?",
        **dict.fromkeys("NHQKEM", "long"),
    ),
    "cross_entropy": _kinds(
        logits="number[N V]",
        targets="int64[N]",
        confidence="real",
        replace="long",
        log_sums="float32[N]",
        log_probs="float32[N]",
        **dict.fromkeys("NV", "long"),
    ),
    "dropout_forward": _kinds(
        x="number[count]",
        added="float32[count]?",
        **_DRAWN,
        relu="long",
        out="number[count]?",
        total="float32[count]?",
        kept="uint8",
        count="long",
    ),
    "dropout_backward": _kinds(
        out="number[count]",
        grad="number[count]?",
        total="float32[count]?",
        kept="uint8",
        scale="real",
        count="long",
    ),
    "best_continuations": _kinds(
        logits="number[A B V]",
        sums="float32[A B]",
        forced="int64[A]",
        pad="long",
        bos="long",
        best="float32[A count]",
        columns="int64[A count]",
        **dict.fromkeys("ABV", "long"),
        count="long",
    ),
    "weight_gradient": _kinds(
        grad="number[M N]",
        x="number[M K]",
        weight="float32[N K]",
        sums="float32[threads N]",
        **dict.fromkeys("MNK", "long"),
    ),
    "lay_out_panels": _kinds(
        weight="float32[N K]", panels="float32", **dict.fromkeys("NK", "long")
    ),
    "linear": _kinds(
        x="float32[M K]",
        panels="float32",
        bias="float32[N]",
        relu="long",
        out="float32[M N]",
        **dict.fromkeys("MNK", "long"),
    ),
}
"""The functions in C and their arguments, in order."""


def call(name: str, work: int, *arguments: Any) -> None:
    """Call a function in C, after a check of all its arguments.

    Args:
        work: about how many products of two numbers it computes.

    Raises:
        ShapeshiftError: if a tensor is not in the memory of the CPU, or has not the dtype and the
            size that the function reads or writes.
        IndexError: if an index in a tensor is out of range; nothing is written.
        MemoryError: if there is too little memory.
    """
    kinds = _FUNCTIONS[name]
    dtype = arguments[0].dtype if kinds[0].dtype is None else kinds[0].dtype
    function = _function(name, dtype)
    values = [
        address(x, kind, dtype, name, arguments) if kind.is_tensor else x
        for x, kind in zip(arguments, kinds, strict=True)
    ]
    run = _run_long if work >= LONG else _run
    status = run(function, values, arguments)
    if status == 1:
        raise MemoryError(f"{name} has too little memory")
    if status == 2:
        raise IndexError(f"{name} got an index that is out of range")


def _run(function: Any, values: list[Any], _: tuple[Any, ...]) -> int:
    return int(function(*values))


def _run_long(function: Any, values: list[Any], arguments: tuple[Any, ...]) -> int:
    """As `_run`; meanwhile Python handles signals, as it does between its own steps. If a handler
    raises an exception, the function is stopped."""
    if threading.current_thread() is not threading.main_thread():  # which alone handles signals
        return _run(function, values, arguments)
    status: list[int] = []
    ended = threading.Event()  # `Thread.join` takes an interrupted thread for one that has ended

    def compute() -> None:
        status.append(_run(function, values, arguments))
        ended.set()

    try:  # daemon: a second exception does not wait for it
        threading.Thread(target=compute, name="kernel", daemon=True).start()
    except RuntimeError:  # no more threads
        return _run(function, values, arguments)
    try:
        while not ended.wait(0.1):
            pass
    except BaseException:
        for x in arguments:
            if isinstance(x, ctypes.Array):
                x[_STOPPED] = 1
        ended.wait()
        raise
    return status[0]


def address(
    x: Tensor | None,
    kind: _Kind,
    library: torch.dtype = torch.float32,
    name: str = "attention",
    arguments: Sequence[Any] = (),
) -> int:
    """Return where a tensor lies, after a check that a kernel may read and write it there."""
    if x is None and kind.is_optional:
        return 0
    dtype = kind.dtype or library
    if isinstance(x, Tensor) and x.is_cpu and x.dtype is dtype and x.layout is torch.strided:
        if kind.sizes:
            count = 1
            for at in kind.sizes:
                count *= arguments[at]
            fits = x.numel() == count and x.is_contiguous()
        else:
            fits = not x.ndim or x.stride(-1) == 1 or x.shape[-1] <= 1
        address = x.data_ptr() if fits else 0
        if fits and (address or not x.numel()):
            return address
    wanted = str(dtype).removeprefix("torch.")
    if kind.sizes:
        names = [each.name for each in _FUNCTIONS[name]]
        sizes = (f"{names[at]} = {arguments[at]}" for at in kind.sizes)
        wanted = f"contiguous {wanted} ({', '.join(sizes)})"
    got = f"{tuple(x.shape)} {x.dtype} on {x.device}" if isinstance(x, Tensor) else repr(x)
    raise ShapeshiftError(
        f"{kind.name} of {name} must be a tensor on the CPU, {wanted}, got {got}; move the module"
        " and its inputs to one device and dtype with .to(...)"
    )


@cache
def _function(name: str, dtype: torch.dtype) -> Any:
    """Return a function in C with the types of its arguments: a call takes 4 µs in place of the 7
    that it takes with a type made for each number."""
    found = library(dtype) if dtype in DTYPES else None
    if found is None:
        raise ShapeshiftError(f"no compiled kernels serve for {dtype} here; {describe()}")
    function = getattr(found, name)
    function.argtypes = [kind.ctype for kind in _FUNCTIONS[name]]
    function.restype = ctypes.c_long
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
    """Return a library, if it is made of the sources next to it."""
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
