"""Kinds of one's own: each replaces one hook, and reads and returns what is unusual in memory."""

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from shapeshift.positions import Representation


class Convolved(Representation):
    """`inputs` reads its arguments transposed, as a convolution over tokens does, here over those
    before: padding has no meaning."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.convolution = nn.Conv1d(dim, dim, 3, groups=dim)

    def inputs(self, q, k, v, pos_q, pos_k):
        return q + self.convolution(F.pad(q.transpose(1, 2), (2, 0))).transpose(1, 2), k, v


class InHeads(Representation):
    """`inputs` reads its arguments as heads."""

    def __init__(self, *, dim: int, num_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, dim // num_heads))

    def inputs(self, q, k, v, pos_q, pos_k):
        heads = k.unflatten(-1, (len(self.weight), -1)).transpose(1, 2)
        return q, k + (heads * self.weight).transpose(1, 2).flatten(2), v


class InPlace(Representation):
    """`inputs` changes its arguments in place, which are one tensor in self-attention."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def inputs(self, q, k, v, pos_q, pos_k):
        q.mul_(self.weight)
        k[:, :1].add_(self.weight)
        return q, k, v


class Turned(Representation):
    """`rotate` reads views, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(head_dim // 2))

    def rotate(self, q, k, pos_q, pos_k):
        return self._turn(q, pos_q), self._turn(k, pos_k)

    def _turn(self, x, pos):
        a, b = x.transpose(1, 2).unflatten(-1, (2, -1)).unbind(-2)  # (B, T, H, E / 2)
        angle = (pos[:, :, None] * self.weight)[:, :, None]
        out = torch.cat((a * angle.cos(), a * angle.sin()), -1)
        out[..., : a.shape[-1]].sub_(b * angle.sin())
        out[..., a.shape[-1] :].add_(b * angle.cos())
        return out.transpose(1, 2)


class Biased(Representation):
    """`bias` changes what it has looked up in place, and returns a transposed view of it."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 9, num_heads))

    def bias(self, pos_q, pos_k, *, dtype):
        bias = self.table[pos_q[:, :, None] % 9, pos_k[:, None] % 9].permute(0, 3, 1, 2)
        bias[..., :1].mul_(0.5)
        return bias.to(dtype)


class BiasedByQueries(Representation):
    """`query_bias` reads queries transposed, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))

    def query_bias(self, q, pos_q, pos_k):
        bias = (self.table[pos_k % 9].unsqueeze(1) @ q.mT).mT
        bias.add_((pos_k / 9)[:, None, None].to(bias.dtype))
        return bias


class BiasedValues(Representation):
    """`value_bias` reads probabilities transposed, and changes its own result in place."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))

    def value_bias(self, probs, pos_q, pos_k):
        out = (self.table.to(probs.dtype)[pos_k % 9].unsqueeze(1).mT @ probs.mT).mT
        return out.mul_(2.0)


class Embedded(Representation):
    """`embed` changes its argument in place, through a view."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def embed(self, x, pos):
        x.transpose(1, 2).mul_(self.weight[:, None])
        return x.add_(pos.unsqueeze(-1) / 9)


OWN: dict[str, type[Representation]] = {
    each.__name__.lower(): each
    for each in (
        Convolved, InHeads, InPlace, Turned, Biased, BiasedByQueries, BiasedValues, Embedded,
    )
}  # fmt: skip


def build(kind: type[Representation], **sizes: Any) -> Representation:
    """Build a kind with those of the sizes that it takes."""
    taken = inspect.signature(kind).parameters
    return kind(**{name: size for name, size in sizes.items() if name in taken})
