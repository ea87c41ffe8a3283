"""The hooks through which a model uses the positions of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook

from shapeshift._system.errors import ShapeshiftError

from . import pairs
from .checks import check_positions, checked, describe, shown
from .pairs import Table
from .relative import by_distance
from .turns import Turn, rotate

AT_ATTENTION = ("inputs", "rotate", "bias", "query_bias", "value_bias", "state", "score")
HOOKS = ("embed", *AT_ATTENTION)

DESCRIBED_BY = {
    "rotate": "turn",
    "bias": "distance_bias",
    "query_bias": "distance_vectors",
    "value_bias": "distance_vectors",
}
"""Hooks that the base class derives, and the method that each of them is derived from."""

PROMISES = {
    "shift_invariant": (*HOOKS, "turn"),
    "position_free_heads": ("rotate", "turn"),
    "head_free_score": ("score",),
    "position_free_score": ("score",),
}
"""The promises that a class may make, and the methods that each promise is about."""

_METHODS = {*HOOKS, *DESCRIBED_BY.values()}

_MODULE_HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has forward or backward hooks, its own (pruning and FSDP register
    such) or global ones."""
    return bool(has_any_global_hook()) or any(  # type: ignore[no-untyped-call]
        getattr(module, name) for name in _MODULE_HOOKS
    )


def is_as_built(*modules: nn.Module) -> bool:
    """Return whether modules are unchanged torch.nn.Linear or ReLU, so that their weights alone say
    what they compute: without hooks, no subclasses (as `torch.nn.utils.parametrize` makes), with
    torch's own `forward`, and without weights of a tensor subclass, which quantization makes."""
    return all(
        type(module) in (nn.Linear, nn.ReLU)
        and not has_hooks(module)
        and "forward" not in vars(module)
        and "_compiled_call_impl" not in vars(module)
        and not any(hasattr(x, "__tensor_flatten__") for x in module._parameters.values())
        for module in modules
    )


class Representation(nn.Module):
    """How a Transformer uses positions; the base class uses none.

    A model calls the hooks `embed`, `inputs`, `rotate`, `bias`, `query_bias`, `value_bias`, `state`
    and `score` at fixed points and knows nothing else. With x a layer's input, W the projections
    and i, j the query and key positions, attention is

        q, k, v  = inputs(x, x, x)                        # what is projected
        Q, K     = rotate(q W^Q, k W^K)                   # the projected heads
        Q        = Q / sqrt(E)
        e_ij     = Q_i K_j^T + bias_ij + query_bias(Q)_ij + mask_ij
        e        = score(e, Q, K, state(x))               # then softmax
        z_i      = sum_j softmax(e)_ij (v W^V)_j + value_bias(softmax(e))_i

    A subclass overrides one method for what it does, the most specific one that can say it, and
    the base class derives the others:

        turn(pos)                pairs of channels rotate          -> rotate
        distance_bias(j - i)     a number for each distance        -> bias
        distance_vectors()       vectors for each distance         -> query_bias, value_bias

    Backends of attention read these descriptions, so that such a kind is fast everywhere. What
    they cannot say, a subclass writes as a hook, in plain PyTorch. A hook that a subclass, an
    object or `register_forward_hook` replaces is obeyed by every backend. By default no hook does
    anything: this class itself is the kind `none`.

    The kind `none`: a decoder with a causal mask can infer positions by itself. An encoder cannot,
    for it reads a set of tokens. Choose it if the order of tokens does not matter.

    Shapes: B batch, Q and K query and key length, H heads, D model width, E = D / H. Positions are
    integer tensors `(B, T)` or `(1, T)`. A representation never receives or builds a mask.

    Attention and models call a hook through the module, `position("bias", pos_q, pos_k, dtype=…)`,
    so that what is registered on the module runs around it: pruning, FSDP, `register_forward_hook`.

    A kind that is built for one D, H or E stores it as `dim`, `num_heads` or `head_dim`, so that an
    attention of another size can raise an error.

    Arguments of a subclass's `__init__` are checked against annotations that are numbers, text,
    booleans, None or a `Literal`.

    Raises:
        ShapeshiftError: for a subclass that overrides `turn`, `distance_bias` or
            `distance_vectors` where a hook that it inherits makes no use of it, or if its `places`
            are unknown, or none of its hooks is called there.
    """

    places: ClassVar[tuple[str, ...]] = ("embedding", "self", "cross")
    """Where this kind can be used: `embedding`, `self` (self-attention), `cross` (encoder-decoder
    attention). The first is the default. Places where no overridden hook is called are removed."""

    share_layers: ClassVar[bool] = False
    """Whether the layers of a stack share one module by default. Used only when shapeshift builds
    the modules of a stack."""

    causal_only: bool = False
    """True if this kind, or this module because it was built with `causal`, does not support keys
    to the right of their query. It then works only in the decoder's self-attention; other places
    raise an error. The flag changes nothing else."""

    shift_invariant: bool = True
    """A promise: adding one number to all positions never changes the model's output. A subclass
    that overrides a hook or `turn` loses it unless it repeats it."""

    position_free_heads: bool = True
    """A promise: `rotate` does the same at all positions, so that other parts of a chain may read
    or rotate these queries. A subclass that overrides `rotate` or `turn` loses it."""

    head_free_score: bool = True
    """A promise: `score` reads neither queries nor keys, so that other parts of a chain may rotate
    them. A subclass that overrides `score` loses it unless it repeats it."""

    position_free_score: bool = True
    """A promise: `score` reads no positions. `shapeshift check` then expects no effect of them. A
    subclass that overrides `score` loses it unless it repeats it."""

    num_axes: int = 1
    """A, how many numbers a position has. With A > 1, positions are `(B|1, T, A)`, integers or
    fractions; a subclass then overrides `turn` or a hook. The models of this package have A = 1."""

    limits: tuple[int, int] | None = None
    """Distances are clipped to these two before `distance_bias`; None leaves them as they are."""

    _derived: ClassVar[dict[str, Any]]
    """The hooks as this class derives them."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        for promise, methods in PROMISES.items():
            owner = next(base for base in cls.__mro__ if promise in vars(base))
            if any(getattr(cls, name) is not getattr(owner, name, None) for name in methods):
                setattr(cls, promise, False)
        for hook, description in DESCRIBED_BY.items():
            is_new = all(
                not hasattr(base, description) or not _overrides(base, description)
                for base in cls.__bases__
            )
            is_own = getattr(cls, hook) is cls._derived[hook] or hook in vars(cls)
            if description in vars(cls) and is_new and not is_own:
                raise ShapeshiftError(
                    f"{cls.__name__} overrides {description}, of which the {hook} that it inherits"
                    f" makes no use; override {hook}"
                )
        if _overrides(cls, "state") and not _overrides(cls, "score"):
            raise ShapeshiftError(
                f"{cls.__name__} overrides state, which `score` alone reads; override score"
            )
        if not isinstance(cls.places, tuple) or not {*cls.places} <= {*Representation.places}:
            raise ShapeshiftError(
                f"places of {cls.__name__} must be a tuple of {', '.join(Representation.places)},"
                f" got {cls.places!r}"
            )
        at_attention = any(
            _overrides(cls, name) for name in (*AT_ATTENTION, *DESCRIBED_BY.values())
        )
        used = ["embedding"] * _overrides(cls, "embed") + ["self", "cross"] * at_attention
        if used:
            places = tuple(place for place in cls.places if place in used)
            if not places:
                raise ShapeshiftError(
                    f"places of {cls.__name__} are {', '.join(cls.places)}, where none of the hooks"
                    f" that it overrides is called; use {' or '.join(used)}"
                )
            cls.places = places

    def acts(self, hook: str) -> bool:
        """Return whether a hook, by its name, may have an effect."""
        return hook in self.acting() if hook in DESCRIBED_BY else not self._is_own(hook)

    def acting(self) -> set[str]:
        """Return which of `rotate`, `bias`, `query_bias` and `value_bias` may have an effect."""
        found = {hook for hook in DESCRIBED_BY if not self._is_own(hook)}
        for hook in ("rotate", "bias"):
            if self._describes(DESCRIBED_BY[hook]):
                found.add(hook)
        if self._describes("distance_vectors"):
            hooks = zip(("query_bias", "value_bias"), self.distance_vectors(), strict=True)
            found.update(hook for hook, table in hooks if table is not None)
        return found

    def derives(self, hook: str) -> bool:
        """Return whether a backend may compute `hook` from the kind's description: nobody has
        replaced the hook, or `forward`, which calls it, or registered a module hook."""
        calls_it = "forward" not in vars(self) and type(self).forward is Representation.forward
        return self._is_own(hook) and calls_it and not has_hooks(self)

    def _is_own(self, hook: str) -> bool:
        # In words that torch.compile traces: in its graphs, a bound method has another function.
        return hook not in vars(self) and getattr(type(self), hook) is self._derived[hook]

    def _describes(self, name: str) -> bool:
        return name in vars(self) or _overrides(type(self), name)

    def forward(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        """Call a hook by name, with the module hooks that are registered on this module."""
        return getattr(self, hook)(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _METHODS and (isinstance(value, nn.Module) or not callable(value)):
            raise ShapeshiftError(
                f"{type(self).__name__}.{name} is a method of positions, and cannot hold a"
                f" {type(value).__name__}; give it another name, and override {name} to use it"
            )
        if name == "parametrizations" and type(value) is nn.ModuleDict:
            value = _Parametrizations()
        super().__setattr__(name, value)

    def kinds(self) -> Iterator[Representation]:
        """Yield this representation itself, or all parts of a chain."""
        yield self

    def max_position(self) -> int | None:
        """Return the highest position that this kind supports, or None if there is no limit.
        Training, translation and configuration checks call this before they start; the hooks check
        positions beyond it themselves."""
        return None

    extra_repr = shown

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Return token embeddings `x (B, T, D)` with position added; `pos (B|1, T)`."""
        return x

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs `(B, Q|K, D)` of the query, key and value projections."""
        return q, k, v

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        """Return how pairs of channels of queries and keys rotate at positions `pos (B|1, T)`;
        `dtype` is that of the heads."""
        raise NotImplementedError

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """Return a bias on the scaled scores for each distance j − i `(…)`, `(H|1, …)`, computed in
        `dtype`, float32 or float64: bfloat16 has no exact distances above 256."""
        raise NotImplementedError

    def distance_vectors(self) -> tuple[Table | None, Table | None]:
        """Return vectors a^K and a^V by distance, either may be None: q_i a^K_ij^T is added to each
        scaled score, and sum_j p_ij a^V_ij to the output."""
        return None, None

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projected query and key heads `(B, H, Q|K, E)`. The queries are not
        scaled yet. An override may return both with another width, by whose square root attention
        then divides."""
        if not self._describes("turn"):
            return q, k
        check_heads(q, k, pos_q, pos_k, self.num_axes)
        turns = self.turns(q, k, pos_q, pos_k)
        return rotate(q, turns[0]), rotate(k, turns[1])

    def turns(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Turn, Turn]:
        """Return the turns of queries and of keys; only E and the dtype of the heads are read."""
        for x in (q, k):
            check_sizes(self, head_dim=x.shape[-1])
        turn_q = self.turn(pos_q, q.dtype)
        turn_k = turn_q if pos_k is pos_q else self.turn(pos_k, k.dtype)
        return turn_q.of_queries(), turn_k.of_keys()

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor | None:
        """Return the bias on the scaled scores that depends on positions only,
        `(B|1, H|1, Q|1, K|1)`, or None; `dtype` is the dtype of the queries."""
        if not self._describes("distance_bias"):
            return None
        return by_distance(self.bias_at, pos_q, pos_k, dtype)  # (B|1, H|1, Q, K)

    def bias_at(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """Return `distance_bias` of clipped distances, computed in float32 at least."""
        if self.limits is not None:
            distances = distances.clamp(*self.limits)
        numbers = self.distance_bias(distances, torch.promote_types(dtype, torch.float32))
        if numbers.shape[1:] != distances.shape:
            raise ShapeshiftError(
                f"what distance_bias of {type(self).__name__} returns must be (H or 1,"
                f" {', '.join(map(str, distances.shape))}), a number for each distance, got"
                f" {tuple(numbers.shape)}"
            )
        return numbers

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return the bias on the scaled scores that depends on queries and positions,
        `(B|1, H|1, Q|1, K|1)`, or None.

        `q (B, H, Q, E)` are the query heads, scaled by 1 / sqrt(E).
        """
        if (table := self.distance_vectors()[0]) is None:
            return None
        check_positions("pos_q", pos_q, q.shape[0], q.shape[2])
        return pairs.query_bias(q, table.vectors, table.rows(pos_q, pos_k))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return the term to add to the attention output, `(B, H, Q, E)`, or None.

        `probs (B, H, Q, K)` are the attention probabilities after dropout, in the dtype of the
        values.
        """
        if (table := self.distance_vectors()[1]) is None:
            return None
        check_heads(probs, probs.mT, pos_q, pos_k)
        return pairs.value_bias(probs, table.vectors, table.rows(pos_q, pos_k))

    def state(self, x: Tensor, pos: Tensor) -> Tensor | None:
        """Return what each token contributes to `score` as a key, `(B, T, F)`, or None.

        `x (B, T, D)` is what keys are projected from, before `inputs`. A cache keeps the state of a
        token with its key; a token never sees others here.
        """
        return None

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        """Return the scores `(B, H, Q, K)` of which the softmax is taken, also in a wider dtype.

        `scores` have all biases and the mask; what is `-inf` stays `-inf`. `q` and `k (B, H, Q|K,
        E)` are the heads after `rotate`, the queries scaled by 1 / sqrt(E). `state (B, K, F)` is
        what `state` has returned for all keys, in the order of the text. In self-attention, the
        queries are the last Q of the keys.
        """
        return scores


Representation._derived = {name: getattr(Representation, name) for name in HOOKS}


def _overrides(cls: type[Representation], name: str) -> bool:
    return getattr(cls, name) is not getattr(Representation, name)


class _Parametrizations(nn.ModuleDict):
    """A ModuleDict for `torch.nn.utils.parametrize` whose entries may be called `keys` and
    `values`, like the dictionary's own methods."""

    def __setitem__(self, key: str, module: nn.Module) -> None:
        self._modules[key] = module


class Encoding(Representation):
    """A kind that gives each position a vector: PE(i) in R^D.

    A subclass defines `encode`. At the embedding, the vector is added to the token embedding; in an
    attention, to the inputs of the projections named in `add_to` (Miyazaki et al. 2024, Table 5).

    Args:
        add_to: the projections whose inputs get the vector in an attention, letters of `qkv`.

    Raises:
        ShapeshiftError: if `add_to` is empty or has another letter; in the hooks, if there is not
            one position for each vector of width D.
    """

    def __init__(self, add_to: str = "qk"):
        super().__init__()
        if not add_to or not set(add_to) <= set("qkv"):
            raise ShapeshiftError(f"add_to must be letters of 'qkv', such as 'qk', got {add_to!r}")
        self.add_to = add_to

    def encode(self, pos: Tensor, like: Tensor) -> Tensor:
        """Return the vectors `(B|1, T, D)` of positions `pos (B|1, T)` in the dtype of `like`."""
        raise NotImplementedError

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self._vectors("pos", pos, x)

    def _vectors(self, name: str, pos: Tensor, x: Tensor) -> Tensor:
        """Return the vectors of positions `pos`, the argument `name`, to add to `x (B, T, D)`."""
        if x.ndim != 3 or not x.is_floating_point():
            raise ShapeshiftError(
                f"{type(self).__name__} adds vectors to floating point of shape (B, T, D), got"
                f" {describe(x)}"
            )
        check_sizes(self, dim=x.shape[2])
        return self.encode(check_positions(name, pos, *x.shape[:2]), x)

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        at_q = self._vectors("pos_q", pos_q, q)
        at_k = at_q if pos_k is pos_q else self._vectors("pos_k", pos_k, k)
        return (
            q + at_q if "q" in self.add_to else q,
            k + at_k if "k" in self.add_to else k,
            v + at_k if "v" in self.add_to else v,
        )


def check_sizes(position: Representation, **sizes: int) -> None:
    """Raise a `ShapeshiftError` if a kind in `position` was built for a `dim`, `num_heads` or
    `head_dim` other than in `sizes`."""
    for kind in position.kinds():
        for name, size in sizes.items():
            built_for = getattr(kind, name, size)
            if built_for != size:
                taken = {each: sizes[each] for each in sizes if hasattr(kind, each)}
                wanted = ", ".join(f"{each}={value}" for each, value in taken.items())
                raise ShapeshiftError(
                    f"{type(kind).__name__} was built for {name}={built_for}, but here it is"
                    f" {size}; build it for {wanted}"
                )


def check_numbers(position: Representation, x: Tensor) -> None:
    """Raise a `ShapeshiftError` if weights are on the meta device and `x` is not: PyTorch returns
    such products with whatever is in memory."""
    for module in position.modules():
        for weight in module._parameters.values():
            if weight is not None and weight.is_meta and not x.is_meta:
                raise ShapeshiftError(
                    f"the weights of {type(module).__name__} are on the device meta, where they"
                    f" have no numbers, and its input is on {x.device}; load them, or call"
                    f" .to_empty(device={str(x.device)!r}) and set them"
                )


def check_heads(q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor, num_axes: int = 1) -> None:
    """Raise a `ShapeshiftError` if positions are not `(B|1, Q)` and `(B|1, K)`, with A > 1 axes
    `(B|1, Q, A)` and `(B|1, K, A)`, for heads `q, k (B, H, Q|K, E)`, or these are integers."""
    for name, x in (("q", q), ("k", k)):
        if not x.is_floating_point():
            raise ShapeshiftError(
                f"{name} must have a floating-point dtype, got {describe(x)}; give {name}.float()"
            )
    check_positions("pos_q", pos_q, q.shape[0], q.shape[2], num_axes)
    check_positions("pos_k", pos_k, k.shape[0], k.shape[2], num_axes)


def total_bias(position: Representation, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
    """Return the sum of `bias` and `query_bias`, or None."""
    if position.acting() & {"bias", "query_bias"}:
        check_numbers(position, q)
    bias = position("bias", pos_q, pos_k, dtype=q.dtype)
    return total([bias, position("query_bias", q, pos_q, pos_k)])


def total(terms: list[Tensor | None]) -> Tensor | None:
    """Return the sum of the terms that hooks return, or None.

    Raises:
        ShapeshiftError: if a term does not have four dimensions: `(B, Q, K)` would broadcast as
            `(H, Q, K)`.
    """
    present = [term for term in terms if term is not None]
    for term in present:
        if term.ndim != 4:
            raise ShapeshiftError(
                "what bias, query_bias and value_bias return must have four dimensions, first the"
                f" batch and the heads, each of its size or 1, got {tuple(term.shape)}"
            )
    return sum(present[1:], present[0]) if present else None


@contextmanager
def temporarily_set(modules: Sequence[nn.Module], name: str, value: object) -> Iterator[None]:
    """Set the attribute `name` of `modules` to `value` until the block ends.

    The old values are restored at the end, also after an exception.
    """
    before = [getattr(module, name) for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)


def tied_names(module: nn.Module) -> dict[str, str]:
    """Return each further name of a parameter or buffer → its first name."""
    first: dict[Tensor, str] = {}
    tied = {}
    tensors = (module.named_parameters, module.named_buffers)
    for name, tensor in chain(*(named(remove_duplicate=False) for named in tensors)):
        if first.setdefault(tensor, name) != name:
            tied[name] = first[tensor]
    return tied
