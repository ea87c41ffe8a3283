"""The same choices in two passes, where rounding would change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

LARGEST = torch.argmax, Tensor.argmax
SEVERAL = torch.topk, Tensor.topk


class Choices(TorchFunctionMode):
    """Repeats the choices of `topk` and `argmax` of a first pass in all later ones.

        choices = Choices()
        full = choices.run(model, ids)
        rounded = choices.run(model.bfloat16(), ids)

    In a mixture of experts, a token gets the experts with the highest scores. If two scores are
    close, rounding changes which is higher, and the output jumps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first: list[Tensor] = []
        self.next: Iterator[Tensor] | None = None  # None in the first pass

    def run(self, forward: Callable[..., Tensor], *args: Any) -> Tensor:
        """Return `forward(*args)`, which is one pass."""
        with self:
            out = forward(*args)
        self.next = iter(self.first)
        return out

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func not in (*LARGEST, *SEVERAL):
            return out
        own = out if func in LARGEST else out[1]
        if self.next is None:
            self.first.append(own)
            return out
        chosen = next(self.next, own)
        if chosen.shape != own.shape:  # the later pass has other choices
            return out
        if func in LARGEST:
            return chosen
        scores = args[0] if args else kwargs["input"]
        dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
        return torch.return_types.topk((scores.gather(dim, chosen), chosen))
