"""`shapeshift positions`: presets, kinds and position ids."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shapeshift.cli.output import columns, results_console, show
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
    NAME, such as rope: what it does, its options, what it costs and exports to, how to use it.
    Parameters are those that it adds to transformer-base.
    """
    if name is not None:
        _describe(name)
        return
    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS

    presets = columns("preset", "kind at place", "parameters")
    for preset, num_parameters in catalogue.preset_parameters().items():
        scheme = PRESETS[preset]
        parts = " + ".join(map(str, scheme.parts)) or "none"
        if scheme.position_ids.name != "absolute":
            parts += f"; position ids {scheme.position_ids}"
        presets.add_row(preset, parts, f"{num_parameters:,}")
    places: dict[str, list[str]] = {}
    for cell in catalogue.cells():
        places.setdefault(cell.kind, []).append(f"{cell.place} ({cell.num_parameters:,})")
    kinds = columns("kind", "what it does", "places (parameters)", "source")
    for kind, entry in KINDS.items():
        kinds.add_row(kind, entry.summary, ", ".join(places[kind]), entry.source)
    position_ids = columns("position ids", "what they are", "source")
    for ids, way in POSITION_IDS.items():
        position_ids.add_row(ids, way.summary, way.source)
    console = results_console()
    for table in (presets, kinds, position_ids):
        console.print(table)
    show("shapeshift positions NAME describes one, with its options")


def _describe(name: str) -> None:
    """Print what a preset, a kind or position ids do, and how a configuration names them."""
    from shapeshift.export.support import support
    from shapeshift.model import ModelConfig, catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS, Part, PositionIds, Scheme

    schemes = dict(PRESETS)
    for kind, entry in KINDS.items():
        schemes.setdefault(kind, Scheme(parts=(Part(kind, entry.build.places[0]),)))
    for ids in POSITION_IDS:
        schemes.setdefault(ids, Scheme(PositionIds(ids), (Part("sinusoidal", "embedding"),)))
    if name not in schemes:
        raise ShapeshiftError(f"no preset or kind {name!r}{nearest(name, schemes)}")
    scheme = schemes[name]
    entries: list[tuple[str, Entry[Any]]] = [(x.kind, KINDS[x.kind]) for x in scheme.parts]
    usage = f"position: {name}"
    if name in POSITION_IDS:
        entries = []
        part = "{kind: sinusoidal, place: embedding}"
        usage = f"position: {{name: mine, position_ids: {{name: {name}}}, parts: [{part}]}}"
    elif name not in PRESETS:
        place = scheme.parts[0].place
        usage = f"position: {{name: mine, parts: [{{kind: {name}, place: {place}}}]}}"
    if name in POSITION_IDS or scheme.position_ids.name != "absolute":
        entries.append((scheme.position_ids.name, POSITION_IDS[scheme.position_ids.name]))
    parts = " + ".join(map(str, scheme.parts)) or "no position"
    show(f"{name}: {parts}, position ids {scheme.position_ids}")
    for title, entry in dict(entries).items():
        show(f"\n{title}: {entry.summary} ({entry.source})\n")
        text = inspect.getdoc(entry.build) or ""
        # Paragraphs and items in one line each, which fits a terminal of any width.
        _show_text(re.sub(r"(?<=\S)\n(?=\S| {8,}\S)", " ", text.partition("\nRaises:")[0]))
        options = [
            option if parameter.default is parameter.empty else f"{option}={parameter.default}"
            for option, parameter in entry.options().items()
        ]
        _show_text(f"\noptions: {', '.join(options) or 'none'}")
    exports = support(scheme, ModelConfig(size="base"))
    added = catalogue.count_parameters(scheme)
    _show_text(
        f"parameters added to transformer-base: {added:,}\nexports to"
        f" {', '.join(catalogue.EXPORTS)}; CTranslate2: {exports}\nin a configuration: {usage}"
    )


def _show_text(text: str) -> None:
    """Print lines folded to the width of the terminal, what is folded indented."""
    width = min(100, results_console().width)
    for line in text.rstrip().splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        hanging = indent and indent + "    "
        lines = textwrap.wrap(" ".join(line.split()), width, initial_indent=indent,
                              subsequent_indent=hanging, break_long_words=False)  # fmt: skip
        show("\n".join(lines))
