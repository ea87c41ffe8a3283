"""`shapeshift report`: all reproduced items on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.output import show, write

if TYPE_CHECKING:
    from shapeshift.report.collect import ReportPaper

PAGE = "report.html"


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder that reproduce wrote to.")
    ] = Path("reproduced"),
    output: Annotated[
        Path | None,
        typer.Option(help="Of the page. [default: DIR/report.html]", show_default=False),
    ] = None,
) -> None:
    """Write all that was reproduced as one HTML page.

    Each number shows its command, settings, metric signature and hashes. Links to the tables' and
    figures' files are relative to the page.
    """
    from shapeshift.report.collect import count, findings

    papers = write_page(directory, output or directory / PAGE)
    items = [item for paper in papers for item in paper.items]
    counts = count(finding for _, finding in findings(items))
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    show(f"items: {len(items)}; claims: {said or 'none'}")
    show(output or directory / PAGE)


def write_page(directory: Path, path: Path) -> list[ReportPaper]:
    """Write the page of all items below a folder, and return them.

    Args:
        directory: that `reproduce` wrote to.
        path: of the page.

    Raises:
        ShapeshiftError: there is no item, or one that cannot be read.
    """
    from shapeshift.report.collect import collect
    from shapeshift.report.page import page

    papers = collect(directory)
    write(path, page(papers, path.parent))
    return papers
