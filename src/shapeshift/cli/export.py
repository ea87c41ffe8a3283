"""`shapeshift export`: export a trained model to another engine, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from shapeshift.cli.options import Checkpoint, TrainedRun, open_run, usage_error
from shapeshift.cli.output import show, show_table


def _print_support(requested: bool) -> None:
    if not requested:
        return
    from shapeshift.export.support import ENGINES, table

    show_table(("kind", "place", *ENGINES), [*table()], numbers=False)
    raise typer.Exit


def export(
    run: TrainedRun,
    to: Annotated[
        Literal["ctranslate2", "huggingface", "onnx"],
        typer.Option(
            help="The engine: CTranslate2, Hugging Face's transformers, or ONNX programs."
        ),
    ] = "ctranslate2",
    quantization: Annotated[
        Literal["int8", "int8_float32", "bfloat16", "float16"] | None,
        typer.Option(help="Type of the weights, for CTranslate2.  [default: none, fp32]"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write, missing or empty.  [default: RUN/ctranslate2,"
            " RUN/ctranslate2-int8, RUN/huggingface, RUN/onnx and so on]"
        ),
    ] = None,
    checkpoint: Checkpoint = "average",
    max_length: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Maximum length in tokens, if the engine needs a table of positions and the model"
            " has no limit of its own.  [default: 1024]",
        ),
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option(
            "--list",
            help="Show which kinds at which places can be exported, and exit.",
            is_eager=True,
            callback=_print_support,
        ),
    ] = False,
) -> None:
    """Export a trained model to another engine, checked.

    The exported model is compared with the trained one: log-probabilities and beam search, on
    sentences of the lengths at which positions may go wrong. If they differ, or if positions change
    nothing, nothing is written. The report is export.json in the folder. With --quantization, the
    check runs in fp32.

    Example: shapeshift export runs/mine-shape --quantization int8
    """
    if to != "ctranslate2" and quantization is not None:
        raise usage_error("--quantization", f"has no effect on {to}; leave it out")
    from shapeshift.export.parity import TOLERANCE
    from shapeshift.run.export import export_run
    from shapeshift.run.machine import Machine

    trained = open_run(run)
    target = output or run / "-".join(filter(None, (to, quantization)))
    report = export_run(
        trained,
        to,
        target,
        quantization=quantization,
        checkpoint=checkpoint,
        max_length=max_length,
    )
    parity = report.parity
    lengths = [length for pair in parity.lengths for length in pair]
    allowed = f"{TOLERANCE:.0e}"
    rows = [
        ("log p of a token, all pairs in a batch", f"{parity.log_prob:.1e}", allowed),
        ("log p of a token, each pair by itself", f"{parity.alone:.1e}", allowed),
        ("score of beam search, a token", f"{parity.beam_score:.1e}", allowed),
    ]
    for stack, effect in parity.effects.items():
        name = f"log p of a token without positions of the {stack}"
        rows.append((name, f"{effect:.1e}", f"above {allowed}"))
    show(
        f"{report.engine}, {len(parity.lengths)} pairs of {min(lengths)} to {max(lengths)} subwords"
    )
    show_table(("largest difference from the trained model", "found", "allowed"), rows)
    show(f"positions are {report.positions}; opened by {report.opened_by}")
    if (precision := Machine.here(trained.training).precision) != "fp32":
        show(
            f"compared in fp32; `shapeshift translate` computes in {precision} with this run,"
            " unless you give it training.precision=fp32"
        )
    show(target)
