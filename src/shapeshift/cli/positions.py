"""`shapeshift positions`: presets, kinds and position ids."""

from __future__ import annotations

import inspect
import re
from typing import Annotated

import typer

from shapeshift.cli.output import show, show_table
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.own_modules import is_own

PURPOSE = {
    "none": "A decoder with a causal mask can infer positions by itself. An encoder cannot: it"
    " reads a set of tokens. Choose it if the order of tokens does not matter.",
    "sinusoidal": "Adds fixed sines and cosines of a token's position. It is simple and fast, and"
    " every engine supports it; choose it as the baseline. Quality usually drops beyond the longest"
    " training text.",
    "learned": "Adds a trained vector for each position, as BERT and GPT-2 do. Choose it to compare"
    " with such a model. It has no positions beyond its table.",
    "shaw": "Adds trained vectors for the distance between two tokens to keys and values. Choose it"
    " first for translation; it takes more time than absolute positions.",
    "skew": "Adds trained vectors for the distance between two tokens to the keys of each head."
    " Choose it to compare with `shaw`, which also adds them to the values.",
    "t5": "Adds a trained number for each range of distances to the scores. Choose it for relative"
    " positions at little extra cost, or to continue training a T5.",
    "alibi": "Subtracts a fixed multiple of the distance from the scores. Choose it for language"
    " models that read much longer texts than in training.",
    "kerple": "Subtracts a trained, logarithmic function of the distance from the scores. Choose it"
    " for language models that read much longer texts than in training.",
    "fire": "Adds a trained function of the distance, divided by the position of the query, to the"
    " scores. Choose it for language models that read longer texts than in training.",
    "rotary": "Rotates queries and keys by their positions, so that scores depend on distances. It"
    " has no parameters, and most language models use it; choose it first for them. `scaling`"
    " extends a trained model to longer texts.",
    "xpos": "Rotary positions whose scores also decay with distance. Choose it for decoders that"
    " read longer texts than in training.",
    "tupe": "Compares positions and words separately, with separate projections. It was proposed"
    " for pre-training of encoders such as BERT: choose it there.",
    "absolute": "Tokens have the numbers 0, 1, 2, …. Choose it unless you"
    " need one of the others: it is the usual one.",
    "shifted": "In training, each sequence begins at a random number (SHAPE), so that the model"
    " learns to compare positions. Choose it if you must keep absolute positions: inference does"
    " not change.",
    "randomized": "In training, tokens have random increasing numbers, so that the model also sees"
    " large ones. Choose it for algorithmic tasks with long training.",
}
"""What each kind or choice of position ids does, and when to choose it."""


def positions(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A preset or a kind to describe; one of your own is module:Class.",
        ),
    ] = None,
) -> None:
    """List the position representations, or describe one.

    Lists the presets, the kinds of position representation, and the position ids. With a NAME, such
    as rope, describes what it does, its options, its cost, its exports and how to use it. The
    number of parameters is the one that it adds to transformer-base.
    """
    if name is not None:
        _describe(name)
        return
    from shapeshift.evaluation.tables import Table
    from shapeshift.model import catalogue
    from shapeshift.positions import KINDS, POSITION_IDS, PRESETS
    from shapeshift.positions.registry import find_kind, kind_names

    presets = []
    for preset, scheme in PRESETS.items():
        described = str(scheme).removesuffix(", position ids absolute")
        presets.append((preset, described, f"{catalogue.count_parameters(*scheme.parts):,}"))
    places: dict[str, list[str]] = {}
    for cell in catalogue.cells():
        place = f"{cell.at} ({catalogue.count_parameters(cell):,})"
        places.setdefault(cell.kind, []).append(place)
    kinds = [(kind, x.summary, ", ".join(places[kind]), x.source) for kind, x in KINDS.items()]
    for kind in (name for name in kind_names() if name not in KINDS):  # of installed packages
        own = find_kind(kind)
        kinds.append((kind, own.summary, ", ".join(own.build.places), own.source))
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
    from shapeshift import kernels
    from shapeshift.export.support import ENGINES, support
    from shapeshift.foreign_names import FOREIGN_POSITIONS
    from shapeshift.model import ModelConfig, catalogue
    from shapeshift.positions import (
        KINDS,
        POSITION_IDS,
        PRESETS,
        Part,
        PositionIds,
        Representation,
        Scheme,
    )
    from shapeshift.positions.registry import find_kind, kind_names

    usage = f"position: {name}"
    if name in PRESETS:
        scheme = PRESETS[name]
    elif name in KINDS or is_own(name) or name in kind_names():
        scheme = Scheme(parts=(Part(name, find_kind(name).build.places[0]),))
        place = scheme.parts[0].place
        usage = f"position: {{name: mine, parts: [{{kind: {name}, place: {place}}}]}}"
    elif name in POSITION_IDS:
        scheme = Scheme(PositionIds(name), (Part("sinusoidal", "embedding"),))
        part = "{kind: sinusoidal, place: embedding}"
        usage = f"position: {{name: mine, position_ids: {{name: {name}}}, parts: [{part}]}}"
    else:
        known = [*PRESETS, *KINDS, *POSITION_IDS]
        meant = FOREIGN_POSITIONS.get(name.lower().replace("-", "_"), name)
        remedy = nearest(meant, known) or "; `shapeshift positions` lists all"
        raise ShapeshiftError(f"no preset or kind {name!r}{remedy}")
    kinds = [] if name in POSITION_IDS else [part.kind for part in scheme.parts] or ["none"]
    show(f"{name}: {scheme}")
    ids = scheme.position_ids.name
    shown = (each for each in (*kinds, ids) if each != "absolute" or name == each)
    for title in dict.fromkeys(shown):
        entry = POSITION_IDS.get(title) or find_kind(title)
        show(f"\n{title}: {entry.summary} ({entry.source})\n")
        if title in PURPOSE:
            show(f"{PURPOSE[title]}\n")
        if entry.build is not Representation:  # whose documentation is for authors of kinds
            text = inspect.getdoc(entry.build) or ""
            show(re.split(r"\n(?:Raises|Attributes):", text)[0].rstrip() + "\n")
        options = [
            option if parameter.default is parameter.empty else f"{option}={parameter.default}"
            for option, parameter in entry.options().items()
        ]
        show(f"options: {', '.join(options) or 'none'}")
    *exact, last = ENGINES
    show(
        f"\nparameters added to transformer-base: {catalogue.count_parameters(*scheme.parts):,}\n"
        f"exports to torch.compile, torch.export, {', '.join(exact)};"
        f" {last}: {support(scheme, ModelConfig(size='base'))}\n"
        f"attention on this CPU: {kernels.describe()}\n"
        f"in a configuration: {usage}\n"
        "how to choose one: docs/guides/choosing.md"
    )
