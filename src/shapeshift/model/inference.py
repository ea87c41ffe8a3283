"""Weights in half precision for translation."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from .attention import Attention
from .layers import FeedForward
from .transformer import Transformer


def cast_for_inference(model: Transformer, dtype: torch.dtype) -> Transformer:
    """Return a copy in evaluation mode whose matrix products read weights in `dtype`, for use under
    autocast to it. Results are the same, bit for bit: without gradients, autocast casts each weight
    again in every call.

    Everything else is shared with `model`: norms, embeddings, what positions learn.
    """
    memo: dict[int, object] = {id(x): x for x in (*model.parameters(), *model.buffers())}

    def cast(weight: Tensor) -> nn.Parameter:
        return nn.Parameter(weight.detach().to(dtype), requires_grad=False)

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
