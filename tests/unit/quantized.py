"""Weights as quantization makes them: a tensor subclass, in whose memory no float32 stands."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

aten: Any = torch.ops.aten


class Quantized(Tensor):
    """A weight `(N, K)` of whole numbers with a scale. Only `F.linear` reads it."""

    @staticmethod
    def __new__(cls, numbers: Tensor, scale: Tensor) -> Quantized:
        make: Any = Tensor._make_wrapper_subclass
        return make(cls, numbers.shape, dtype=scale.dtype)

    def __init__(self, numbers: Tensor, scale: Tensor):
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Tensor], *_: Any) -> Quantized:
        return cls(inner["numbers"], inner["scale"])

    def dequantized(self) -> Tensor:
        return self.numbers.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            x, weight, *bias = args
            return F.linear(x, weight.dequantized(), *bias)
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.detach.default, aten.clone.default, aten._to_copy.default):
            return cls(args[0].numbers, args[0].scale)
        raise NotImplementedError(f"{func} of a quantized weight")


def quantize(layer: nn.Linear) -> nn.Linear:
    """Quantize the weight of a layer to 8 bits; return a layer with the same numbers in floats."""
    weight = layer.weight.detach()
    scale = weight.abs().amax() / 127
    quantized = Quantized((weight / scale).round().to(torch.int8), scale)
    plain = nn.Linear(layer.in_features, layer.out_features)
    plain.load_state_dict({"weight": quantized.dequantized(), "bias": layer.bias.detach()})
    layer.weight = nn.Parameter(quantized, requires_grad=False)
    return plain
