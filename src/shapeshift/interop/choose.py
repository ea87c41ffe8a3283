"""Which modules of a model are shifted, and which modules contain them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError, nearest

from .families import CALLED_WITH_ROWS, family_of, find, not_positions

_RELATIVE = {"alibi": "ALiBi", "rotary": "rotary", "relative_attention_bias": "relative"}
"""Part of a module's or attribute's name, in models whose attention sees distances only."""


def choose_modules(
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
                _refuse_others(name, every)
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
        kind = relative_kind(every.values())
        why = f": its positions are {kind}, which see distances alone" if kind else ""
        raise ShapeshiftError(
            f"no absolute position embedding is known in {type(model).__name__}{why}; if it has a"
            " table of positions, name it as modules=[…], else a shift would change nothing"
        )
    return names


def owners(every: Mapping[str, nn.Module], target: nn.Module) -> list[nn.Module]:
    """Return the modules that contain `target`, under any of its names; the model comes first."""
    above: dict[str, nn.Module] = {}
    for name in [name for name, module in every.items() if module is target]:
        steps = name.split(".")
        for depth in range(len(steps)):
            prefix = ".".join(steps[:depth])
            above[prefix] = every[prefix]
    return list(dict.fromkeys(above.values()))


def holds_tokens(name: str, why: str) -> ShapeshiftError:
    """Return the error for a table of tokens."""
    return ShapeshiftError(
        f"{name!r} holds tokens and not positions: {why}; name the module that is called with"
        " position numbers"
    )


def _refuse_others(name: str, every: Mapping[str, nn.Module]) -> None:
    """Raise a `ShapeshiftError` for a module that is certainly not called with position numbers:
    one of torch's that is no table, and the model's table of tokens."""
    module = every[name]
    if family_of(module) is not CALLED_WITH_ROWS:
        return
    is_of_torch = type(module).__module__.startswith("torch.nn.")
    if is_of_torch and not isinstance(module, nn.Embedding | nn.Sequential):
        raise not_positions(module)
    if re.search("relative|distance|(^|_)rel_", name.rpartition(".")[2]):
        raise not_positions(module, ", but distances, by its name")
    for part in every.values():
        try:
            tokens = part.get_input_embeddings()  # type: ignore[operator]
        except (AttributeError, NotImplementedError):
            continue
        if tokens is module:
            raise holds_tokens(name, f"it is the input embedding of {type(part).__name__}")


def relative_kind(parts: Iterable[object]) -> str | None:
    """Return what positions a model has that see distances alone, by names in its modules or its
    configuration; None if none are known."""
    everything = list(parts)
    for word, kind in _RELATIVE.items():
        names = ((part, name) for part in everything for name in dir(part) if word in name)
        if any(getattr(part, name) is not False for part, name in names):  # a switch may be off
            return kind
    return None
