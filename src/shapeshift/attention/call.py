"""The description of one attention, which every backend reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.positions import Representation, pairs
from shapeshift.positions.relative import common_lag

from .masks import additive
from .packing import Packing

T = TypeVar("T")


class Cache(Protocol):
    """Interface of a cache of keys and values; see `model.cache`."""

    @property
    def mask(self) -> Tensor | None: ...
    def append(self, *new: Tensor) -> tuple[Tensor, ...]: ...


class _Fact(Generic[T]):
    """A property of which an object may have its own value; torch.compile has no cached ones."""

    def __init__(self, ask: Callable[[Call], T]):
        self.ask = ask

    def __get__(self, call: Call | None, _: type[Call]) -> T:
        return cast(T, self) if call is None else self.ask(call)


class Call:
    """One attention: queries, keys, values, and everything that influences the result.

    Args:
        inputs: heads `(B, H, Q|K, E)` of queries, keys and values; or projections of tokens
            `(B, Q|K, ·)`, packed `(N, ·)`, side by side in the last dimension: `[qkv]`, `[q, kv]`
            or `[q, k, v]`, with H · E channels each. Queries are not scaled.
        position: its hooks are called, or what they are derived from is read.
        pos_q, pos_k: positions `(B|1, Q|K)`; those of all keys, also of those in a cache.
        pos_new: of the keys in `inputs`; by default `pos_k`.
        mask: broadcastable to `(B, H, Q, K)`, a float that is added to the scores.
        dropout_p: of the probabilities; 0 in evaluation.
        causal: whether query i sees only the keys up to i + K - Q, so that the last sees all.
        num_heads: H of projections.
        rotated: whether `position.rotate` has been called.
        packing: of the sides of the queries and of the keys, whose projections are packed.
        cache: keeps keys, values and state; those of `inputs` are new.
        state: what `position.state` has returned for the keys in `inputs`, `(B, K, F)`.

    Attributes:
        B, H, Q, K, E: the sizes of padded heads; E is the width of values.
        dtype: of the products, that of autocast where it is enabled.
        rotates, biased, rescores, mixes: whether the position rotates heads, adds to scores,
            changes them by `score`, or adds to the output.
        wants_gradients: whether any tensor given needs one.
        compiled, traced: whether this is compiled; whether PyTorch has to see each step, because
            it is compiled, traced or transformed by `torch.func`.
        is_block: whether this is a part of a longer call, see `backends.blocked`.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        position: Representation,
        pos_q: Tensor,
        pos_k: Tensor,
        mask: Tensor | None = None,
        *,
        dropout_p: float = 0.0,
        causal: bool = False,
        num_heads: int = 0,
        rotated: bool = False,
        packing: tuple[Packing, Packing] | None = None,
        cache: Cache | None = None,
        state: Tensor | None = None,
        pos_new: Tensor | None = None,
        is_block: bool = False,
    ):
        self.inputs, self.position, self.pos_q, self.pos_k = inputs, position, pos_q, pos_k
        self.mask, self.dropout_p, self.packing, self.cache = mask, dropout_p, packing, cache
        self.pos_new, self.is_block = pos_k if pos_new is None else pos_new, is_block
        self.state = state
        first = inputs[0]
        if first.ndim == 4:
            self.B, self.H, self.Q = first.shape[:3]
            self.E = inputs[-1].shape[3]
        else:
            width = inputs[-1].shape[-1] // (4 - len(inputs))
            self.H, self.E = num_heads, width // num_heads
            self.B = packing[0].num_sentences if packing else first.shape[0]
            self.Q = packing[0].width if packing else first.shape[1]
        self.K = pos_k.shape[1]
        self.causal = causal and self.Q > 1
        self.device = first.device.type
        acting = position.acting()
        self.rotates = not rotated and "rotate" in acting
        self.biased = "bias" in acting or "query_bias" in acting
        self.rescores = position.acts("score")
        self.mixes = "value_bias" in acting
        self._rotated: tuple[Tensor, Tensor, Tensor] | None = None

    @property
    def dtype(self) -> torch.dtype:
        return pairs.autocast_dtype(self.inputs[0])

    # What is so here, for these inputs. `explain` sets them as they are on other machines.

    @_Fact
    def compiled(self) -> bool:
        return torch.compiler.is_compiling()

    @_Fact
    def traced(self) -> bool:
        return kernels.is_traced()

    @_Fact
    def has_kernels(self) -> bool:
        """Whether the kernels in C serve."""
        return kernels.serves(self.inputs[0]) and kernels.is_available(self.dtype)

    @_Fact
    def has_triton(self) -> bool:
        """Whether our kernels in Triton serve."""
        if self.compiled:
            return kernels.compiles_for(self.device)
        return kernels.serves_on_gpu(self.inputs[0])

    @_Fact
    def has_flex(self) -> bool:
        """Whether PyTorch compiles FlexAttention."""
        return self.device == "cuda" and kernels.HAS_TRITON

    @_Fact
    def has_varlen(self) -> bool:
        """Whether PyTorch has kernels for packed sentences: on NVIDIA's GPUs from Ampere on. They
        have no second derivative, so `sdpa_kernel(SDPBackend.MATH)` switches them off, as it does
        PyTorch's others."""
        return has_varlen(self.inputs[0].device)

    @_Fact
    def wants_gradients(self) -> bool:
        if not torch.is_grad_enabled():
            return False
        given = (*self.inputs, self.mask, self.state)
        return any(x is not None and x.requires_grad for x in given) or self.trains_position

    @property
    def widens(self) -> bool:
        """Whether queries and keys have another width than values, as an overridden or hooked
        `rotate` may make them."""
        own = self.rotates and not self.position.derives("rotate")
        if not own and self.inputs[0].ndim < 4:
            return False
        q, *_, v = self.rotated() if own else self.inputs
        return q.shape[-1] != v.shape[-1]

    @property
    def opaque(self) -> list[str]:
        """The hooks that add something, which no backend can compute from what describes them:
        they are overridden or hooked, and may need all queries and keys at once."""
        hooks = "bias", "query_bias", "value_bias"
        return [x for x in hooks if self.position.acts(x) and not self.position.derives(x)]

    @_Fact
    def trains_position(self) -> bool:
        """Whether a parameter of the position needs a gradient."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in self.position.parameters())

    def rotated(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the given heads `(B, H, Q|K, E)`, unpacked and rotated. `rotate` is called
        once."""
        if self._rotated is None:
            inputs = list(self.inputs)
            if self.packing:
                sides = self.packing[0], *self.packing[1:] * 2
                inputs = [side.unpack(x) for side, x in zip(sides, inputs, strict=False)]
            q, k, v = split_heads(inputs, self.H)
            if self.rotates:
                q, k = self.position("rotate", q, k, self.pos_q, self.pos_new)
            self._rotated = q, k, v
        return self._rotated

    def heads(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return heads `(B, H, Q|K, E)` and the mask, ready for the scores: unpacked, rotated, and
        with the cached keys and values, to which the new ones are appended, as is the state."""
        q, k, v = self.rotated()
        mask = None if self.packing and self.packing[1].is_full else self.mask
        if self.cache is not None:
            new = (k, v) if self.state is None else (k, v, self.state.unsqueeze(1))
            k, v, *states = self.cache.append(*new)
            self.state = states[0].squeeze(1) if states else None
            mask = self.cache.mask if mask is None else mask
        if mask is not None and mask.dtype != self.dtype:  # else all scores would be cast
            mask = additive(mask, self.dtype)
        return q, k, v, mask

    @cached_property
    def lag(self) -> int | None:
        """Difference between the first query's and the first key's position, if both are
        consecutive; see `common_lag`."""
        return common_lag(self.pos_q, self.pos_k)

    def finish(self, out: Tensor) -> Tensor:
        """Turn the output of heads `(B, H, Q, E)` into a backend's result: `(B, Q, H, E)`, or `(N,
        H, E)` if inputs are packed."""
        out = out.transpose(1, 2)
        if not self.packing:
            return out
        packed = self.packing[0].pack(out.flatten(2))
        return packed.view(-1, self.H, self.E)


def has_varlen(device: torch.device) -> bool:
    """See `Call.has_varlen`."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return device.type == "cuda"  # compiled layers are packed where it has been asked before
    enabled: Any = torch.backends.cuda.flash_sdp_enabled
    return _has_flash(device) and bool(enabled())


@cache
def _has_flash(device: torch.device) -> bool:
    if torch.version.hip or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def split_heads(rows: Sequence[Tensor], num_heads: int, num_parts: int = 3) -> list[Tensor]:
    """Return heads `(B, H, T, E)`, or `(1, H, N, E)`, of `num_parts` projections. Each tensor of
    `rows` holds one or more projections side by side."""
    if rows[0].ndim == 4:
        return list(rows)
    heads: list[Tensor] = []
    for n, x in enumerate(rows):
        count = num_parts - n if n + 1 == len(rows) else 1
        x = x.unsqueeze(0) if x.ndim == 2 else x
        parts = x.view(*x.shape[:2], count, num_heads, x.shape[2] // (count * num_heads))
        heads += [part.transpose(1, 2) for part in parts.unbind(2)]
    return heads


def scaled(q: Tensor) -> Tensor:
    """Return q / sqrt(E)."""
    product: Tensor = q * q.shape[-1] ** -0.5
    return product
