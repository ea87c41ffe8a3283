"""`shapeshift report`: everything that was reproduced, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder that reproduce wrote to.")
    ] = Path("reproduced"),
    output: Annotated[
        Path | None,
        typer.Option(help="Of the page. [default: DIR/report.html]", show_default=False),
    ] = None,
) -> None:
    """Write all that was reproduced as one HTML page that opens from the disk.

    Each number shows its command, settings, metric signature and hashes. Links to the tables' and
    figures' files are relative to the page.
    """
    from shapeshift.cli.progress import results_console
    from shapeshift.disk import replacing
    from shapeshift.report.collect import collect, count, findings
    from shapeshift.report.page import page

    papers = collect(directory)
    path = output or directory / "report.html"
    text = page(papers, path.parent)
    with replacing(path) as stream:
        stream.write(text)
    items = [item for paper in papers for item in paper.items]
    counts = count(finding for _, finding in findings(items))
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    out = results_console()
    out.print(f"items: {len(items)}; claims: {said}")
    out.print(str(path), soft_wrap=True)
