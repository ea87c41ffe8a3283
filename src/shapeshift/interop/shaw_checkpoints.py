"""Relative attention (Shaw et al. 2018) that OpenNMT-py or fairseq2 has trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Shaw

from .torch_nn import MultiheadAttention

LIBRARIES = {
    "OpenNMT-py": {
        "q": "linear_query", "k": "linear_keys", "v": "linear_values", "out": "final_linear",
        "keys": "relative_positions_embeddings", "values": "relative_positions_embeddings",
    },
    "fairseq2": {
        "q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "output_proj",
        "keys": "sdpa.rel_k_embed", "values": "sdpa.rel_v_embed",
    },
}  # fmt: skip
"""Library → what it calls the projections and the two tables."""


@torch.no_grad()
def shaw_attention(
    weights: Mapping[str, Tensor],
    num_heads: int,
    *,
    prefix: str = "",
    max_right: int | None = None,
) -> MultiheadAttention:
    """Return a layer of self-attention with the weights of OpenNMT-py (`max_relative_positions`) or
    fairseq2 (`ShawRelativePositionSDPA`), which computes the same, batch first.

        attention = shaw_attention(checkpoint["model"], 8, prefix="encoder.transformer.0.self_attn")

    OpenNMT-py has one table for keys and values. fairseq2 may clip at another distance on the right
    than on the left; here the table is then as long as the larger one, with its last row repeated.

    Args:
        weights: of a checkpoint, by name.
        num_heads: H.
        prefix: of the attention's names in it.
        max_right: the clipping distance on the right, where it differs from the left.

    Raises:
        ShapeshiftError: there are no such weights, or H does not fit them.
    """
    own = {
        name.removeprefix(prefix).removeprefix("."): weight
        for name, weight in weights.items()
        if name.startswith(prefix)
    }
    known = {f"{names['keys']}.weight": names for names in LIBRARIES.values()}
    names = next((names for table, names in known.items() if table in own), None)
    if names is None:
        tables = " nor ".join(known)
        raise ShapeshiftError(f"neither {tables} is among the weights that begin with {prefix!r}")
    for part in (*"qkv", "out"):
        if f"{names[part]}.weight" not in own:
            raise ShapeshiftError(f"{prefix}{names[part]}.weight is not among the weights")
    projections = [own[f"{names[part]}.weight"] for part in "qkv"]
    dim = projections[0].shape[1]
    table = _symmetric(own[f"{names['keys']}.weight"], max_right)
    if table.shape[1] * num_heads != dim:
        raise ShapeshiftError(
            f"the table has vectors of {table.shape[1]}, so that D={dim} are"
            f" {dim // table.shape[1]} heads, got num_heads={num_heads}"
        )
    values = own.get(f"{names['values']}.weight")
    values = values if values is None else _symmetric(values, max_right)
    shaw = Shaw(
        num_heads=num_heads,
        head_dim=table.shape[1],
        max_distance=len(table) // 2,
        add_to="keys" if values is None else "both",
        share_tables=names["keys"] == names["values"],
    )
    has_bias = f"{names['q']}.bias" in own
    attention = MultiheadAttention(dim, num_heads, bias=has_bias, batch_first=True, position=shaw)
    attention.in_proj_weight.copy_(torch.cat(projections))
    attention.out_proj.weight.copy_(own[f"{names['out']}.weight"])
    if has_bias:
        attention.in_proj_bias.copy_(torch.cat([own[f"{names[part]}.bias"] for part in "qkv"]))
        attention.out_proj.bias.copy_(own[f"{names['out']}.bias"])
    for ours, theirs in ((shaw.keys, table), (shaw.values, values)):
        if ours is not None and theirs is not None:
            ours.copy_(theirs)
    return attention


def _symmetric(table: Tensor, max_right: int | None) -> Tensor:
    """Return rows for the distances −k … k of a table, which may end at `max_right`."""
    right = len(table) // 2 if max_right is None else max_right
    left = len(table) - 1 - right
    if min(left, right) < 0 or (max_right is None and left != right):
        raise ShapeshiftError(
            f"a table of {len(table)} rows, got max_right={max_right}; give the clipping distance"
            " on the right"
        )
    k = max(left, right)
    return table[torch.arange(-k, k + 1, device=table.device).clamp(-left, right) + left]
