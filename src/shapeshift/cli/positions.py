"""`shapeshift positions`: presets, kinds and position ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shapeshift.positions import IndicesChoice, Part


def positions() -> None:
    """List the presets, the kinds of position representation, and the ways to number tokens.

    Parameters are those that it adds to transformer-base. The tests compile and export every cell.
    """
    from rich.table import Table

    from shapeshift.cli.progress import results_console
    from shapeshift.model import catalogue
    from shapeshift.positions import INDICES, KINDS, PRESETS

    presets = Table("preset", "indices", "kind at place", "parameters")
    for name, num_parameters in catalogue.preset_parameters().items():
        scheme = PRESETS[name]
        parts = " + ".join(map(describe_part, scheme.parts)) or "none"
        indices_used = describe_indices(scheme.indices)
        presets.add_row(name, indices_used, parts, f"{num_parameters:,}")
    kinds = Table("kind", "what it does", "shift invariant", "options", "source")
    for name, entry in KINDS.items():
        invariant = "yes" if entry.build.shift_invariant else "no"
        options = ", ".join(entry.options()) or "–"
        kinds.add_row(name, entry.summary, invariant, options, entry.source)
    cells = Table("kind", "place", "stacks", "parameters", "exports to")
    exports = ", ".join(catalogue.EXPORTS)
    for cell in catalogue.cells():
        cells.add_row(cell.kind, cell.place, cell.stacks, f"{cell.num_parameters:,}", exports)
    indices = Table("indices", "what they are", "options", "source")
    for name, way in INDICES.items():
        indices.add_row(name, way.summary, ", ".join(way.options()) or "–", way.source)
    console = results_console()
    for table in (presets, kinds, cells, indices):
        console.print(table)


def describe_indices(indices: IndicesChoice) -> str:
    """Return `shifted, max_offset=500`."""
    return ", ".join((indices.name, *map(_option, indices.options.items())))


def describe_part(part: Part) -> str:
    """Return `sinusoidal at self (decoder, first 1 layer, add_to=qk)`."""
    from shapeshift.positions import KINDS

    place = part.place or KINDS[part.kind].build.places[0]
    said = [] if part.stacks == "both" else [part.stacks]
    if part.layers is not None:
        said.append(f"first {part.layers} layer" + "s" * (part.layers > 1))
    said += map(_option, part.options.items())
    return f"{part.kind} at {place}" + (f" ({', '.join(said)})" if said else "")


def _option(item: tuple[str, object]) -> str:
    return f"{item[0]}={item[1]}"
