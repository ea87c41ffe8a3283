"""Checks constructor arguments against their annotations, for Python and for configurations."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from torch import nn

from shapeshift.errors import ShapeshiftError

from .checks import is_whole_number

Init = TypeVar("Init", bound=Callable[..., None])

SIZES = ("dim", "num_heads", "head_dim")
"""The arguments that are sizes of a model: D, H and E."""

_EXPECTED: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    NoneType: "null",
    Mapping: "names and values",
}


def checked(init: Init) -> Init:
    """Return an `__init__` that calls `check_arguments` first."""
    signature = inspect.signature(init)

    @wraps(init)
    def check_first(self: object, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # `init` says what is missing or unknown
            given = {}
        check_arguments(init, given)
        init(self, *args, **kwargs)

    return check_first  # type: ignore[return-value]


def check_arguments(init: Callable[..., None], given: Mapping[str, Any]) -> None:
    """Raise a `ShapeshiftError` for arguments of an `__init__` whose type differs from their
    annotation (numbers, text, booleans, None, mappings and `Literal` are checked), and for model
    sizes below 1."""
    try:
        hints = get_type_hints(init)
    except (AttributeError, NameError, TypeError):  # not all of them are there at run time
        hints = {}
    owner, wrong = init.__qualname__.split(".")[-2], []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in inspect.signature(init).parameters.items():
        if name not in given or parameter.kind in several:
            continue
        value, hint = given[name], hints.get(name, Any)
        if not _fits(value, hint):
            wrong.append(f"{owner}.{name}: expected {_expected(hint)}, got {value!r}")
        elif name in SIZES and is_whole_number(value) and value < 1:
            wrong.append(f"{owner}.{name}: expected at least 1, got {value}")
    if wrong:
        raise ShapeshiftError("; ".join(wrong))


def _fits(value: object, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return any(isinstance(value, type(each)) and value == each for each in get_args(hint))
    if hint is int:
        return is_whole_number(value)
    if hint is float:
        return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    hint = get_origin(hint) or hint
    return hint not in _EXPECTED or isinstance(value, hint)


def _expected(hint: Any) -> str:
    """Return what `hint` allows, in words."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_expected(each) for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is Literal:
        *others, last = map(repr, get_args(hint))
        return f"{', '.join(others)} or {last}" if others else last
    return _EXPECTED[get_origin(hint) or hint]


def shown(module: nn.Module) -> str:
    """Return the constructor arguments that a module stores as attributes of the same name, for
    its `extra_repr`."""
    names = inspect.signature(type(module)).parameters
    return ", ".join(f"{name}={vars(module)[name]!r}" for name in names if name in vars(module))
