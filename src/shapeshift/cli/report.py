"""`shapeshift report`: all reproduced studies on one page."""

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
        Path | None, typer.Option(help="File of the page. [default: DIR/report.html]")
    ] = None,
) -> None:
    """Write all results of reproduce or compare as one HTML page.

    Each number shows its command, settings, metric signature and hashes. Links to the tables' and
    figures' files are relative to the page.
    """
    from shapeshift.study.report.collect import count
    from shapeshift.study.report.page import PAGE, write_page

    path = output or directory / PAGE
    studies = [study for paper in write_page(directory, path) for study in paper.studies]
    counts = count(finding for study in studies for finding in study.document.findings)
    claims = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    show(f"studies: {len(studies)}; claims: {claims or 'none'}")
    show(path)
