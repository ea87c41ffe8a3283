"""`shapeshift positions`: presets, kinds and position ids."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Annotated

import typer

from shapeshift.cli.output import results_console, show, show_table
from shapeshift.errors import ShapeshiftError, nearest


def positions(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A preset or a kind: describe this one."),
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
    from shapeshift.evaluation.tables import Table
    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS

    presets = []
    for preset, num_parameters in catalogue.preset_parameters().items():
        scheme = PRESETS[preset]
        parts = " + ".join(map(str, scheme.parts)) or "none"
        if scheme.position_ids.name != "absolute":
            parts += f"; position ids {scheme.position_ids}"
        presets.append((preset, parts, f"{num_parameters:,}"))
    places: dict[str, list[str]] = {}
    for cell in catalogue.cells():
        places.setdefault(cell.kind, []).append(f"{cell.place} ({cell.num_parameters:,})")
    kinds = [(kind, x.summary, ", ".join(places[kind]), x.source) for kind, x in KINDS.items()]
    position_ids = [(ids, entry.summary, entry.source) for ids, entry in POSITION_IDS.items()]
    for header, rows in (
        (("preset", "kind at place", "parameters"), presets),
        (("kind", "what it does", "places (parameters)", "source"), kinds),
        (("position ids", "what they are", "source"), position_ids),
    ):
        show_table(Table(header, rows), numbers=False)
    show("shapeshift positions NAME describes one, with its options")


def _describe(name: str) -> None:
    """Print what a preset, a kind or position ids do, and how a configuration names them."""
    from shapeshift.export.support import support
    from shapeshift.model import ModelConfig, catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS, Part, PositionIds, Scheme

    kinds = {kind: Part(kind, entry.build.places[0]) for kind, entry in KINDS.items()}
    usage = f"position: {name}"
    if name in PRESETS:
        scheme = PRESETS[name]
    elif name in KINDS:
        scheme = Scheme(parts=(kinds[name],))
        usage = f"position: {{name: mine, parts: [{{kind: {name}, place: {kinds[name].place}}}]}}"
    elif name in POSITION_IDS:
        scheme = Scheme(PositionIds(name), (Part("sinusoidal", "embedding"),))
        part = "{kind: sinusoidal, place: embedding}"
        usage = f"position: {{name: mine, position_ids: {{name: {name}}}, parts: [{part}]}}"
    else:
        known = [*PRESETS, *KINDS, *POSITION_IDS]
        raise ShapeshiftError(f"no preset or kind {name!r}{nearest(name, known)}")
    described = [] if name in POSITION_IDS else [part.kind for part in scheme.parts]
    ids = scheme.position_ids.name
    if name in POSITION_IDS or ids != "absolute":
        described.append(ids)
    parts = " + ".join(map(str, scheme.parts)) or "no position"
    show(f"{name}: {parts}, position ids {scheme.position_ids}")
    for title in dict.fromkeys(described):
        entry = KINDS.get(title) or POSITION_IDS[title]
        show(f"\n{title}: {entry.summary} ({entry.source})\n")
        text = inspect.getdoc(entry.build) or ""
        # Paragraphs and items in one line each, which fits a terminal of any width.
        _show_text(re.sub(r"(?<=\S)\n(?=\S| {8,}\S)", " ", text.partition("\nRaises:")[0]))
        options = [
            option if parameter.default is parameter.empty else f"{option}={parameter.default}"
            for option, parameter in entry.options().items()
        ]
        _show_text(f"\noptions: {', '.join(options) or 'none'}")
    _show_text(
        f"parameters added to transformer-base: {catalogue.count_parameters(scheme):,}\n"
        f"exports to {', '.join(catalogue.EXPORTS)}; CTranslate2:"
        f" {support(scheme, ModelConfig(size='base'))}\n"
        f"in a configuration: {usage}"
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
