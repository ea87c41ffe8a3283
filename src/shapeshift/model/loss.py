"""Label-smoothed cross-entropy over real tokens only."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention.call import has_varlen
from shapeshift.attention.packing import Packing
from shapeshift.kernels import processor, training
from shapeshift.positions.checks import describe, is_integer

from .transformer import PAD, Transformer, check_padding

CHUNK = 1024
"""Tokens whose logits exist at one time on a CPU, and at least on other devices."""

LOGITS = 1 << 27
"""Logits that exist at one time on other devices, where few large products take less time."""

_MULTIPLE = 64
"""Packed rows in half precision: few numbers of rows, so that products are not compiled anew."""


@dataclass
class Loss:
    """Sums over the target tokens of a batch, in nats."""

    smoothed: Tensor
    """What training lowers: scalar, with gradient."""
    nll: Tensor
    """Negative log-likelihood: scalar, without gradient; exp(nll / num_tokens) is perplexity."""
    num_tokens: int


def label_smoothed_loss(
    model: Transformer,
    source: Tensor,
    target_input: Tensor,
    target_output: Tensor,
    epsilon: float,
    real: tuple[Tensor, Tensor] | None = None,
) -> Loss:
    """Return the summed loss −(1 − ε) log p(y) − ε/V Σ_v log p(v) (Szegedy et al. 2016, section 7).

    Padding is taken out before the output projection, so no logits are made for it; on a CPU and on
    NVIDIA's GPUs from Ampere on, out of the layers as well (`Packing`).

    Args:
        model: in the mode the caller chose.
        source: `(B, S)` ids, each row a sentence and `</s>`, padded on the right.
        target_input: `(B, T)` ids, `<s>` and a sentence.
        target_output: `(B, T)` ids to predict, a sentence and `</s>`, padded on the right.
        epsilon: ε, of label smoothing, in [0, 1).
        real: where the tokens of the flattened `source` and `target_output` are that are not
            padding; see `Batch.real`. By default they are looked for, for which a GPU waits, and
            ids and padding are checked.

    Raises:
        ShapeshiftError: for ε out of its range, targets of different shapes, an id that is in no
            vocabulary, such as −100, a row without a token, padding left of one, or other padding
            in `target_input` than in `target_output`.
    """
    if not 0 <= epsilon < 1:
        raise ShapeshiftError(f"epsilon must be at least 0 and below 1, got {epsilon}")
    batch = source, target_input, target_output
    fits = target_input.shape == target_output.shape and len(source) == len(target_output)
    if not fits or source.ndim != 2 or target_input.ndim != 2 or not all(map(is_integer, batch)):
        raise ShapeshiftError(
            "source must be integers (B, S), target_input and target_output (B, T), <s> before the"
            f" sentence and </s> behind it, got {', '.join(map(describe, batch))}"
        )
    sides = source, target_output
    if real is None:
        names = "source", "target_input", "target_output"
        tables = model.source.tokens, model.target.tokens, model.output
        for name, ids, table in zip(names, batch, tables, strict=True):
            wrong = ids[(ids < 0) | (ids >= table.num_embeddings)]
            if len(wrong):
                raise ShapeshiftError(
                    f"{name} must have ids from 0 to {table.num_embeddings - 1}, {PAD} for padding,"
                    f" got {int(wrong[0])}"
                )
        check_padding("source", source)
        check_padding("target_output", target_output)
        if ((target_input == PAD) != (target_output == PAD)).any():
            raise ShapeshiftError(
                f"target_input must have padding ({PAD}) where target_output has some, and nowhere"
                " else"
            )
        real_source, real_target = ((ids.flatten() != PAD).nonzero().squeeze(1) for ids in sides)
        real = real_source, real_target
    targets = target_output.flatten().index_select(0, real[1]).long()  # (N,)
    padded = any(len(where) < ids.numel() for where, ids in zip(real, sides, strict=True))
    has_kernels = has_varlen(source.device)  # which spare a mask, without padding as well
    if model.packs and (has_kernels or (padded and source.device.type == "cpu")):
        multiple = _MULTIPLE if torch.is_autocast_enabled("cpu") and not has_kernels else 1
        source_packing, target_packing = (
            Packing(where, (ids.shape[0], ids.shape[1]), multiple)
            for where, ids in zip(real, sides, strict=True)
        )
        # (N, D) and some rows without a target
        hidden = model(source, target_input, (source_packing, target_packing))
    else:
        hidden = model(source, target_input).flatten(0, 1).index_select(0, real[1])
    smoothed, nll = linear_cross_entropy(
        hidden, model.output.weight, targets, epsilon, model.output_bias
    )
    return Loss(smoothed, nll, targets.numel())


def linear_cross_entropy(
    hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the summed label-smoothed loss and the summed negative log-likelihood. The logits
    `hidden @ weight.T (N, V)` are the largest tensor of a training step. The forward pass computes
    them and their gradient some rows at a time, so that neither exists as a whole.

    Args:
        hidden: `(N, D)`, or more rows, of which the last have no target and are left out.
        weight: `(V, D)`.
        targets: `(N,)` ids.
        epsilon: ε of label smoothing.
        bias: of the logits, `(V,)`.

    Raises:
        ShapeshiftError: if there are more targets than hidden states, targets are not integers, or
            tensors are on several devices.
    """
    fits = targets.ndim == 1 and hidden.ndim == weight.ndim == 2 and len(targets) <= len(hidden)
    if not hidden.device == weight.device == targets.device:
        raise ShapeshiftError(
            "hidden states, weights and targets must be on one device, got"
            f" {hidden.device}, {weight.device} and {targets.device}; move them with .to(...)"
        )
    if not fits or not is_integer(targets) or not len(weight):
        raise ShapeshiftError(
            "targets must be (N,) integers for at least as many rows of hidden states (N, D) and"
            f" one token, got {describe(targets)}, {describe(hidden)}, weights {describe(weight)}"
        )
    if bias is not None:  # as one more column, which every row multiplies by 1
        hidden = F.pad(hidden, (0, 1), value=1.0)
        weight = torch.cat((weight, bias.unsqueeze(1)), dim=1)
    # Inside `forward`, `needs_input_grad` is true under `torch.no_grad`, too.
    wanted = [torch.is_grad_enabled() and x.requires_grad for x in (hidden, weight)]
    both: tuple[Tensor, Tensor] = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, weight, targets.long(), epsilon, wanted
    )
    return both


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        epsilon: float,
        wanted: list[bool],
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = weight.dtype
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        exact = torch.promote_types(weight.dtype, torch.float32)
        if device == "cpu" and dtype == torch.bfloat16 and not processor.multiplies_bf16_faster():
            dtype = exact
        smoothing = epsilon / weight.shape[0]
        cast = weight.to(dtype)
        grad_hidden = torch.zeros_like(hidden) if wanted[0] else None
        grad_weight = torch.zeros_like(weight) if wanted[1] else None
        count = len(targets)
        chunk = CHUNK if device == "cpu" else max(CHUNK, LOGITS // len(weight))
        space = cast.new_empty(min(chunk, len(hidden)), weight.shape[0])
        nll = torch.zeros((), dtype=exact, device=hidden.device)
        log_sum = torch.zeros_like(nll)
        for begin in range(0, count, chunk):
            rows = hidden[begin : begin + chunk].to(dtype)
            logits = torch.mm(rows, cast.t(), out=space[: len(rows)])  # (chunk, V)
            target = targets[begin : begin + chunk, None]
            num = len(target)
            log_sums, log_probs = _softmax(logits[:num], target, 1 - epsilon, exact, any(wanted))
            log_sum += log_sums.sum()
            nll -= log_probs.sum()
            # `logits` are the gradient now, but for −ε/V, the same for each token, added below.
            logits[num:] = 0
            if grad_hidden is not None:
                grad_hidden[begin : begin + chunk] = logits @ cast
            if grad_weight is not None:
                if dtype == grad_weight.dtype:  # in one step
                    grad_weight.addmm_(logits.t(), rows)
                else:
                    grad_weight += logits.t() @ rows
        smoothed = (1 - epsilon) * nll + epsilon * log_sum
        if smoothing:
            weight_sum, hidden_sum = weight.sum(0, dtype=exact), hidden[:count].sum(0, dtype=exact)
            smoothed -= smoothing * (hidden_sum @ weight_sum)  # ε/V Σ logits
            if grad_hidden is not None:
                grad_hidden[:count] -= smoothing * weight_sum.to(grad_hidden.dtype)
            if grad_weight is not None:
                grad_weight -= smoothing * hidden_sum.to(grad_weight.dtype)
        ctx.save_for_backward(grad_hidden, grad_weight, hidden, weight, targets)
        ctx.epsilon = epsilon
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        *made, hidden, weight, targets = ctx.saved_tensors
        if torch.is_grad_enabled():  # for the gradient of a gradient
            run = partial(_smoothed, targets=targets, epsilon=ctx.epsilon)
            return *kernels.differentiate(run, (hidden, weight), [grad]), None, None, None
        grads = (x if x is None else x * grad.to(x.dtype) for x in made)
        return *grads, None, None, None


def _smoothed(hidden: Tensor, weight: Tensor, targets: Tensor, epsilon: float) -> Tensor:
    """Return the smoothed loss of `linear_cross_entropy`, in plain PyTorch."""
    exact = torch.promote_types(weight.dtype, torch.float32)
    logits = hidden[: len(targets)].to(exact) @ weight.to(exact).t()
    return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=epsilon)


def _softmax(
    logits: Tensor, target: Tensor, confidence: float, exact: torch.dtype, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return log Σ exp(logits) and the log probability of the target, `(N,)` each, in `exact`.

    Args:
        logits: `(N, V)`; they are overwritten, with `replace` by the probabilities, that of the
            target less `confidence`.
        target: ids `(N, 1)`.
    """
    if kernels.serves(logits):
        with suppress(MemoryError):  # before anything is written
            return training.cross_entropy(logits, target.contiguous(), confidence, replace)
    if kernels.serves_on_gpu(logits):
        from shapeshift.kernels import gpu

        return gpu.cross_entropy(logits, target.contiguous(), confidence, replace)
    log_probs = logits.log_softmax(-1, dtype=exact)
    picked = log_probs.gather(1, target)
    log_sums = logits.gather(1, target).to(exact) - picked
    if replace:
        torch.exp(log_probs, out=logits)
        logits.scatter_(1, target, (picked.exp() - confidence).to(logits.dtype))
    return log_sums.squeeze(1), picked.squeeze(1)
