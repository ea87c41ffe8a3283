"""Weights for translation, in the dtype of the matrix products and in a layout for few rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import torch
from torch import Tensor, nn

from shapeshift import kernels
from shapeshift.kernels import decoding
from shapeshift.kernels.processor import has_bf16_products

from .attention import Attention
from .layers import FeedForward
from .linear import can_fuse
from .transformer import Transformer


class BlockedLinear(nn.Module):
    """x W^T + b in bf16 on a CPU, with W in the blocks that oneDNN's products need.

    `F.linear` makes these blocks in each call, and takes 1.3 to 1.8 times as long for 8 rows on a
    processor with AMX (`benchmarks/linear.py --precision bf16`).

    Args:
        weight: `(N, K)`.
        bias: `(N,)`.
        activation: of the result: `none` or `relu`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none"):
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16), None)
        self.bias = None if bias is None else bias.to(torch.bfloat16)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """`(…, K)` -> `(…, N)`."""
        x = x.to(torch.bfloat16).contiguous()  # it reads other strides wrongly
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, self.activation, [], ""
        )
        return out


class PanelLinear(nn.Module):
    """x W^T + b in float32 on a CPU, by `decoding.linear`, with W in its layout.

    It is faster than PyTorch's product for the few rows of a decoding step, and as fast for many
    (`benchmarks/linear.py`). The arguments are those of `BlockedLinear`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str = "none"):
        super().__init__()
        self.panels = decoding.panels(weight.detach())
        self.bias = weight.new_zeros(len(weight)) if bias is None else bias.detach().contiguous()
        self.relu = activation == "relu"

    def forward(self, x: Tensor) -> Tensor:
        """`(…, K)` -> `(…, N)`."""
        return decoding.linear(x.float(), self.panels, self.bias, self.relu)


def linear_for(weight: Tensor, dtype: torch.dtype) -> type[BlockedLinear | PanelLinear] | None:
    """Return the class for products with `weight` in `dtype` on this machine, or None."""
    if weight.device.type != "cpu":
        return None
    if dtype == torch.bfloat16 and has_bf16_products():
        return BlockedLinear if hasattr(torch.ops.mkldnn, "_linear_pointwise") else None
    return PanelLinear if dtype == torch.float32 and kernels.is_available(dtype) else None


def copy_for_inference(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode whose matrix products read weights in `dtype`; for use under
    autocast to it, if it is not the model's own.

    Without gradients, autocast would cast each weight again in every call. In bf16 on a CPU they
    are laid out as `BlockedLinear` says, in float32 as `PanelLinear` does. Sums have another order
    in both, so that results may differ by rounding.

    Everything else is shared with `model`: norms, embeddings, what positions learn.
    """
    memo: dict[int, object] = {id(x): x for x in (*model.parameters(), *model.buffers())}

    def cast(weight: Tensor) -> nn.Parameter:
        return nn.Parameter(weight.detach().to(dtype), requires_grad=False)

    for module in (*model.encoder.modules(), *model.decoder.modules()):
        if type(module) in (Attention, nn.Linear):
            memo |= {id(x): cast(x) for x in module.parameters(recurse=False)}
    copy = deepcopy(model, memo).eval()
    # A table of its own, for the embedding's may be the same one and stays as it is.
    size, dim = model.output.weight.shape
    copy.output = nn.Embedding(size, dim, _weight=cast(model.output.weight))
    if model.output_bias is not None:
        copy.output_bias = cast(model.output_bias)
    if linear := linear_for(model.output.weight, dtype):
        _use(linear, copy)
    return copy


def _use(linear: type[BlockedLinear | PanelLinear], model: Transformer) -> None:
    model.projection = linear(model.output.weight, model.output_bias)
    for module in [*model.encoder.modules(), *model.decoder.modules()]:
        if isinstance(module, Attention):
            module.projections = _projections(linear, module)
            names = ["out"]
        elif isinstance(module, FeedForward):
            names = ["inner", "outer"]
        else:
            continue
        for name in names:
            layer: nn.Linear = getattr(module, name)
            if not can_fuse(layer):  # hooks see it, or it computes something else
                continue
            activation = "none"
            if name == "inner" and can_fuse(module.get_submodule("activation")):
                activation, module.activation = "relu", nn.Identity()
            module.register_module(name, linear(layer.weight, layer.bias, activation))


def _projections(
    linear: type[BlockedLinear | PanelLinear], attention: Attention
) -> Callable[..., Tensor]:
    """Replacement for `Attention.projections`; lays out each part when it is first used."""
    weights, biases = attention.in_weight.chunk(3), attention.in_bias.chunk(3)

    @cache
    def part(first: int, last: int) -> BlockedLinear | PanelLinear:
        return linear(torch.cat(weights[first:last]), torch.cat(biases[first:last]))

    return lambda x, first, last: part(first, last)(x)
