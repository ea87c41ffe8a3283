"""`shapeshift inspect`: what a model does with one sentence, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import TrainedRun
from shapeshift.cli.output import notice, show, write

if TYPE_CHECKING:
    from shapeshift.lab.run import Run


def inspect(
    run: TrainedRun,
    sentence: Annotated[str, typer.Argument(help="One sentence of the source language, quoted.")],
    other: Annotated[
        list[Path] | None,
        typer.Option("--against", help="A run to show side by side; may be given again."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Of the page.")] = Path("inspect.html"),
    checkpoint: Annotated[
        str, typer.Option(help="Weights: average, last, best or the update of a checkpoint.")
    ] = "average",
) -> None:
    """Show what a trained model does with one sentence, as a page.

    The page opens from the disk. It has the translation with the probability of each subword, the
    attention of every layer and head (encoder, decoder, decoder to source), attention by
    distance, and how much the encoder's states change when all positions are shifted.

    Example: shapeshift inspect runs/mine-shape "A man is sleeping." --against runs/mine-ape
    """
    from shapeshift.lab.inspection import inspect_run
    from shapeshift.lab.run import Run
    from shapeshift.report.inspection import inspection_page

    runs = [Run(directory) for directory in (run, *(other or ()))]
    found = []
    for each in runs:
        found.append(inspect_run(each, sentence, checkpoint))
        notice(f"{each.directory}: {found[-1].translation}")
    write(output, inspection_page(sentence, found, [_about(each) for each in runs]))
    show(output)


def _about(run: Run) -> list[tuple[str, str]]:
    """Return what describes a run in a few lines."""
    scheme, model = run.config.position.scheme, run.config.model
    parts = " + ".join(map(str, scheme.parts)) or "no position"
    return [
        ("position", f"{run.config.position.name}: {parts}"),
        ("position ids", str(scheme.indices)),
        (
            "model",
            f"{model.encoder_layers} + {model.decoder_layers} layers, width {model.dim},"
            f" {model.num_heads} heads",
        ),
        ("training", f"{run.checkpoints.updates()[-1]:,} updates, seed {run.config.training.seed}"),
    ]
