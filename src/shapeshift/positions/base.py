"""The hooks through which a model uses the positions of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook as has_any_global_hook

from shapeshift.errors import ShapeshiftError
from shapeshift.kernels import Turn

from .checks import check_positions, checked, describe, shown
from .pairs import Table

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, sentence, head, query, key) -> score, see `torch.nn.attention.flex_attention`."""

AT_ATTENTION = ("inputs", "rotate", "bias", "query_bias", "value_bias")
PROMISES = {
    "shift_invariant": ("embed", *AT_ATTENTION),
    "position_free_heads": ("rotate",),
    "splits": ("bias", "query_bias", "value_bias"),
}
"""The promises that a class may make, and the hooks that each promise is about."""

_FASTER = {
    "score_mod": ("bias", "query_bias"),
    "tables": ("bias", "query_bias", "value_bias"),
    "turns": ("rotate",),
    "bias_by_distance": ("bias",),
}
"""Faster methods, and the hooks that each of them replaces."""

_HELPERS = {"score_mod": ("_values",), "tables": ("_rows", "_values")}
"""Methods through which hooks of this package compute, and that a faster method does without."""

_WRITTEN_FOR = {
    name: (*hooks, *_HELPERS.get(name, ())) for name, hooks in (_FASTER | PROMISES).items()
}
_FUNCTIONS = ("embed", *AT_ATTENTION, *dict.fromkeys(sum(_HELPERS.values(), ())))

_MODULE_HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"


def inherits(position: Representation, hook: str, owner: type[Representation]) -> bool:
    """Return whether `hook` is the function that the class `owner` had when it was defined: not
    that of a subclass, of this one object, or one that a class got later."""
    # In words that torch.compile traces: in its graphs, a bound method has another function.
    return hook not in vars(position) and getattr(type(position), hook) is owner._defined[hook]


def has_hooks(module: nn.Module) -> bool:
    """Return whether hooks are called with what goes into a module or comes out, forward or
    backward: those registered on it, as pruning and FSDP do, or on all modules."""
    return bool(has_any_global_hook()) or any(  # type: ignore[no-untyped-call]
        getattr(module, name) for name in _MODULE_HOOKS
    )


def age(cls: type, *names: str) -> int:
    """Return how far back in the MRO any of `names` was last defined; 0 is `cls` itself."""
    return next(n for n, base in enumerate(cls.__mro__) if not vars(base).keys().isdisjoint(names))


class Representation(nn.Module):
    """How a Transformer uses positions; the base class uses none.

    A model calls the hooks at fixed points and knows nothing else. `embed`, `inputs`, `rotate`,
    `bias`, `query_bias` and `value_bias` do nothing by default, so this class itself is the kind
    `none`. A subclass overrides the hooks that it needs; the model checks this with `overrides`.
    Promises, such as `splits`, are optional. A subclass that overrides a hook loses the promises
    about it unless it repeats them. Without a promise, some uses are slower or raise an error, but
    no result changes.

    With x a layer's input, W the projections and i, j the query and key positions, attention is

        q, k, v  = inputs(x, x, x)                        # what is projected
        Q, K     = rotate(q W^Q, k W^K)                   # the projected heads
        Q        = Q / sqrt(E)
        e_ij     = Q_i K_j^T + bias_ij + query_bias(Q)_ij # then mask and softmax
        z_i      = sum_j softmax(e)_ij (v W^V)_j + value_bias(softmax(e))_i

    A subclass may also override `tables`, `bias_by_distance` and `turns`, and `score_mod`, for
    FlexAttention on a GPU, which let attention compute the same faster.

    Shapes: B batch, Q and K query and key length, H heads, D model width, E = D / H. Positions are
    integer tensors `(B, T)` or `(1, T)`. A representation never receives or builds a mask.

    Attention and models call a hook through the module, `position("bias", pos_q, pos_k, dtype=…)`,
    so that what is registered on the module runs around it: pruning, FSDP, `register_forward_hook`.
    Such a module, and one of which a hook was replaced after its class was defined, on the object
    or on the class, is computed by its hooks alone, without the faster methods.

    A kind that is built for one D, H or E stores it as `dim`, `num_heads` or `head_dim`, so that an
    attention of another size can raise an error.

    Arguments of a subclass's `__init__` are checked against annotations that are numbers, text,
    booleans, None or a `Literal`.

    Raises:
        ShapeshiftError: for a subclass that overrides `score_mod`, `tables`, `turns` or
            `bias_by_distance` without the hooks that they replace, or if its `places` are unknown,
            or none of its hooks is called there.
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
    """A promise: adding one number to all positions never changes the model's output."""

    position_free_heads: bool = True
    """A promise: `rotate` does the same at all positions, so that other parts of a chain may read
    or rotate these queries."""

    splits: bool = True
    """A promise: `bias`, `query_bias` and `value_bias` may be called for a subset of the sentences
    and queries."""

    _defined: ClassVar[dict[str, Any]]
    """Hooks and helpers that this class had when it was defined, see `inherits`."""

    _owners: ClassVar[dict[str, type[Representation]]]
    """The class that defined each faster method and promise."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._defined = {name: getattr(cls, name) for name in _FUNCTIONS if hasattr(cls, name)}
        cls._owners = {
            name: next(
                base
                for base in cls.__mro__
                if issubclass(base, Representation) and name in vars(base)
            )
            for name in _WRITTEN_FOR
        }
        if "__init__" in vars(cls):
            cls.__init__ = checked(cls.__init__)  # type: ignore[method-assign]
        for promise, hooks in PROMISES.items():
            if age(cls, *hooks) < age(cls, promise):
                setattr(cls, promise, False)
        for faster, hooks in _FASTER.items():
            if age(cls, faster) < age(cls, *hooks):
                raise ShapeshiftError(
                    f"{cls.__name__} overrides {faster}, which may only compute faster what"
                    f" {' and '.join(hooks)} would add; override {' or '.join(hooks)} as well"
                )
        if not isinstance(cls.places, tuple) or not {*cls.places} <= {*Representation.places}:
            raise ShapeshiftError(
                f"places of {cls.__name__} must be a tuple of {', '.join(Representation.places)},"
                f" got {cls.places!r}"
            )
        hooks = "embed", *AT_ATTENTION
        overridden = {h for h in hooks if cls._defined[h] is not Representation._defined[h]}
        used = ["embedding"] * ("embed" in overridden)
        used += ["self", "cross"] * bool(overridden - {"embed"})
        if used:
            places = tuple(place for place in cls.places if place in used)
            if not places:
                raise ShapeshiftError(
                    f"places of {cls.__name__} are {', '.join(cls.places)}, where none of the hooks"
                    f" that it overrides is called; use {' or '.join(used)}"
                )
            cls.places = places

    def overrides(self, hook: str) -> bool:
        """Return whether `hook` (`embed`, `inputs`, `rotate`, `bias`, `query_bias`, `value_bias`)
        may do anything, or whether a faster method computes what the hooks of this object do."""
        if hook not in _FASTER:
            return not inherits(self, hook, Representation)
        is_own = getattr(type(self), hook) is not getattr(Representation, hook)
        return is_own and hook not in vars(self) and self.holds(hook) and not has_hooks(self)

    def holds(self, name: str) -> bool:
        """Return whether a promise is kept by the hooks that this object has: no subclass, and
        nobody since the class was defined, has replaced one of those that it is about."""
        owner = self._owners[name]
        return bool(getattr(self, name)) and all(
            inherits(self, hook, owner) for hook in _WRITTEN_FOR[name] if hook in owner._defined
        )

    def forward(self, hook: str, *args: Any, **kwargs: Any) -> Any:
        """Call a hook by its name, and what is registered on this module around it."""
        return getattr(self, hook)(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
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

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projected query and key heads `(B, H, Q|K, E)`. The queries are not
        scaled yet."""
        return q, k

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor | None:
        """Return the bias on the scaled scores that depends on positions only,
        `(B|1, H|1, Q|1, K|1)`, or None; `dtype` is the dtype of the queries."""
        return None

    def bias_by_distance(self, distances: Tensor, *, dtype: torch.dtype) -> Tensor | None:
        """Return what `bias` is at distances j − i `(…)`, `(H, …)`, if it depends on nothing else,
        or None."""
        return None

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return the bias on the scaled scores that depends on queries and positions,
        `(B|1, H|1, Q|1, K|1)`, or None.

        `q (B, H, Q, E)` are the query heads, scaled by 1 / sqrt(E).
        """
        return None

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return the term to add to the attention output, `(B, H, Q, E)`, or None.

        `probs (B, H, Q, K)` are the attention probabilities after dropout, in the dtype of the
        values.
        """
        return None

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod | None:
        """Return a function for FlexAttention that adds `bias` and `query_bias` to one score, or
        None. Its arguments are the score and four indices, which are zero-dimensional tensors:
        sentence, head, query, key.

        `q (B, H, Q, E)` are the query heads, scaled by 1 / sqrt(E).
        """
        return None

    def tables(self) -> tuple[Table | None, Table | None]:
        """Return vectors a^K and a^V by distance, if `bias` and `query_bias` add q_i a^K_ij^T to
        the scaled score of each pair, or numbers b_ij, and `value_bias` adds sum_j p_ij a^V_ij; in
        place of either None if they do not."""
        return None, None

    def turns(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Turn, Turn] | None:
        """Return how pairs of channels of queries and of keys rotate, if that is what `rotate`
        does, or None. `q` and `k` need not have the `B` and `T` of positions."""
        return None


Representation._defined = {name: getattr(Representation, name) for name in ("embed", *AT_ATTENTION)}
Representation._owners = dict.fromkeys(_WRITTEN_FOR, Representation)


class _Parametrizations(nn.ModuleDict):
    """What `torch.nn.utils.parametrize` keeps by the names of tensors, which may be `keys` and
    `values`, as methods of every ModuleDict are."""

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


def known_tables(position: Representation) -> tuple[Table | None, Table | None]:
    """Return `tables()` if it computes what the hooks do, else (None, None)."""
    return position.tables() if position.overrides("tables") else (None, None)


def known_turns(
    position: Representation, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor
) -> tuple[Turn, Turn] | None:
    """Return `turns` if it computes what `rotate` does, else None."""
    return position.turns(q, k, pos_q, pos_k) if position.overrides("turns") else None


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


def check_heads(q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> None:
    """Raise a `ShapeshiftError` if positions are not `(B|1, Q)` and `(B|1, K)` for heads `q, k (B,
    H, Q|K, E)`."""
    check_positions("pos_q", pos_q, q.shape[0], q.shape[2])
    check_positions("pos_k", pos_k, k.shape[0], k.shape[2])


def total_bias(position: Representation, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
    """Return the sum of `bias` and `query_bias`, or None."""
    if position.overrides("bias") or position.overrides("query_bias"):
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
