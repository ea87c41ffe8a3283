"""`shapeshift report`: all reproduced items on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeshift.cli.output import show


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder that reproduce or compare wrote to.")
    ] = Path("reproduced"),
    output: Annotated[
        Path | None,
        typer.Option(help="File of the page. [default: DIR/report.html]"),
    ] = None,
) -> None:
    """Write all results of reproduce or compare as one HTML page.

    Each number shows its command, settings, metric signature and hashes. Links to the tables' and
    figures' files are relative to the page.
    """
    from shapeshift.study.report.collect import count
    from shapeshift.study.report.page import PAGE, write_page

    path = output or directory / PAGE
    items = [item for paper in write_page(directory, path) for item in paper.items]
    counts = count(finding for item in items for finding in item.document.findings)
    claims = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    show(f"items: {len(items)}; claims: {claims or 'none'}")
    show(path)
