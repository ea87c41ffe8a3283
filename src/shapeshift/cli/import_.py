"""`shapeshift import`: import a MarianMT model as the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shapeshift.cli.output import show


def import_(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Name or folder of a Hugging Face MarianMT model."),
    ],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder to write, missing or empty.")],
    source: Annotated[
        str | None, typer.Option(help="Source language.  [default: from the tokenizer]")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target language.  [default: from the tokenizer]")
    ] = None,
) -> None:
    """Import a MarianMT model, such as one of OPUS-MT, as a run.

    `translate`, `inspect`, `export` and `training.init_from` can then use the folder like one that
    `train` wrote. Before the command writes anything, it compares the log-probabilities of random
    sentences with those of transformers.

    Example: shapeshift import Helsinki-NLP/opus-mt-en-de runs/opus --source en --target de
    """
    from shapeshift.run.imported import import_marian

    imported = import_marian(model, run, source, target)
    shape = imported.config.model
    show(
        f"{shape.encoder_layers} + {shape.decoder_layers} layers, width {shape.dim}, sinusoidal"
        " positions; the same log-probabilities as transformers"
    )
    show(run)
