"""`shapeshift export`: a trained model for another engine, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shapeshift.cli.options import usage_error

if TYPE_CHECKING:
    from shapeshift.export.ctranslate2 import Report


def export(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN]", help="Folder of a trained run.", show_default=False),
    ] = None,
    to: Annotated[Literal["ctranslate2"], typer.Option(help="The engine.")] = "ctranslate2",
    quantization: Annotated[
        Literal["int8", "int8_float32", "bfloat16", "float16"] | None,
        typer.Option(help="Of the weights.  [default: none, fp32]", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write, missing or empty.  [default: RUN/ctranslate2, or"
            " RUN/ctranslate2-int8 and so on]",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="Weights: average, last, best or the update of a checkpoint.")
    ] = "average",
    max_length: Annotated[
        int,
        typer.Option(
            min=2,
            help="The most tokens of a sentence, where the engine needs a table of positions and"
            " the model has no limit of its own.",
        ),
    ] = 1024,
    list_all: Annotated[
        bool, typer.Option("--list", help="Show which kinds at which places can be exported.")
    ] = False,
) -> None:
    """Export a trained model to CTranslate2, and check the result.

    The exported model is compared with the trained one: log-probabilities and beam search, on
    sentences of the lengths at which positions may go wrong. If they differ, or if positions change
    nothing, nothing is written. The report is export.json in the folder. With --quantization, the
    check runs in fp32, and the differences of the quantized model are shown.

    Example: shapeshift export runs/mine-shape --quantization int8
    """
    if list_all:
        _print_support()
        return
    if run is None:
        raise usage_error("RUN", "name the folder of a trained run, or give --list")
    from shapeshift.cli.output import show
    from shapeshift.data.prepared import REPORT_OF_RUN
    from shapeshift.data.prepared import Report as DataReport
    from shapeshift.export.ctranslate2 import export as export_model
    from shapeshift.lab.run import SUBWORDS, Run
    from shapeshift.threads import set_num_threads

    trained = Run(run)
    set_num_threads(trained.config.model.dim)
    target = output or run / "-".join(filter(None, (to, quantization)))
    train = DataReport.read(run / REPORT_OF_RUN, "train again in a new folder").splits["train"]
    report = export_model(
        trained.model(checkpoint),
        trained.config.model,
        trained.config.position.scheme,
        trained.subwords(),
        target,
        subword_models=run / SUBWORDS,
        quantization=quantization,
        max_length=max_length,
        longest=(train.source_length.max, train.target_length.max),
    )
    _print_report(report)
    show(target)


def _print_report(report: Report) -> None:
    from shapeshift.cli.output import show, show_table
    from shapeshift.evaluation.tables import Table
    from shapeshift.export.parity import TOLERANCE

    parity, quantized = report.parity, report.quantized
    lengths = [length for pair in parity.lengths for length in pair]
    pairs = f"{len(parity.lengths)} pairs of {min(lengths)} to {max(lengths)} subwords"
    allowed = f"{TOLERANCE:.0e}"
    rows = [
        (f"log p of a token, {pairs} in a batch", f"{parity.log_prob:.1e}", allowed),
        ("each pair by itself", f"{parity.alone:.1e}", allowed),
        ("score of beam search, a token", f"{parity.beam_score:.1e}", allowed),
    ]
    for stack, effect in parity.effects.items():
        name = f"log p of a token without positions of the {stack}"
        rows.append((name, f"{effect:.1e}", f"above {allowed}"))
    if quantized is not None:
        name = f"{report.quantization}, computed in {quantized.computed_in} here"
        both = f"{quantized.log_prob:.1e}, mean {quantized.mean_log_prob:.1e}"
        rows.append((f"{name}: log p of a token", both, "–"))
        rows.append((f"{name}: same output of beam search", f"{quantized.same_output:.0%}", "–"))
    title = f"{report.engine}, largest difference from the trained model"
    show_table(Table((title, "found", "allowed"), rows))
    show(f"positions are {report.positions.replace('--max-length', str(report.max_length))}")


def _print_support() -> None:
    from shapeshift.cli.output import columns, results_console
    from shapeshift.export.support import table

    shown = columns("kind", "place", "CTranslate2")
    for row in table():
        shown.add_row(*row)
    results_console().print(shown)
