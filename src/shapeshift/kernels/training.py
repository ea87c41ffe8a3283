"""The loss and dropout, each in one pass over memory; PyTorch takes several."""

from __future__ import annotations

import torch
from torch import Tensor

from . import library, serves
from .library import Argument


def cross_entropy(
    logits: Tensor, targets: Tensor, confidence: float, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return log Σ exp(logits) and the log probability of the target, `(N,)` each, in float32.

    Args:
        logits: `(N, V)`, contiguous; with `replace` they become the probabilities, that of the
            target less `confidence`.
        targets: N integers.

    Raises:
        IndexError: if a target is no column.
    """
    N, V = logits.shape
    dtype = logits.dtype
    targets = (targets.long() if targets.dtype == torch.int32 else targets).contiguous()
    log_sums, log_probs = logits.new_empty(2, N, dtype=torch.float32).unbind()
    try:
        library.call(
            "cross_entropy",
            dtype,
            16 * N * V,
            Argument("logits", logits, dtype, (N, V)),
            Argument("targets", targets, torch.int64, (N,)),
            confidence,
            replace,
            Argument("log_sums", log_sums, torch.float32, (N,)),
            Argument("log_probs", log_probs, torch.float32, (N,)),
            *(N, V, torch.get_num_threads()),
        )
    except IndexError as error:
        raise IndexError(f"targets must be from 0 to {V - 1}") from error
    return log_sums, log_probs


def dropout(
    x: Tensor,
    seed: int,
    threshold: int,
    scale: float,
    relu: bool = False,
    residual: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `x`, or max(0, x), after dropout, and which elements were kept, a bit each as
    `training.c` says; for the other arguments see `shapeshift.attention.dropout`.

    Args:
        residual: float32, of the same shape: its sum with `x` is returned, in float32.
    """
    x, residual = x.contiguous(), None if residual is None else residual.contiguous()
    out = torch.empty_like(x if residual is None else residual)
    kept = x.new_empty(_num_bytes(x), dtype=torch.uint8)
    library.call(
        "dropout",
        x.dtype,
        x.numel(),
        Argument("x", x, x.dtype, x.shape),
        Argument("residual", residual, torch.float32, x.shape),
        *(seed, threshold, scale, relu),
        Argument("out", out if residual is None else None, x.dtype, x.shape),
        Argument("total", None if residual is None else out, torch.float32, x.shape),
        Argument("kept", kept, torch.uint8, kept.shape),
        *(x.numel(), torch.get_num_threads()),
    )
    return out, kept


def dropout_backward(grad: Tensor, kept: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Return the gradient of `x`, in its `dtype`, given the gradient of the result."""
    if torch.is_grad_enabled() or not serves(grad):  # for the gradient of a gradient
        bits = kept[:, None] >> torch.arange(8, dtype=torch.uint8, device=kept.device) & 1
        return (grad * bits.flatten()[: grad.numel()].view(grad.shape)).mul_(scale).to(dtype)
    grad = grad.contiguous()
    out = torch.empty_like(grad, dtype=dtype)
    same = grad.dtype == dtype
    library.call(
        "dropout_backward",
        dtype,
        grad.numel(),
        Argument("out", out, dtype, grad.shape),
        Argument("grad", grad if same else None, dtype, grad.shape),
        Argument("total", None if same else grad.float(), torch.float32, grad.shape),
        Argument("kept", kept, torch.uint8, (_num_bytes(grad),)),
        *(scale, grad.numel(), torch.get_num_threads()),
    )
    return out


def _num_bytes(x: Tensor) -> int:
    """Return the size of one bit an element, in whole words of 16."""
    return -(-x.numel() // 16) * 2
