"""`shapeshift positions`: what there is."""

from __future__ import annotations


def positions() -> None:
    """List the presets, the kinds of position representation, and the ways to number tokens."""
    from rich.table import Table

    from shapeshift.cli.progress import results_console
    from shapeshift.positions import INDICES, KINDS, PRESETS

    presets = Table("preset", "indices", "kind at place")
    for name, scheme in PRESETS.items():
        parts = [
            f"{part.kind} at {part.place}" + f" ({part.stacks})" * (part.stacks != "both")
            for part in scheme.parts
        ]
        options = "".join(f", {key}={value}" for key, value in scheme.indices.options.items())
        presets.add_row(name, scheme.indices.name + options, " + ".join(parts) or "none")
    kinds = Table("kind", "what it does", "places", "shift invariant", "options", "source")
    for name, entry in KINDS.items():
        kinds.add_row(
            name,
            entry.summary,
            ", ".join(entry.build.places),
            "yes" if entry.build.shift_invariant else "no",
            ", ".join(entry.options()) or "–",
            entry.source,
        )
    indices = Table("indices", "what they are", "options", "source")
    for name, way in INDICES.items():
        indices.add_row(name, way.summary, ", ".join(way.options()) or "–", way.source)
    console = results_console()
    for table in (presets, kinds, indices):
        console.print(table)
