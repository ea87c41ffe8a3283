"""Steps of decoding: attention of few queries, the best continuations of hypotheses, and products
with weights that are laid out once."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from . import LANES, MAX_KEYS, library
from .library import Argument, wrong_size


def decode_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    rows: Tensor | None = None,
    keeps: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return softmax(q k^T / sqrt(E) + bias + mask) v for a few queries, `(N, Q, H, E)`; with
    `keeps`, also the probabilities `(N, H, Q, K)`.

    Args:
        q: `(N, H, Q, E)`, E a multiple of `LANES`.
        k, v: `(M, H, K, E)`.
        mask: `(N|1, 1, 1, K)`.
        bias: `(N|1, H|1, Q|1, K|1)`.
        rows: `(K, N)` int32: where in keys and values row n finds its j-th; by default, row n.

    Raises:
        IndexError: if `rows` has what is no row.
    """
    N, H, Q, E = q.shape
    M, _, K, _ = k.shape
    fits = k.shape == v.shape == (M, H, K, E) and (M >= N or rows is not None)
    if not fits or E % LANES or K > MAX_KEYS:
        shapes = [tuple(x.shape) for x in (q, k, v)]
        wanted = f"(N, H, Q, E) and (M, H, K, E), E a multiple of {LANES}"
        raise wrong_size("queries, keys and values", shapes, wanted)
    dtype = q.dtype
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if mask is not None:
        mask = mask.to(dtype).expand(N, 1, 1, K).contiguous()
    if bias is not None:
        bias = bias.to(dtype).expand(N, H, Q, K)
        bias = bias if bias.stride(-1) == 1 else bias.contiguous()
    of_bias = (0, 0, 0) if bias is None else bias.stride()[:3]
    steps = (ctypes.c_long * 13)(*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *of_bias)
    out = q.new_empty(N, Q, H, E)
    probs = q.new_empty(N, H, Q, K) if keeps else None
    library.call(
        "decode_step",
        dtype,
        2 * out.numel() * K,
        Argument("queries", q, dtype),
        Argument("keys", k, dtype),
        Argument("values", v, dtype),
        steps,
        Argument("rows", None if rows is None else rows.contiguous(), torch.int32, (K, N)),
        Argument("a bias", bias, dtype),
        Argument("a mask", mask, dtype, (N, K)),
        E**-0.5,
        Argument("out", out, dtype, out.shape),
        Argument("probs", probs, dtype, (N, H, Q, K)),
        *(N, H, Q, K, E, M, torch.get_num_threads()),
    )
    return out, probs


def best_continuations(
    logits: Tensor, sums: Tensor, forced: Tensor, count: int, never: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the `count` best sums of log-probabilities of each sentence, best first, `(A, count)`,
    filled with -inf; and their columns, beam · V + token. The lower column wins ties.

    Args:
        logits: `(A · B, V)` of the B beams of each of A sentences; the softmax is over all V.
        sums: `(A, B)` float32: the log-probabilities of the beams.
        forced: `(A,)` int64: the only token that may follow, or -1.
        never: tokens that never follow.

    Raises:
        IndexError: if a forced token is none.
    """
    (A, B), V = sums.shape, logits.shape[-1]
    if count < 1 or V > MAX_KEYS:
        raise wrong_size("continuations", (count,), f"at least 1, of at most {MAX_KEYS} tokens")
    logits, sums = logits.contiguous(), sums.contiguous()
    best, columns = sums.new_empty(A, count), forced.new_empty(A, count)
    library.call(
        "best_continuations",
        logits.dtype,
        16 * A * B * V,
        Argument("logits", logits, logits.dtype, (A, B, V)),
        Argument("sums", sums, torch.float32, (A, B)),
        Argument("forced", forced, torch.int64, (A,)),
        *never,
        Argument("best", best, torch.float32, (A, count)),
        Argument("columns", columns, torch.int64, (A, count)),
        *(A, B, V, count, torch.get_num_threads()),
    )
    return best, columns


def panels(weight: Tensor) -> Tensor:
    """Lay out a float32 weight `(N, K)` for `linear`."""
    N, K = weight.shape
    out = weight.new_empty(-(-N // LANES) * LANES, K)
    library.call(
        "panels",
        torch.float32,
        N * K,
        Argument("weight", weight.contiguous(), torch.float32, (N, K)),
        Argument("panels", out, torch.float32, out.shape),
        *(N, K, torch.get_num_threads()),
    )
    return out


def linear(x: Tensor, panels: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Return x W^T + b, `(…, N)`, or max(0, x W^T + b) with `relu`. The bits of a row do not depend
    on the other rows.

    Args:
        x: `(…, K)` float32.
        panels: of W `(N, K)`.
        bias: `(N,)`.
    """
    x, (*batch, K), (N,) = x.contiguous(), x.shape, bias.shape
    if panels.shape != (-(-N // LANES) * LANES, K):
        wanted = f"(…, {panels.shape[-1]}), as the weight has inputs"
        raise wrong_size("what a linear layer multiplies", x.shape, wanted)
    out = x.new_empty(*batch, N)
    M = math.prod(batch)
    library.call(
        "linear",
        torch.float32,
        M * N * K,
        Argument("x", x, torch.float32, (M, K)),
        Argument("panels", panels, torch.float32, panels.shape),
        Argument("bias", bias, torch.float32, (N,)),
        relu,
        Argument("out", out, torch.float32, (M, N)),
        *(M, N, K, torch.get_num_threads()),
    )
    return out
