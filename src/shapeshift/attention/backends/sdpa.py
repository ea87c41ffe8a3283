"""The backend `sdpa`: `torch.nn.functional.scaled_dot_product_attention`, with everything that is
added to the scores in its mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from shapeshift import kernels
from shapeshift.attention.call import Call, scaled
from shapeshift.positions.base import total_bias

from .reference import causal_mask, in_steps

FUSED_FROM = {torch.bfloat16: 512, torch.float32: 64, torch.float64: 64}
"""Keys from which PyTorch's fused kernel beats matmul + softmax on a CPU."""

LOW = -1e5
"""A number of a mask below which float32 has too few digits for a sum of scores next to it: there,
gradients are off by 0.3 %."""

ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""PyTorch's kernels but for cuDNN's, which makes a plan for each new shape: where lengths vary,
that takes several times as long as the training step."""


def refuses(call: Call) -> str | None:
    if call.mixes:
        return "the position adds to the output by probabilities, which it does not return"
    if call.device != "cpu":
        return None
    # Its kernels for a CPU have no dropout and no gradient of a bias: with them PyTorch computes
    # in separate steps, which keep more memory than ours, and a fixed bias slows it down.
    if call.dropout_p or call.biased or call.widens:
        return "on a CPU it has no fused kernel for dropout, a bias, or values of another width"
    # Where it is compiled, there is one graph for all lengths.
    fewest = FUSED_FROM.get(call.inputs[0].dtype, 0)
    if not call.compiled and call.Q != 1 and fewest > call.K:
        return f"with fewer than {fewest} keys its kernel for a CPU is slower than reference"
    # It keeps log Σ exp(scores), in which the sum is lost next to a large number: gradients of rows
    # that have only such, as of padding in transformers, would be K times too large. An exported
    # program can be trained, too, unless it was exported without gradients.
    mask = call.mask if call.wants_gradients else None
    if mask is not None and call.traced:
        return "its gradients are wrong in rows of low numbers alone, which a graph does not show"
    if mask is not None:
        highest = mask if call.causal or not call.K else mask.amax(-1)
        if bool(((highest < LOW) & (highest > float("-inf"))).any()):
            return "its gradients are wrong in rows of low numbers alone; hide keys by -inf"
    return None


def run(call: Call) -> Tensor:
    q, k, v, mask = call.heads()
    p, num_keys = call.dropout_p, k.shape[2]
    is_triangle = call.causal and mask is None and not call.biased
    # Compared only where it matters: an exported program would refuse lengths that compare
    # differently. A boolean of Python, for sizes in a graph are symbols.
    if is_triangle and num_keys != call.Q:
        is_triangle = False
    if call.causal and not is_triangle:
        triangle = causal_mask(call.Q, num_keys, q.dtype, q.device)
        mask = triangle if mask is None else mask + triangle
    blind = None
    if mask is not None:  # its kernels differ in what a query gets that may see nothing
        blind = (mask == float("-inf")).all(-1, keepdim=True)
        mask = mask.masked_fill(blind, 0.0)
    bias = total_bias(call.position, scaled(q), call.pos_q, call.pos_k) if call.biased else None
    if bias is not None:
        mask = bias if mask is None else bias + mask
    if mask is not None:
        mask = mask.to(q.dtype)
        if mask.stride(-1) != 1:  # which no fused kernel of a GPU takes
            mask = mask.contiguous()
    # Its output has the order of the query's strides, in which a kernel for a CPU does not look for
    # it: where queries overlap in memory, another dimension may come after E.
    if any(n > 1 and step < call.E for n, step in zip(q.shape[:3], q.stride()[:3], strict=True)):
        q = q.contiguous()
    options: dict[str, Any] = {"dropout_p": p, "is_causal": is_triangle}
    out: Tensor
    if call.device == "cpu" and call.wants_gradients and not call.traced:
        # Its gradients in bf16 refuse rows that overlap in memory.
        k, v = (x if x.stride(2) >= call.E else x.contiguous() for x in (k, v))
        out = _Attention.apply(q, k, v, mask, options)  # type: ignore[no-untyped-call]
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return call.finish(out if blind is None else out.masked_fill(blind, 0.0))


class _Attention(torch.autograd.Function):
    """PyTorch's fused attention without dropout, with second derivatives. PyTorch's kernel for a
    CPU has none, so the steps of `reference` compute them."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, ctx.options = inputs
        with torch.enable_grad():
            own: list[Any] = [
                x if x is None else x.detach().requires_grad_(x.requires_grad) for x in tensors
            ]
            q, k, v, mask = own
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **ctx.options)
        ctx.own, ctx.out = own, out
        ctx.save_for_backward(*tensors)
        return out.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if kernels.needs_steps(grad):

            def steps(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
                return in_steps(scaled(q), k, v, [mask], causal=ctx.options["is_causal"])[0]

            return *kernels.differentiate(steps, ctx.saved_tensors, [grad]), None
        wanted = [x for x in ctx.own if x is not None and x.requires_grad]
        found = iter(torch.autograd.grad(ctx.out, wanted, grad, retain_graph=True))
        grads = [next(found) if x is not None and x.requires_grad else None for x in ctx.own]
        return *grads, None
