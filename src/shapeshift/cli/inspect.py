"""`shapeshift inspect`: show how a model processes one sentence, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeshift.cli.options import Checkpoint, TrainedRun
from shapeshift.cli.output import notice, show, write


def inspect(
    run: TrainedRun,
    sentence: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="One sentence of the source language, quoted.")
    ],
    other: Annotated[
        list[Path] | None,
        typer.Option("--against", help="A run to show side by side; may be given several times."),
    ] = None,
    output: Annotated[Path, typer.Option(help="File of the page.")] = Path("inspect.html"),
    checkpoint: Checkpoint = "average",
) -> None:
    """Show how a trained model processes one sentence, as a page.

    The page needs no server. It has the translation with the probability of each subword, the
    attention of every layer and head (encoder, decoder, decoder to source), attention by
    distance, and how much the encoder's states change when all positions are shifted.

    Example: shapeshift inspect runs/mine-shape "A man is sleeping." --against runs/mine-ape
    """
    from shapeshift._system.threads import set_num_threads
    from shapeshift.run.folder import Run
    from shapeshift.run.inspection import inspect_run
    from shapeshift.study.report.inspection import inspection_page

    runs = [Run(directory) for directory in (run, *(other or ()))]
    set_num_threads(max(each.config.model.dim for each in runs))
    inspections = []
    for each in runs:
        inspections.append(inspect_run(each, sentence, checkpoint))
        notice(f"{each.directory}: {inspections[-1].translation}")
    write(output, inspection_page(sentence, inspections))
    show(output)
