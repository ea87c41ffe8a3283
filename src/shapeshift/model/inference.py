"""Weights for translation: in the type of the matrix products, laid out for few rows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache

import torch
from torch import Tensor, nn

from .attention import Attention
from .layers import FeedForward
from .transformer import Transformer

Tensors = tuple[Tensor, ...]


def has_bf16_products() -> bool:
    """Return whether oneDNN multiplies bf16 on this CPU (on x86, from AVX-512 on). Otherwise
    PyTorch does, number by number: 9 to 77 times slower than float32 (docs/benchmarks.md)."""
    is_available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return bool(is_available and torch.ops.mkldnn._is_mkldnn_bf16_supported())


class BlockedLinear(nn.Module):
    """x W^T + b in bf16 on a CPU. W is laid out in blocks, as oneDNN's products need it, once;
    `F.linear` does so in each call, and takes 1.3 to 1.8 times as long for 8 rows on a processor
    with AMX (`benchmarks/linear.py --precision bf16`).

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

    @staticmethod
    def serves(weight: Tensor, dtype: torch.dtype) -> bool:
        """Return whether PyTorch and the processor have it for products of `weight` in `dtype`."""
        return (
            (dtype, weight.device.type) == (torch.bfloat16, "cpu")
            and has_bf16_products()
            and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        )

    def forward(self, x: Tensor) -> Tensor:
        """`(…, K)` -> `(…, N)`."""
        x = x.to(torch.bfloat16).contiguous()  # it reads other strides wrongly
        out: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self.weight, self.bias, self.activation, [], ""
        )
        return out


def copy_for_inference(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode whose matrix products read weights in `dtype`; for use under
    autocast to it, if it is not the model's own.

    Without gradients, autocast would cast each weight again in every call. In bf16 on a CPU they
    are laid out as `BlockedLinear` says. In float32 a weight `(N, K)` lies in memory as `(K, N)`:
    MKL multiplies 8 rows with it 1.1 to 2.3 times as fast, 32 rows 1.2 to 1.5 times, and large
    products as fast as before (`benchmarks/linear.py`). Sums have another order in both, so that
    results may differ by rounding.

    Everything else is shared with `model`: norms, embeddings, what positions learn.
    """
    memo: dict[int, object] = {id(x): x for x in (*model.parameters(), *model.buffers())}

    def cast(weight: Tensor) -> nn.Parameter:
        weight = weight.detach().to(dtype)
        if dtype == torch.float32 and weight.ndim == 2 and weight.device.type == "cpu":
            weight = weight.t().contiguous().t()
        return nn.Parameter(weight, requires_grad=False)

    for module in (*model.encoder.modules(), *model.decoder.modules()):
        products: Tensors = ()
        if isinstance(module, Attention):
            products = (module.in_weight, module.in_bias, module.out.weight, module.out.bias)
        elif isinstance(module, FeedForward):
            products = tuple(x for y in (module.inner, module.outer) for x in (y.weight, y.bias))
        memo |= {id(weight): cast(weight) for weight in products}
    copy = deepcopy(model, memo).eval()
    # A table of its own, for the embedding's may be the same one and stays as it is.
    size, dim = model.output.weight.shape
    copy.output = nn.Embedding(size, dim, _weight=cast(model.output.weight))
    if model.output_bias is not None:
        copy.output_bias = cast(model.output_bias)
    if BlockedLinear.serves(model.output.weight, dtype):
        _use_blocks(copy)
    return copy


def _use_blocks(model: Transformer) -> None:
    model.projection = BlockedLinear(model.output.weight, model.output_bias)
    for module in [*model.encoder.modules(), *model.decoder.modules()]:
        if isinstance(module, Attention):
            module.projections = _projections(module.in_weight.chunk(3), module.in_bias.chunk(3))
            module.register_module("out", BlockedLinear(module.out.weight, module.out.bias))
        elif isinstance(module, FeedForward):
            inner, outer, activation = module.inner, module.outer, "none"
            if isinstance(module.activation, nn.ReLU):
                activation, module.activation = "relu", nn.Identity()
            module.register_module("inner", BlockedLinear(inner.weight, inner.bias, activation))
            module.register_module("outer", BlockedLinear(outer.weight, outer.bias))


def _projections(weights: Tensors, biases: Tensors) -> Callable[..., Tensor]:
    """Return what `Attention.projections` says; each part is laid out when it is first needed."""

    @cache
    def linear(first: int, last: int) -> BlockedLinear:
        return BlockedLinear(torch.cat(weights[first:last]), torch.cat(biases[first:last]))

    return lambda x, first, last: linear(first, last)(x)
