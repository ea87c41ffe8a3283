"""Relative position biases as in T5 (Raffel et al. 2020)."""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor, nn

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError

from .base import Representation


class T5(Representation):
    """A learned bias for each head and each bucket, a range of distances (Raffel et al. 2020,
    section 2.1).

        e_ij = q_i k_j^T / sqrt(E) + b[bucket(j - i), h]

    With n buckets per direction, each distance below n/2 has its own bucket. Larger distances share
    the other n/2, whose borders grow geometrically: bucket n/2 + m begins at the first distance d
    with

        d >= (n/2) · (max_distance / (n/2))^(m / (n/2)),

    and the last one has no upper limit. In an encoder, half of all buckets are for keys on the
    right; in a decoder, all are for keys on the left. The borders are computed in whole numbers, so
    that a rounded logarithm never changes a bucket.

    T5 uses this in self-attention only (its cross-attention has no positions), with one set of
    biases for all encoder layers and one for all decoder layers. Differs from T5 in the scale
    1 / sqrt(E), which T5 moves into its initial weights.

    Adds a trained number for each range of distances to the scores. Choose it for relative
    positions at little extra cost, or to continue training a T5.

    Args:
        dim: D.
        num_heads: H.
        num_buckets: for both directions together; a multiple of 4.
        max_distance: where a bucket after the last one would begin.
        causal: attention is causal, so that all buckets are for keys on the left.

    Raises:
        ShapeshiftError: if the buckets cannot be split, or `max_distance` is not larger than the
            distances that have their own bucket.
    """

    places = ("self",)
    share_layers = True  # as in the paper

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        causal: bool = False,
    ):
        super().__init__()
        # The same limits with and without `causal`: one setting serves encoder and decoder.
        if num_buckets < 4 or num_buckets % 4:
            raise ShapeshiftError(f"num_buckets must be 4, 8, 12, …, got {num_buckets}")
        if max_distance <= num_buckets // 2:
            raise ShapeshiftError(
                f"max_distance must be more than half of num_buckets={num_buckets},"
                f" got {max_distance}"
            )
        self.dim, self.num_heads, self.num_buckets = dim, num_heads, num_buckets
        self.causal = self.causal_only = causal
        self.max_distance = max_distance
        # Distances beyond max_distance are in the last bucket of their direction.
        self.limits = -max_distance, 0 if causal else max_distance
        borders = _borders(num_buckets if causal else num_buckets // 2, max_distance)
        # No buffer: `to_empty`, and `load_state_dict(assign=True)` of a model on the meta device,
        # allocate buffers without values, and this would be one that no checkpoint has.
        self._borders = torch.tensor(borders, device="cpu")
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.weight, std=dim**-0.5)  # as in the released code

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        borders = self._borders.to(distances.device)
        if distances.device.type != "meta" and not kernels.is_traced():
            self._borders = borders  # there for the next call
        buckets = torch.bucketize(distances.abs(), borders, right=True)
        if not self.causal:
            buckets = buckets + (distances > 0) * (len(borders) + 1)
        # Each head's biases are contiguous, as fused attention kernels require. The gradient of a
        # number is the sum of those of its pairs, thousands, for which bfloat16 is too coarse.
        return self.weight.to(dtype).t()[:, buckets]  # (H, …)


def _borders(num_buckets: int, max_distance: int) -> list[int]:
    """Return the first distance of each bucket of one direction, from bucket 1 on."""
    near = num_buckets // 2
    # d >= near · (max / near)^(m / near), both sides to the power of near
    far = [
        bisect_left(range(max_distance), max_distance**m * near ** (near - m), key=near.__rpow__)
        for m in range(near)
    ]
    return [*range(1, near), *far]
