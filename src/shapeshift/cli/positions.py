"""`shapeshift positions`: presets, kinds and position ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shapeshift.cli.output import columns, results_console
from shapeshift.errors import ShapeshiftError, nearest

if TYPE_CHECKING:
    from shapeshift.positions.registry import Entry


def positions(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A preset or a kind: tell about this one."),
    ] = None,
) -> None:
    """List the position representations, or describe one.

    Lists the presets, the kinds of position representation, and the ways to number tokens. With a
    NAME, such as rope: what it does, its options and how to use it. Parameters are those that
    it adds to transformer-base. The tests compile and export every cell.
    """
    if name is not None:
        _describe(name)
        return
    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS

    presets = columns("preset", "position ids", "kind at place", "parameters")
    for name, num_parameters in catalogue.preset_parameters().items():
        scheme = PRESETS[name]
        parts = " + ".join(map(str, scheme.parts)) or "none"
        presets.add_row(name, str(scheme.position_ids), parts, f"{num_parameters:,}")
    kinds = columns("kind", "what it does", "shift invariant", "options", "source")
    kinds.columns[2].max_width = len("invariant")
    for name, entry in KINDS.items():
        invariant = "yes" if entry.build.shift_invariant else "no"
        options = ", ".join(entry.options()) or "–"
        kinds.add_row(name, entry.summary, invariant, options, entry.source)
    cells = columns("kind", "place", "stacks", "parameters", "exports to")
    exports = ", ".join(catalogue.EXPORTS)
    for cell in catalogue.cells():
        cells.add_row(cell.kind, cell.place, cell.stacks, f"{cell.num_parameters:,}", exports)
    position_ids = columns("position ids", "what they are", "options", "source")
    for name, way in POSITION_IDS.items():
        position_ids.add_row(name, way.summary, ", ".join(way.options()) or "–", way.source)
    console = results_console()
    for table in (presets, kinds, cells, position_ids):
        console.print(table)


def _describe(name: str) -> None:
    """Print what a preset or a kind does, its options, its cost and how a configuration says it."""
    import inspect

    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS

    known = {**PRESETS, **KINDS}
    if name not in known:
        raise ShapeshiftError(f"no preset or kind {name!r}{nearest(name, known)}")
    out = results_console()
    classes: dict[str, Entry[Any]]
    if name in PRESETS:
        scheme = PRESETS[name]
        parts = " + ".join(map(str, scheme.parts)) or "no position"
        out.print(f"preset {name}: {parts}, position ids {scheme.position_ids}")
        cost = {"in transformer-base": catalogue.count_parameters(scheme)}
        classes = {part.kind: KINDS[part.kind] for part in scheme.parts}
        if scheme.position_ids.name != "absolute":
            classes |= {scheme.position_ids.name: POSITION_IDS[scheme.position_ids.name]}
        usage = f"position: {name}"
    else:
        classes = {name: KINDS[name]}
        cost = {f"at {x.place}": x.num_parameters for x in catalogue.cells() if x.kind == name}
        place = KINDS[name].build.places[0]
        usage = f"position: {{name: mine, parts: [{{kind: {name}, place: {place}}}]}}"
    for kind, entry in classes.items():
        out.print(f"\n{kind}: {entry.summary} ({entry.source})\n")
        text = inspect.getdoc(entry.build) or ""
        out.print(text.partition("\nRaises:")[0].rstrip(), soft_wrap=True)
        options = [
            option if parameter.default is parameter.empty else f"{option}={parameter.default}"
            for option, parameter in entry.options().items()
        ]
        out.print(f"\noptions: {', '.join(options) or 'none'}", soft_wrap=True)
    added = ", ".join(f"{count:,} {where}" for where, count in cost.items())
    out.print(f"parameters added: {added}; exports to {', '.join(catalogue.EXPORTS)}")
    out.print(f"in a configuration: {usage}", soft_wrap=True)
