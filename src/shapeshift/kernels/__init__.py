"""Steps of attention, dropout, products and search in C, for a CPU: `kernels.c`, compiled once.

Where there is no C compiler, or for other dtypes and devices, `serves` is false and callers compute
the same in steps of PyTorch. The compiler is `$CC`, else `cc`; `CC=false` does without.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

_SOURCE = Path(__file__).with_name("kernels.c")
_FLAGS = ["-O3", "-march=native", "-fopenmp", "-fno-math-errno", "-fno-trapping-math"]
_FLAGS += ["-shared", "-fPIC"]
_DTYPES = {torch.float32: [], torch.bfloat16: ["-DBF16"]}

MAX_KEYS = 1 << 16
"""A thread keeps a row of scores on its stack."""

_GROUP = 512
"""Elements of a group of `dropout_forward`."""

LANES = 16
"""Numbers in a vector of the kernels are this many, or a divisor of it."""

log = logging.getLogger(__name__)


def serves(x: Tensor) -> bool:
    """Return whether `x (…, Q, K)`, contiguous from here on, can be given to the kernels."""
    if x.device.type != "cpu" or x.dtype not in _DTYPES or not x.ndim or x.shape[-1] > MAX_KEYS:
        return False
    if torch.compiler.is_compiling() or type(x) is not Tensor or not x.numel():
        return False
    if forward_ad._current_level >= 0:  # derivatives in forward mode
        return False
    try:
        x.data_ptr()
    except RuntimeError:  # in a transform of torch.func
        return False
    return is_available(x.dtype)


def is_available(dtype: torch.dtype) -> bool:
    """Return whether there are kernels for a dtype; compile them if they have not been yet."""
    return dtype in _DTYPES and _library(dtype) is not None


class Rows(NamedTuple):
    """Which row of a table each pair of consecutive queries and keys has.

    Attributes:
        num_rows: R.
        shift: key j has row j − i − shift of query i, or the first or the last if there is none.
    """

    num_rows: int
    shift: int


def softmax_dropout(
    scores: Tensor,
    mask: Tensor | None,
    draws: Tensor | None,
    threshold: int,
    scale: float,
    key_rows: Tensor | None = None,
    keys: Rows | None = None,
    values: Rows | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return softmax(scores + mask) after dropout, what `softmax_dropout_backward` needs, and the
    sums of the first by row, `(B, H, Q, R)`, if `values` is given.

    Args:
        scores: `(B, H, Q, K)`.
        mask: added to the scores, broadcastable to them.
        draws: uniform int16 numbers, one for each score, which is kept if its number is at least
            `threshold`; None is no dropout.
        scale: of what is kept.
        key_rows: `(B, H, Q, R)`, added to the scores by row.
        keys, values: the rows of the pairs in `key_rows`, and in the sums.
    """
    B, H, Q, K = scores.shape
    scores = scores.contiguous()
    out = torch.empty_like(scores)
    saved = out if draws is None else torch.empty_like(scores)
    sums = None if values is None else scores.new_zeros(B, H, Q, values.num_rows)
    if key_rows is not None:
        key_rows = key_rows.contiguous()
    steps = (ctypes.c_long * 3)()
    if mask is not None:
        mask = mask.to(scores.dtype).expand(B, H, Q, K)
        if mask.stride(-1) != 1:
            mask = mask.contiguous()
        steps[:] = list(mask.stride()[:3])
    inputs = scores, key_rows, _pointer(keys), mask, steps, draws, threshold, scale
    counts = B * H, H, Q, K
    _call("softmax_forward", *inputs, out, saved, sums, _pointer(values), *counts)
    return out, saved, sums


def softmax_dropout_backward(
    grad: Tensor,
    saved: Tensor,
    scale: float,
    sum_grads: Tensor | None = None,
    keys: Rows | None = None,
    values: Rows | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the scores and of `key_rows` for those of the probabilities after
    dropout and of their sums."""
    *batch, Q, K = saved.shape
    grad, out = grad.contiguous(), torch.empty_like(saved)
    if sum_grads is not None:
        sum_grads = sum_grads.contiguous()
    key_grads = None if keys is None else saved.new_zeros(*batch, Q, keys.num_rows)
    inputs = grad, sum_grads, _pointer(values), saved, scale
    counts = saved.numel() // (Q * K), Q, K
    _call("softmax_backward", *inputs, out, key_grads, _pointer(keys), *counts)
    return out, key_grads


def cross_entropy(
    logits: Tensor, targets: Tensor, confidence: float, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return log Σ exp(logits) and the log probability of the target, `(N,)` each, in float32.

    Args:
        logits: `(N, V)`, contiguous; with `replace` they become the probabilities, that of the
            target less `confidence`.
        targets: `(N,)` int64.

    Raises:
        IndexError: if a target is no column.
    """
    N, V = logits.shape
    if N and not 0 <= int(targets.min()) <= int(targets.max()) < V:
        raise IndexError(f"targets must be from 0 to {V - 1}")
    log_sums, log_probs = logits.new_empty(2, N, dtype=torch.float32).unbind()
    _call("cross_entropy", logits, targets, confidence, replace, log_sums, log_probs, N, V)
    return log_sums, log_probs


def dropout(x: Tensor, draws: Tensor, threshold: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return `x` after dropout, and which elements were kept, a bit each as `kernels.c` says; for
    the other arguments see `softmax_dropout`."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    kept = torch.empty(-(-x.numel() // _GROUP), 1, _GROUP // 8, dtype=torch.uint8)
    _call("dropout_forward", x, draws, threshold, scale, out, kept, x.numel())
    return out, kept


def dropout_backward(grad: Tensor, kept: Tensor, scale: float) -> Tensor:
    """Return the gradient of `x` for that of the result."""
    if torch.is_grad_enabled() or not serves(grad):  # for the gradient of a gradient
        bits = kept >> torch.arange(8, dtype=torch.uint8)[:, None] & 1
        return (grad * bits.flatten()[: grad.numel()].view(grad.shape)).mul_(scale)
    grad = grad.contiguous()
    out = torch.empty_like(grad)
    _call("dropout_backward", grad, kept, scale, out, grad.numel())
    return out


def attend_few(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, rows: Tensor | None = None
) -> Tensor:
    """Return softmax(q k^T / sqrt(E) + mask) v for few queries, as in decoding: `(N, Q, H, E)`.

    Args:
        q: `(N, H, Q, E)`, E a multiple of `LANES`.
        k, v: `(M, H, K, E)`.
        mask: `(N, 1, 1, K)`, added to the scores.
        rows: `(K, N)` int32: where in keys and values row n finds its j-th; by default, row n.
    """
    N, H, Q, E = q.shape
    K = k.shape[2]
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    steps = (ctypes.c_long * 9)(*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    if mask is not None:
        mask = mask.to(q.dtype).expand(N, 1, 1, K).contiguous()
    if rows is not None:
        rows = rows.contiguous()
    out = q.new_empty(N, Q, H, E)
    _call("attend_few", q, k, v, steps, rows, mask, E**-0.5, out, N, H, Q, K, E)
    return out


def best_continuations(
    logits: Tensor, sums: Tensor, forced: Tensor, count: int, never: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the `count` best sums of log-probabilities of each sentence, best first, `(A, count)`,
    -inf where there are no more, and their columns, beam · V + token. Among equals, the lower
    column comes first.

    Args:
        logits: `(A · B, V)` of the B beams of each of A sentences; the softmax is over all V.
        sums: `(A, B)` float32: the log-probabilities of the beams.
        forced: `(A,)` int64: the only token that may follow, or -1.
        never: tokens that never follow.
    """
    (A, B), V = sums.shape, logits.shape[-1]
    logits, sums = logits.contiguous(), sums.contiguous()
    best, columns = sums.new_empty(A, count), forced.new_empty(A, count)
    arguments = forced, *never, best, columns, A, B, V, count
    _call("best_continuations", logits, sums, *arguments)
    return best, columns


def panels(weight: Tensor) -> Tensor:
    """Return a float32 weight `(N, K)` in the layout that `linear` reads."""
    N, K = weight.shape
    out = weight.new_empty(-(-N // LANES) * LANES, K)
    _call("lay_out_panels", weight.contiguous(), out, N, K)
    return out


def linear(x: Tensor, panels: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Return x W^T + b, `(…, N)`, with the negative ones 0 if `relu`. A row has the same bits
    whichever rows are next to it.

    Args:
        x: `(…, K)` float32.
        panels: of W `(N, K)`.
        bias: `(N,)`.
    """
    x, (*batch, K), (N,) = x.contiguous(), x.shape, bias.shape
    out = x.new_empty(*batch, N)
    _call("linear", x, panels, bias, relu, out, out.numel() // N, N, K)
    return out


def _pointer(rows: Rows | None) -> Any:
    return None if rows is None else (ctypes.c_long * 2)(*rows)


def _call(name: str, first: Tensor, *arguments: object) -> None:
    arguments = first, *arguments, torch.get_num_threads()
    pointers = (x.data_ptr() if isinstance(x, Tensor) else x for x in arguments)
    _function(name, first.dtype)(*pointers)


@cache
def _function(name: str, dtype: torch.dtype) -> Any:
    """Return a kernel, with the types of its arguments as in the source: a call takes 4 µs in place
    of the 7 that it takes with a type made for each number."""
    function = getattr(_library(dtype), name)
    signature = re.search(rf"^void {name}\((.*?)\)", _SOURCE.read_text(), re.DOTALL | re.MULTILINE)
    assert signature is not None
    function.argtypes = [
        ctypes.c_void_p if "*" in x else ctypes.c_float if "float" in x else ctypes.c_long
        for x in signature[1].split(",")
    ]
    function.restype = None
    return function


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the kernels for `dtype`, compiled once for each user and processor; None where they
    cannot be compiled."""
    if sys.platform != "linux":
        return None
    flags = [*_FLAGS, *_DTYPES[dtype]]
    try:
        # The processor, because of `native`: a home may be shared between machines.
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        processor = cpuinfo.partition("\n\n")[0].partition("flags")[2]
        name = hashlib.sha256(f"{_SOURCE.read_text()}{flags}{processor}".encode()).hexdigest()
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "shapeshift"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder} belongs to another user")
        path = folder / f"kernels-{name[:32]}.so"
        with suppress(OSError):  # not there, or damaged
            return ctypes.CDLL(str(path))
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            built = Path(temporary, path.name)
            compiler = shlex.split(os.environ.get("CC") or "cc")
            command = [*compiler, *flags, "-o", str(built), str(_SOURCE), "-lm"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
            built.replace(path)
        return ctypes.CDLL(str(path))
    except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
        log.info("attention is computed without compiled kernels: %s", error)
        return None
