"""Weights for translation: in the type of the matrix products, laid out for few rows."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from .attention import Attention
from .layers import FeedForward
from .transformer import Transformer


def copy_for_inference(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode whose matrix products read weights in `dtype`; for use under
    autocast to it, if it is not the model's own.

    Without gradients, autocast would cast each weight again in every call. In float32 a weight
    `(N, K)` lies in memory as `(K, N)`: MKL multiplies 8 rows with it 1.1 to 2.3 times as fast, 32
    rows 1.2 to 1.5 times, and large products as fast as before (`benchmarks/linear.py`). Its sums
    have another order, so that results may differ by rounding.

    Everything else is shared with `model`: norms, embeddings, what positions learn.
    """
    memo: dict[int, object] = {id(x): x for x in (*model.parameters(), *model.buffers())}

    def cast(weight: Tensor) -> nn.Parameter:
        weight = weight.detach().to(dtype)
        if dtype == torch.float32 and weight.ndim == 2 and weight.device.type == "cpu":
            weight = weight.t().contiguous().t()
        return nn.Parameter(weight, requires_grad=False)

    for module in (*model.encoder.modules(), *model.decoder.modules()):
        products: tuple[Tensor, ...] = ()
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
    return copy
