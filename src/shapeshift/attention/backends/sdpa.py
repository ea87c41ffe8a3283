"""The backend `sdpa`: `torch.nn.functional.scaled_dot_product_attention`, with all that is added to
the scores as its mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend

from shapeshift.attention.call import Call, scaled
from shapeshift.positions.base import total_bias

from .reference import causal_mask

FUSED_FROM = {torch.bfloat16: 512, torch.float32: 64, torch.float64: 64}
"""Keys from which PyTorch's fused kernel beats matmul + softmax on a CPU."""

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
    if call.dropout_p or call.biased:
        return "on a CPU it has no fused kernel for dropout or a bias"
    if call.inputs[0].dtype == torch.float64 and torch.is_grad_enabled():
        return "in float64 its fused kernel has no second derivative"
    # Where it is compiled, there is one graph for all lengths.
    fewest = FUSED_FROM.get(call.inputs[0].dtype, 0)
    if not call.compiled and call.Q != 1 and fewest > call.K:
        return f"with fewer than {fewest} keys its kernel for a CPU is slower than reference"
    return None


def run(call: Call) -> Tensor:
    q, k, v, mask = call.heads()
    p, num_keys = call.dropout_p, k.shape[2]
    if call.causal and mask is None and not call.biased and num_keys == call.Q:
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return call.finish(out)
    if call.causal:
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
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
    return call.finish(out if blind is None else out.masked_fill(blind, 0.0))
