"""Which modules of a model are shifted, and which modules contain them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError, nearest

from .families import CALLED_WITH_ROWS, family_of, find, not_positions

_PLACE = re.compile(r"(^|_)(wpe|pos|positions?|positional)(_|$)")
"""In the name of a position embedding, but not of `post_attention_layernorm`."""

_TOKENS = ("input_ids", "token_ids", "token_type_ids", "tokens", "attention_mask")
"""Names of arguments that are not position numbers, although they may be integers `(B, T)`."""

_RELATIVE = {
    "alibi": "ALiBi",
    "rotary": "rotary",
    "relative_attention_bias": "relative",
}
"""Part of a module's or attribute's name, in models whose attention sees distances only."""


def chosen(
    model: nn.Module, every: Mapping[str, nn.Module], modules: str | Iterable[str] | None
) -> list[str]:
    """Return the names of the position embeddings to shift.

    Args:
        model: they are in it.
        every: its modules by all their names.
        modules: names that the user gave; None takes all that are known.

    Raises:
        ShapeshiftError: if a name does not exist, or is no position embedding's, or there is none.
    """
    if modules is None:
        names = list(find(model))
    else:
        names = [modules] if isinstance(modules, str) else list(dict.fromkeys(modules))
    for name in names:
        owner, _, attribute = name.rpartition(".")
        if name in every:
            if modules is not None:
                _refuse_others(model, name, every)
        elif isinstance(getattr(every.get(owner), attribute, None), Tensor):
            raise ShapeshiftError(
                f"{name!r} of {type(model).__name__} is a tensor, not a module; name the module"
                " that is called with position numbers to look it up, such as an nn.Embedding, or"
                " put shapeshift.SHAPE in its place"
            )
        else:
            raise ShapeshiftError(
                f"{type(model).__name__} has no module {name!r}{nearest(name, every)}"
            )
    if not names:
        raise ShapeshiftError(
            f"no absolute position embedding is known in {type(model).__name__}{_why(every)}"
        )
    return names


def owners(every: Mapping[str, nn.Module], target: nn.Module) -> list[nn.Module]:
    """Return the modules that contain `target`, under any of its names; the model comes first."""
    found: dict[str, nn.Module] = {}
    for name in [name for name, module in every.items() if module is target]:
        steps = name.split(".")
        for depth in range(len(steps)):
            prefix = ".".join(steps[:depth])
            found[prefix] = every[prefix]
    return list(dict.fromkeys(found.values()))


def tokens_of(
    module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_root: bool
) -> list[Tensor]:
    """Return the tokens that a module is called with: arguments with a name in `_TOKENS`, and the
    first argument of the model itself (`is_root`) unless its name says that it is positions."""
    names = list(inspect.signature(module.forward).parameters)
    given = [*zip(names, args, strict=False), *kwargs.items()]
    return [
        value
        for number, (name, value) in enumerate(given)
        if isinstance(value, Tensor)
        and (name in _TOKENS or (is_root and number == 0 and not _PLACE.search(name)))
    ]


def is_tokens(name: str, why: str) -> ShapeshiftError:
    """Return the error for a table of tokens."""
    return ShapeshiftError(
        f"{name!r} holds tokens and not positions: {why}; name the module that is called with"
        " position numbers"
    )


def _refuse_others(model: nn.Module, name: str, every: Mapping[str, nn.Module]) -> None:
    """Raise a `ShapeshiftError` for a module that is certainly not called with position numbers."""
    module = every[name]
    if family_of(module) is not CALLED_WITH_ROWS:
        return
    first = next(iter(inspect.signature(module.forward).parameters), None)
    if first in _TOKENS:
        raise not_positions(module, f", but {first}")
    is_of_torch = type(module).__module__.startswith("torch.nn.")
    if is_of_torch and not isinstance(module, nn.Embedding | nn.Sequential):
        raise not_positions(module)
    last = name.rpartition(".")[2]
    if re.search("relative|distance|(^|_)rel_", last):
        raise not_positions(module, ", but distances, by its name")
    if not isinstance(module, nn.Embedding):
        return
    for part in every.values():
        table = _input_embeddings(part)
        if table is not None and table.weight is module.weight:
            raise is_tokens(name, f"it is the input embedding of {type(part).__name__}")
        size = getattr(getattr(part, "config", None), "vocab_size", None)
        if size == module.num_embeddings and not _PLACE.search(last):
            raise is_tokens(name, f"it has as many rows as the vocabulary, {size}")


def _input_embeddings(module: nn.Module) -> nn.Embedding | None:
    """Return what `get_input_embeddings` of a Hugging Face model returns, if it is a table."""
    try:
        table = module.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return None
    return table if isinstance(table, nn.Embedding) else None


def _why(every: Mapping[str, nn.Module]) -> str:
    kinds = (
        kind
        for word, kind in _RELATIVE.items()
        if any(_has(module, word) for module in every.values())
    )
    relative = next(kinds, None)
    likely = [(name, part) for name, part in every.items() if _PLACE.search(name.split(".")[-1])]
    tables = [name for name, part in likely if type(part).forward is nn.Embedding.forward]
    others = [
        (name, type(part).__name__)
        for name, part in likely
        if re.search("Position(al)?Embedding", type(part).__name__)
    ]
    if tables:  # which are called with position numbers
        also = f", which has {relative} positions as well" if relative else ""
        return f"{also}; give its name as modules=[…], such as {tables[0]!r} if that numbers tokens"
    if relative:
        return (
            f": its positions are {relative}, which see distances alone, so there is no table to"
            " shift and a shift would change nothing"
        )
    if others:
        name, kind = others[0]
        return f": {name!r} is a {kind}, which numbers tokens in a way that is not known here"
    return "; give its name as modules=[…]"


def _has(module: nn.Module, word: str) -> bool:
    # A switch may be off: Falcon has `use_alibi`.
    return any(word in name and getattr(module, name) is not False for name in dir(module))
