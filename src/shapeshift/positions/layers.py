"""The layers of a stack in which a part of a scheme acts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shapeshift._system.errors import ShapeshiftError

from .checks import is_whole_number, whole_number

Layers = int | list[int] | tuple[int, ...] | Mapping[str, Any]
"""Layers, counted from 0: a number n, the first n; a list of them; `{every: k, offset: n}`, layers
n, n + k, n + 2k, … (n is 0 by default); or `{except: …}`, all but those of another form."""


def check_layers(layers: Any, name: str = "layers") -> Layers:
    """Return `layers`, the argument `name`, with numbers of any integer type as ints.

    Raises:
        ShapeshiftError: if it is no `Layers`.
    """
    if is_whole_number(layers):
        return whole_number(name, layers, 1)
    if isinstance(layers, Mapping) and {*layers} == {"except"} and name == "layers":
        return {"except": check_layers(layers["except"], "layers.except")}
    if isinstance(layers, Mapping) and {"every"} <= {*layers} <= {"every", "offset"}:
        smallest = {"every": 1, "offset": 0}
        return {key: whole_number(f"{name}.{key}", x, smallest[key]) for key, x in layers.items()}
    if isinstance(layers, list | tuple) and layers:
        numbers = [whole_number(f"a layer in {name}", layer, 0) for layer in layers]
        if len({*numbers}) < len(layers):
            raise ShapeshiftError(f"{name} names a layer twice, got {numbers}; leave one out")
        return numbers if isinstance(layers, list) else tuple(numbers)
    nested = "" if name != "layers" else ", or {except: …} with one of these"
    raise ShapeshiftError(
        f"{name} must be a number n (the first n layers), a list such as [0, 2, 5] (counted"
        f" from 0) or {{every: 4, offset: 3}}{nested}, got {layers!r}"
    )


def select_layers(layers: Layers | None, num_layers: int, stack: str) -> list[int]:
    """Return the layers of a stack, in order; None is all of them.

    Raises:
        ShapeshiftError: if a layer of a list does not exist, or more layers are asked for than the
            stack has; or if a form other than a number selects none of the layers, or all of them.
    """
    if layers is None:
        return [*range(num_layers)]
    chosen = _select(layers, num_layers, stack)
    if isinstance(layers, Mapping | list | tuple) and len(chosen) in (0, num_layers):
        what, remedy = ("all", "leave layers out") if chosen else ("none", "select some of them")
        raise ShapeshiftError(
            f"layers={layers} selects {what} of the {num_layers} layers of the {stack}; {remedy},"
            f" change their number ({stack}_layers), or give the part to the other stack alone"
            " (stacks)"
        )
    return chosen


def _select(layers: Layers, num_layers: int, stack: str) -> list[int]:
    every = range(num_layers)
    if isinstance(layers, list | tuple):
        if max(layers) >= num_layers:
            raise ShapeshiftError(
                f"there is no layer {max(layers)} in the {stack}, whose layers are 0 to"
                f" {num_layers - 1}; correct layers={[*layers]}, or give the part to the other"
                " stack alone (stacks)"
            )
        return sorted(layers)
    if not isinstance(layers, Mapping):
        if layers > num_layers:
            raise ShapeshiftError(
                f"layers={layers}, but the {stack} has {num_layers}; give a number up to"
                f" {num_layers}, or give the part to the other stack alone (stacks)"
            )
        return [*every[:layers]]
    if "except" in layers:
        left_out = _select(layers["except"], num_layers, stack)
        return [layer for layer in every if layer not in left_out]
    return [*every[layers.get("offset", 0) :: layers["every"]]]


def describe_layers(layers: Layers) -> str:
    """Return `first 2 layers`, `layers 0, 2, 5`, `every 4 layers from layer 3`, or one of these
    after `all layers except`."""
    if isinstance(layers, list | tuple):
        return f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
    if not isinstance(layers, Mapping):
        return "first layer" if layers == 1 else f"first {layers} layers"
    if "except" in layers:
        return f"all layers except {describe_layers(layers['except'])}"
    return f"every {layers['every']} layers from layer {layers.get('offset', 0)}"
