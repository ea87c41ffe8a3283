"""What the attentions of a model compute, as their calls of PyTorch show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from shapeshift.attention.recording import recording
from shapeshift.interop.measure import is_rotation, tensors_of

PRODUCTS = torch.matmul, Tensor.matmul, Tensor.__matmul__
SOFTMAX = F.softmax, torch.softmax, Tensor.softmax

MASKED = -1e4
"""Scores below are those of keys that a query does not see."""


@dataclass
class Call:
    """The self-attention of a layer. What was not reached is None.

    Attributes:
        query, key: heads, as they are multiplied.
        scores: of the middle and the last query, what a mask or a bias adds included; without
            products of queries and keys if `is_mask`.
        projected: what linear maps of the layer returned.
    """

    query: Tensor | None = None  # (B, H, T, E)
    key: Tensor | None = None  # (B, H or fewer, T, E)
    scores: Tensor | None = None  # (B|1, H|1, 2, T)
    is_mask: bool = False
    projected: list[Any] = field(default_factory=list)


class Watch(TorchFunctionMode):
    """Records the attentions of a forward pass.

    They are not computed: `F.scaled_dot_product_attention` returns the values, and a softmax gives
    each token itself alone, so that no token gets anything from others.

    Args:
        length: T, a number that is no other size of the model.

    Attributes:
        calls: number of a layer → its first call.
        rotary: modules that return cosines and sines.
    """

    def __init__(self, length: int):
        super().__init__()
        self.length = length
        self.calls: dict[int, Call] = {}
        self.rotary: set[nn.Module] = set()
        self.call: Call | None = None  # of the layer that is running
        self.layer: nn.Module | None = None

    def run(self, model: nn.Module, forward: Callable[[], object]) -> Watch:
        """Call `forward`, which calls `model`; return this watch."""
        heads: Any = getattr(model, "get_output_embeddings", lambda: None)
        head = heads()
        with ExitStack() as hooks:
            for name, part in model.named_modules():
                hooks.enter_context(part.register_forward_hook(self._see))
                path, _, last = name.rpartition(".")
                if last.isdigit() and not any(step.isdigit() for step in path.split(".")):
                    hooks.enter_context(part.register_forward_pre_hook(self._enter))
                    hooks.enter_context(part.register_forward_hook(self._leave(int(last))))
            if head is not None:  # whose logits nobody reads
                hooks.enter_context(head.register_forward_pre_hook(_last_token))
            with self, recording():  # in which our attention computes in steps of PyTorch
                forward()
        return self

    def _enter(self, part: nn.Module, args: Any) -> None:
        if self.call is None:  # a layer may call a numbered module from elsewhere
            self.call, self.layer = Call(), part

    def _leave(self, layer: int) -> Callable[..., None]:
        def hook(part: nn.Module, args: Any, output: Any) -> None:
            if part is not self.layer or self.call is None:
                return
            call, self.call = self.call, None
            if call.query is not None or call.scores is not None:
                self.calls.setdefault(layer, call)  # once, of a layer that is called again

        return hook

    def _see(self, part: nn.Module, args: Any, output: Any) -> None:
        if self.call is not None and isinstance(part, nn.Linear):
            self.call.projected.append(output)
        tensors = tensors_of(output)
        if is_rotation(tensors) and (tensors[-1] != tensors[-1][..., :1, :]).any():
            self.rotary.add(part)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        out = func(*args, **kwargs)
        call = self.call
        if call is None or not isinstance(out, Tensor) or out.ndim != 4:
            return out
        size, length = tuple(out.shape[2:]), self.length
        if func in PRODUCTS and call.query is None and size == (length, length):
            call.query, call.key = args[0], args[1].mT
        with_sink = length, length + 1
        if func in SOFTMAX and call.scores is None and size in ((length, length), with_sink):
            call.scores = self._two(args[0])[..., :length]
            out = torch.eye(*size, dtype=out.dtype).expand_as(out)
        return out

    def _two(self, scores: Tensor) -> Tensor:
        """Return the middle and the last row."""
        return scores[..., [self.length // 2, -1], :]

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Record a call of `F.scaled_dot_product_attention` and return the values."""
        at = query.shape[-2], key.shape[-2]
        if at != (self.length, self.length) or query.ndim != 4:
            given = attn_mask, dropout_p, is_causal
            return F.scaled_dot_product_attention(
                query, key, value, *given, scale=scale, enable_gqa=enable_gqa
            )
        if self.call is not None and self.call.query is None:
            self.call.query, self.call.key, self.call.is_mask = query, key, True
            mask = attn_mask
            if mask is None:
                mask = torch.ones(1, 1, *at, dtype=torch.bool)
                mask = mask.tril() if is_causal else mask
            mask = self._two(mask.expand(*mask.shape[:-2], *at))
            if mask.dtype is torch.bool:
                mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
            self.call.scores = mask
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def _last_token(head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    return (args[0][:, -1:], *args[1:]) if args else None
