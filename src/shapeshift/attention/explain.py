"""Which backend serves, and why those before it do not."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from shapeshift.positions import Representation

from .backends import BACKENDS, reason
from .call import Call
from .packing import Packing


class Explanation(NamedTuple):
    """Result of `explain`; its text has one line for each backend that was asked."""

    backend: str
    """The name of the backend that serves."""
    reasons: dict[str, str]
    """Name of each backend before it → why it does not."""

    def __str__(self) -> str:
        width = max(map(len, BACKENDS))
        lines = [f"{name:{width}}  no: {why}" for name, why in self.reasons.items()]
        return "\n".join([*lines, f"{self.backend:{width}}  serves"])


def explain(call: Call | Representation, **options: Any) -> Explanation:
    """Return which backend serves, and why each one before it does not.

        print(explain(position, device="cuda", dtype=torch.bfloat16, train=True))

    Args:
        call: one attention, or a kind, for which `example` makes one.
        options: of `example`, with a kind.
    """
    if isinstance(call, Representation):
        call = example(call, **options)
    elif options:
        raise TypeError(f"a Call takes no options, got {', '.join(options)}")
    reasons = {}
    for name in BACKENDS:
        if (why := reason(name, call)) is None:
            break
        reasons[name] = why
    return Explanation(name, reasons)


def example(
    position: Representation,
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    train: bool = False,
    decode: bool = False,
    compiled: bool = False,
    with_kernels: bool | None = None,
    length: int = 64,
    dropout_p: float = 0.0,
    num_heads: int = 8,
    head_dim: int = 64,
) -> Call:
    """Return a call as the layers of a model make it, for `explain`. The machine is imaginary: a
    GPU is NVIDIA's, from Ampere on, with Triton.

    Args:
        position: acts in the attention.
        device: `cpu` or `cuda`; it need not be here.
        dtype: of the heads.
        train: whether gradients are wanted. Sentences are packed, as in training.
        decode: whether this is a step of decoding, with a cache.
        compiled: whether `torch.compile` compiles it.
        with_kernels: whether a CPU has compiled kernels; by default as here.
        length: tokens of each of two sentences.
        dropout_p: of the probabilities.
        num_heads, head_dim: H and E, unless `position` was built for others.
    """
    built: dict[str, int] = {}
    for kind in position.kinds():
        built |= {x: y for x, y in vars(kind).items() if x in ("num_heads", "head_dim")}
    H, E = built.get("num_heads", num_heads), built.get("head_dim", head_dim)
    Q = 1 if decode else length
    pos = torch.arange(length)[None]
    rows = torch.zeros(2 * Q, 3 * H * E, dtype=dtype, requires_grad=train)
    inputs = [rows + 0 if train else rows.view(2, Q, -1)]
    packing = Packing(torch.arange(2 * Q), (2, Q)) if train else None
    options: dict[str, Any] = {
        "num_heads": H,
        "dropout_p": dropout_p,
        "causal": position.causal_only,
        "packing": packing and (packing, packing),
        "cache": _Cache() if decode else None,
        "pos_new": pos[:, -Q:],
    }
    call, on_gpu = Call(inputs, position, pos[:, -Q:], pos, **options), device == "cuda"
    has_kernels = call.has_kernels if with_kernels is None else with_kernels
    call.device, traced = device, compiled or call.traced
    vars(call).update(
        compiled=compiled,
        traced=traced,
        has_kernels=has_kernels and not on_gpu and not traced,
        has_triton=on_gpu and dtype != torch.float64,
        has_flex=on_gpu,
        has_varlen=on_gpu,
        wants_gradients=train,
        trains_position=train and any(x.requires_grad for x in position.parameters()),
    )
    return call


class _Cache:
    """Stands for a cache of `model.cache`; on a GPU, it has room for all tokens from the start."""

    mask = None

    def append(self, keys: Any, values: Any) -> Any:
        raise NotImplementedError

    attend = append
