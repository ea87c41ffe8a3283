"""Where each number is from: its measurements, and the settings of the runs behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shapeshift.lab.results import Row
from shapeshift.papers.document import Entry, ItemDocument
from shapeshift.report.markup import Anchors, Html, element, joined

_Fields = dict[str, str | Html]


class Sources:
    """Gathers what is behind the numbers of a page while its tables are made.

    A number becomes a button that opens its source, which the browser does without a script. The
    sources, and the settings that they link to, stand at the end of the page.

    Args:
        anchors: of the page.
    """

    def __init__(self, anchors: Anchors):
        self._anchors = anchors
        self._sources: list[Html] = []
        self._runs: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def number(self, document: ItemDocument, title: str, entry: Entry) -> Html:
        """Return the content of a field: a button if we know its source, else its text.

        Args:
            document: that it is from.
            title: names the field to somebody who does not see the table.
            entry: the field.
        """
        if not entry.rows and not entry.cells:
            return joined([entry.text])
        anchor = self._anchors.new("source", document.paper, document.item, document.labelled_scale)
        rows = [document.measurements[number] for number in entry.rows]
        parts = [self._measurements(document, rows)] if rows else []
        if entry.data:
            parts.append(self._counted(document, entry))
        elif entry.cells:
            parts.append(self._computed(document, entry.cells))
        self._sources.append(_popover(anchor, title, entry.text, joined(parts)))
        return element(
            "button",
            entry.text,
            type="button",
            class_="number",
            popovertarget=anchor,
            aria_haspopup="dialog",
        )

    def add_runs(self, document: ItemDocument) -> None:
        """Take in the settings of all runs of an item, whether or not a number names them."""
        for key in document.configs:
            self._link(document, key)
        for row in document.measurements:
            self._names.setdefault(row.cell, run_name(row))

    def popovers(self) -> Html:
        """Return all sources, hidden until their button is pressed."""
        return joined(self._sources)

    def runs(self) -> Html:
        """Return the settings of all runs, each once."""
        return joined(
            element(
                "details",
                element(
                    "summary", element("code", key), " ", element("span", self._names.get(key, ""))
                ),
                # The name is inside, so that a browser that goes there opens what is around it.
                element("pre", settings, id=anchor, tabindex=0, aria_label=f"Settings of {key}"),
                class_="run",
            )
            for (key, settings), anchor in self._runs.items()
        )

    def _link(self, document: ItemDocument, key: str) -> Html:
        """Return a run's key, leading to its settings if the document has them."""
        settings = document.configs.get(key)
        if settings is None:
            return element("code", key)
        if (key, settings) not in self._runs:
            self._runs[key, settings] = self._anchors.new("run", key)
        return element("a", element("code", key), href=f"#{self._runs[key, settings]}")

    def _counted(self, document: ItemDocument, entry: Entry) -> Html:
        """Return the data that a number was counted in."""
        runs = joined([self._link(document, key) for key in entry.cells], ", ")
        return definitions({"counted in data, SHA-256": _code(entry.data), "data of run": runs})

    def _computed(self, document: ItemDocument, keys: Sequence[str]) -> Html:
        """Return the runs that a number was computed from, each with its own BLEU."""
        runs = []
        for key in keys:
            rows = [r for r in document.measurements if r.cell == key and r.is_corpus_bleu]
            measured = self._measurements(document, rows) if rows else None
            runs.append(element("li", self._link(document, key), measured))
        return joined([element("p", "Computed from the outputs of:"), element("ul", *runs)])

    def _measurements(self, document: ItemDocument, rows: Sequence[Row]) -> Html:
        """Return measurements: what they share, then each with what is its own."""
        fields = [_fields(row) | {"run": self._link(document, row.cell)} for row in rows]
        names = dict.fromkeys(name for each in fields for name in each)
        shared = [name for name in names if len({each.get(name) for each in fields}) == 1]
        own = [name for name in names if name not in shared]
        parts = [
            element(
                "li",
                element("p", f"seed {row.seed}: ", element("b", repr(row.value))),
                definitions({name: each[name] for name in own if name in each}),
            )
            for row, each in zip(rows, fields, strict=True)
        ]
        return joined(
            [definitions({name: fields[0][name] for name in shared}), element("ol", *parts)]
        )


@dataclass(frozen=True)
class Context:
    """What the parts of a page share.

    Attributes:
        root: folder of the page; links to files are relative to it.
        anchors: names for places on the page.
        sources: takes in where the numbers are from.
    """

    root: Path
    anchors: Anchors
    sources: Sources


def definitions(fields: Mapping[str, str | None]) -> Html:
    """Return a list of names and values; values that are missing are left out."""
    pairs = [
        element("div", element("dt", name), element("dd", value))
        for name, value in fields.items()
        if value
    ]
    return element("dl", *pairs) if pairs else Html()


def run_name(row: Row) -> str:
    """Return a run's name in words: `shape-table2, position ape, seed 1, tiny`."""
    axes = [f"{axis} {setting}" for axis, setting in row.axes.items()]
    return ", ".join([row.grid, *axes, f"seed {row.seed}", row.scale])


def _fields(row: Row) -> _Fields:
    given: dict[str, str | None] = {
        "metric": row.metric,
        "measured on": row.dataset,
        "part": row.bucket,
        "update": None if row.step is None else str(row.step),
        **row.axes,
        "grid": row.grid,
        "scale": row.scale,
        "measure": row.measure,
        "signature": _code(row.signature),
        "hypotheses, SHA-256": _code(row.hypotheses),
        "references, SHA-256": _code(row.references),
        "weights, SHA-256": _code(row.checkpoint),
        "command": _code(row.command),
        "version": row.version,
        "time": row.time,
        "hardware": row.hardware,
    }
    return {name: value for name, value in given.items() if value}


def _code(text: str | None) -> Html | None:
    return element("code", text) if text else None


def _popover(anchor: str, title: str, text: str, content: Html) -> Html:
    close = element(
        "button",
        "Close",
        type="button",
        popovertarget=anchor,
        popovertargetaction="hide",
    )
    heading = element("h3", title, id=f"{anchor}-heading")
    return element(
        "div",
        element("div", heading, close, class_="bar"),
        element("p", text, class_="shown"),
        content,
        id=anchor,
        popover="auto",
        role="dialog",
        aria_labelledby=f"{anchor}-heading",
        class_="source",
    )
