"""The backend `triton`: attention with a table by distance on a GPU (`attention/gpu.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift.attention.call import Call
from shapeshift.positions.pairs import Table

MAX_ROWS = 512
"""Rows of a table for which a GPU's kernel has registers."""


def refuses(call: Call) -> str | None:
    position = call.position
    if not call.has_triton:
        return "it needs an NVIDIA GPU from Ampere on, Triton, and fp32, bf16 or fp16"
    if not (call.biased or call.mixes):
        return "the position adds nothing by distance"
    if position.acts("bias") and position.acts("query_bias"):
        return "it takes one table for the scores, and here are a bias and vectors"
    if call.opaque:
        return (
            f"{call.opaque[0]} is overridden or hooked, and it reads descriptions by distance alone"
        )
    if position.acts("bias") and position.limits is None:
        return "the kind has no limits, beyond which its distances are clipped"
    if call.dropout_p:
        return "it has no dropout of attention; set the dropout to 0"
    if call.Q < 2:
        return "for a single query PyTorch's own steps are faster"
    if call.inputs[0].dtype == torch.float64 or call.E not in (16, 32, 64, 128):
        return f"its kernels take no heads of {call.E} channels in {call.dtype}"
    if call.mask is not None:
        if call.mask.requires_grad:
            return "the mask needs a gradient"
        if call.mask.shape[1:] != (1, 1, call.K):
            return "the mask is more than one number for each key"
    found = {(x.low, x.vectors.shape[1]) for x in position.distance_vectors() if x is not None}
    if position.acts("bias") and position.limits is not None:
        low, high = position.limits
        found.add((low, high - low + 1))
    if len(found) > 1:
        return "the tables for keys and for values have different distances"
    if max(num_rows for _, num_rows in found) > MAX_ROWS:
        return f"a table has more than {MAX_ROWS} distances"
    return None


def run(call: Call) -> Tensor:
    from shapeshift.attention.gpu import attend_by_tables

    q, k, v, mask = call.heads()
    at = mask, call.pos_q, call.pos_k
    return call.finish(attend_by_tables((q, k, v), _tables(call), *at, causal=call.causal))


def _tables(call: Call) -> tuple[Table | None, Table | None]:
    """Return the tables for the scores and for the output."""
    position = call.position
    keys, values = position.distance_vectors()
    if position.acts("bias") and position.limits is not None:
        low, high = position.limits
        distances = torch.arange(low, high + 1, device=call.inputs[0].device)
        keys = Table(position.bias_at(distances, torch.float32), low)
    return keys if call.biased else None, values if call.mixes else None
