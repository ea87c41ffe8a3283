"""Which modules of a model are shifted, and which ones stand around them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError, nearest

from .families import CALLED_WITH_ROWS, family_of, find, not_positions

_PLACE = re.compile(r"(^|_)(wpe|pos|positions?|positional)(_|$)")
"""In the name of a position embedding, but not of `post_attention_layernorm`."""

_TOKENS = ("input_ids", "token_ids", "tokens", "attention_mask")
"""Names of arguments that are no position numbers, though they may be integers `(B, T)`."""

_RELATIVE = {
    "alibi": "ALiBi",
    "rotary": "rotary",
    "relative_attention_bias": "relative",
}
"""What models whose attention knows distances alone have in a module's or an attribute's name."""


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
            _refuse_tokens(every[name])
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
    """Return the modules around `target` under each name that it has, the model first."""
    found: dict[str, nn.Module] = {}
    for name in [name for name, module in every.items() if module is target]:
        steps = name.split(".")
        for depth in range(len(steps)):
            prefix = ".".join(steps[:depth])
            found[prefix] = every[prefix]
    return list(dict.fromkeys(found.values()))


def _refuse_tokens(module: nn.Module) -> None:
    first = next(iter(inspect.signature(module.forward).parameters), None)
    if family_of(module) is CALLED_WITH_ROWS and first in _TOKENS:
        raise not_positions(module, f", but {first}")


def _why(every: Mapping[str, nn.Module]) -> str:
    for word, kind in _RELATIVE.items():
        if any(_has(module, word) for module in every.values()):
            return (
                f": its positions are {kind}, which see distances alone, so there is no table to"
                " shift and a shift would change nothing"
            )
    likely = [
        name
        for name, module in every.items()
        if _PLACE.search(name.rpartition(".")[2])
        and type(module).forward is nn.Embedding.forward  # it takes position numbers
    ]
    hint = f", such as {likely[0]!r}" if likely else ""
    return f"; give its name as modules=[…]{hint}"


def _has(module: nn.Module, word: str) -> bool:
    # A switch may be off: Falcon has `use_alibi`.
    return any(word in name and getattr(module, name) is not False for name in dir(module))
