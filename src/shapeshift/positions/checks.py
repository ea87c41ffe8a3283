"""Checks of arguments and of positions that several kinds share."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial, wraps
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.kernels import is_captured

Init = TypeVar("Init", bound=Callable[..., None])

SIZES = ("dim", "num_heads", "head_dim")
"""The arguments that are sizes of a model: D, H and E."""

SEVERAL = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD

_TYPES: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda x: isinstance(x, bool)),
    int: ("a whole number", lambda x: is_whole_number(x)),
    float: (
        "a finite number",
        lambda x: not isinstance(x, bool) and isinstance(x, Real) and math.isfinite(x),
    ),
    str: ("text", lambda x: isinstance(x, str)),
    NoneType: ("null", lambda x: x is None),
    Mapping: ("names and values", lambda x: isinstance(x, Mapping)),
}
"""Annotation → what it allows, in words, and whether a value is that."""


def checked(init: Init) -> Init:
    """Return an `__init__` that calls `check_arguments` first."""
    signature = inspect.signature(init)

    @wraps(init)
    def check_first(self: object, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # `init` says what is missing or unknown
            given = {}
        check_arguments(init, given, type(self).__name__)
        init(self, *args, **kwargs)

    return check_first  # type: ignore[return-value]


def check_arguments(init: Callable[..., None], given: Mapping[str, Any], owner: str) -> None:
    """Raise a `ShapeshiftError` for arguments of `owner.__init__` whose type differs from their
    annotation (numbers, text, booleans, None, mappings and `Literal` are checked), and for model
    sizes below 1."""
    parameters: Mapping[str, inspect.Parameter] = {}
    with suppress(AttributeError, NameError, TypeError):  # of what is not there at run time
        parameters = _parameters(init)
    wrong = []
    for name, value in given.items():
        parameter = parameters.get(name)
        hint = Any if parameter is None or parameter.kind in SEVERAL else parameter.annotation
        alternatives = _alternatives(hint)
        if not any(fits(value) for _, fits in alternatives):
            expected = " or ".join(words for words, _ in alternatives if words != "null")
            wrong.append(f"{owner}.{name}: expected {expected}, got {value!r}")
        elif name in SIZES and is_whole_number(value) and value < 1:
            wrong.append(f"{owner}.{name}: expected at least 1, got {value}")
    if wrong:
        raise ShapeshiftError("; ".join(wrong))


@cache
def _parameters(init: Callable[..., None]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(init, eval_str=True).parameters


def _alternatives(hint: Any) -> list[tuple[str, Callable[[Any], bool]]]:
    """Return the types that an annotation allows, as in `_TYPES`; any value if the annotation is
    unknown."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return [each for part in get_args(hint) for each in _alternatives(part)]
    if kind is Literal:
        return [(repr(each), partial(operator.eq, each)) for each in get_args(hint)]
    return [_TYPES.get(kind, ("", lambda x: True))]


def shown(module: nn.Module) -> str:
    """Return the constructor arguments that a module stores as attributes of the same name, for
    its `extra_repr`."""
    names = inspect.signature(type(module)).parameters
    return ", ".join(f"{name}={vars(module)[name]!r}" for name in names if name in vars(module))


def can_read(pos: Tensor) -> bool:
    """Return whether the values of `pos` can be read for free.

    On a GPU the host would wait for the device in every call. On the meta device and in graphs that
    `torch.compile` or `torch.export` captures there are no values; `torch.jit.trace` would record
    those of the example.
    """
    return pos.device.type in ("cpu", "mps") and not is_captured()


def check_last(kind: object, pos_q: Tensor, pos_k: Tensor) -> None:
    """Raise a `ShapeshiftError` if queries at `pos_q (B|1, Q)` are not the last ones of the keys at
    `pos_k (B|1, K)`, whose state a kind reads as that of the queries; see `can_read`."""
    num_before = pos_k.shape[1] - pos_q.shape[1]
    if num_before < 0 or (can_read(pos_q) and (pos_q != pos_k[:, num_before:]).any()):
        raise ShapeshiftError(
            f"{type(kind).__name__} reads the state of the last Q keys as that of the queries, and"
            " their positions differ; give the keys up to the last query, without later ones or"
            " free places of a cache"
        )


WITHOUT_FLOAT64 = ("mps",)
"""Devices that have no float64."""


def bounds(pos: Tensor) -> tuple[int, int]:
    """Return the lowest and the highest of positions `(B|1, T)` or `(B|1, T, A)`; 0 and T − 1 if
    they cannot be read or there are none (all keys are cached)."""
    if not can_read(pos) or not pos.numel():
        return 0, pos.shape[1] - 1
    lowest, highest = pos.aminmax()
    return int(lowest), int(highest)


def exact_dtype(device: torch.device | None) -> torch.dtype:
    """Return the dtype in which positions become angles: float64 if the device supports it."""
    is_without = device is not None and device.type in WITHOUT_FLOAT64
    return torch.float32 if is_without else torch.float64


def check_positive(**numbers: float) -> None:
    """Raise a `ShapeshiftError` that names the first number that is not positive and finite."""
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise ShapeshiftError(f"{name} must be positive and finite, got {number}")


def is_whole_number(value: Any) -> bool:
    """Return whether `value` is an integer; True and False are not."""
    if isinstance(value, int | torch.SymInt):
        return not isinstance(value, bool)
    if isinstance(value, Tensor) and value.dtype is torch.bool:
        return False
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def whole_number(name: str, value: Any, smallest: int) -> int:
    """Return `value`, which the user gave as `name`, as an int.

    Raises:
        ShapeshiftError: if it is not a whole number (True and False are not) or below `smallest`.
    """
    if not is_whole_number(value):
        raise ShapeshiftError(f"{name} must be a whole number, got {value!r}")
    # The index of a symbolic int would be a constant of the graph that is captured.
    is_int = isinstance(value, int | torch.SymInt)
    number: int = value if is_int else operator.index(value)
    if number < smallest:
        raise ShapeshiftError(f"{name} must be at least {smallest}, got {number}")
    return number


def check_offset(offset: int | Tensor, num_sequences: int) -> None:
    """Raise a `ShapeshiftError` if `offset` is neither a whole number from 0 nor an integer tensor
    `()`, `(1,)` or `(B,)` of such numbers. Values are checked only on the CPU."""
    if not isinstance(offset, Tensor):
        whole_number("offset", offset, 0)
        return
    if not is_integer(offset) or offset.shape not in ((), (1,), (num_sequences,)):
        raise ShapeshiftError(
            f"offset must be an integer, or an integer tensor of shape (), (1,) or"
            f" ({num_sequences},), one for each sequence, got {describe(offset)}"
        )
    if can_read(offset) and offset.numel() and offset.min() < 0:
        raise ShapeshiftError(f"offset must be at least 0, got {int(offset.min())}")


def is_integer(x: object) -> TypeGuard[Tensor]:
    """Return whether `x` is a tensor of integers (not of booleans)."""
    if not isinstance(x, Tensor):
        return False
    return not (x.is_floating_point() or x.is_complex() or x.dtype is torch.bool)


def _are_positions(pos: object, num_axes: int) -> TypeGuard[Tensor]:
    if num_axes == 1:
        return is_integer(pos) and pos.ndim == 2
    if not isinstance(pos, Tensor) or not (is_integer(pos) or pos.is_floating_point()):
        return False
    return pos.ndim == 3 and pos.shape[2] == num_axes


def as_positions(pos: Tensor, num_axes: int = 1) -> Tensor:
    """Return positions as int64, so that their differences do not overflow. With axes, fractions
    stay as they are.

    Raises:
        ShapeshiftError: if they are not integers `(B|1, T)`; or, with A > 1 axes, not integers or
            fractions `(B|1, T, A)`.
    """
    if not _are_positions(pos, num_axes):
        wanted = "integers (B, T) or (1, T), such as torch.arange(T)[None]"
        if num_axes > 1:
            wanted = f"(B, T, {num_axes}) or (1, T, {num_axes}), a number for each axis"
        raise ShapeshiftError(f"positions must be {wanted}, got {describe(pos)}")
    return pos if pos.is_floating_point() else pos.long()


def check_positions(name: str, pos: Tensor, B: int, T: int, num_axes: int = 1) -> Tensor:
    """Return positions as `as_positions` does.

    Raises:
        ShapeshiftError: if `pos`, the argument `name`, is not an integer tensor `(1, T)` or
            `(B, T)`, with A > 1 axes a tensor `(1, T, A)` or `(B, T, A)`: other shapes would
            broadcast.
    """
    if not _are_positions(pos, num_axes) or pos.shape[1] != T or pos.shape[0] not in (1, B):
        size = (T,) if num_axes == 1 else (T, num_axes)
        either = " or ".join(str((rows, *size)) for rows in dict.fromkeys((1, B)))
        wanted = f"integers {either} here, batch first"
        if num_axes > 1:
            wanted = f"{either} here, a number for each axis of each token"
        remedy = "; give pos.unsqueeze(0)" * (isinstance(pos, Tensor) and pos.shape == size)
        raise ShapeshiftError(f"{name} must be {wanted}, got {describe(pos)}{remedy}")
    return pos if pos.is_floating_point() else pos.long()


def describe(x: object) -> str:
    """Return dtype and shape, such as `float32 (2, 3)`, or the type if it is not a tensor."""
    if not isinstance(x, Tensor):
        return type(x).__name__
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
