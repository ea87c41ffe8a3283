"""`shapeshift check`: whether positions work in a model of any library."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.models import load_model
from shapeshift.cli.output import show, show_table

if TYPE_CHECKING:
    from torch import nn


def check(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Name or folder of a Hugging Face model (causal, encoder-decoder, masked, or of"
            " text and images), the folder of a run, or module:factory, a function without"
            " arguments that returns a model.",
        ),
    ],
    positions: Annotated[
        Literal["absolute", "relative", "none"] | None,
        typer.Option(
            help="Positions that the model claims; relative: adding a number to all positions"
            " changes nothing.  [default: what its modules say]"
        ),
    ] = None,
    max_length: Annotated[
        int, typer.Option(min=4, help="Longest sequence to test, besides the limit itself.")
    ] = 300,
    declared: Annotated[
        bool,
        typer.Option(
            "--declared",
            help="Measure the positions of each layer instead, and compare them with what the"
            " configuration says.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Find the smallest input for which another model with the same weights gives other"
            " logits, and which positions differ. One of the two may be a file of GGUF or ONNX, or"
            " a folder for ONNX or CTranslate2.",
        ),
    ] = None,
) -> None:
    """Check that positions work in a model of any library.

    With a cache, padding, packing, other rows in the batch, bfloat16, shifts, and beyond the
    trained length, the model must give the logits that it gives for a sequence alone. The command
    prints a table with the smallest failing inputs and exits with 1 if anything fails. The model
    runs on the CPU, with random token ids and no tokenizer. A run is also exported to every
    installed engine, and the exported models are compared with it.

    With --declared, it prints what each layer does: which channels rotate and by which angles,
    windows, biases, the first row of a table, and the positions of images. It exits with 1 if the
    configuration says otherwise, or if nothing could be measured.

    With --against, it compares two implementations of a model, and exits with 1 if they part.

    Example: shapeshift check gpt2
    """
    from shapeshift.check import check as check_model

    if against is not None:
        if positions is not None or declared:
            raise ShapeshiftError(
                "--against takes neither --declared nor --positions; leave them out"
            )
        _show_partings(model, against, max_length)
        return
    if declared:
        if positions is not None or max_length != 300:
            raise ShapeshiftError(
                "--declared takes neither --max-length nor --positions; leave them out"
            )
        _show_declared(load_model(model)[0])
        return
    loaded, run = load_model(model)
    findings = check_model(loaded, positions=positions, max_length=max_length)
    if run is not None:
        from shapeshift.run.export import check_exports

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other libraries say of their own parts
            findings += check_exports(run)
    rows = [(each.property, each.side, each.outcome, each.detail) for each in findings]
    header = ("property", "side", "outcome", "closest or smallest case")
    show_table(header, rows, numbers=False)
    failures = [finding for finding in findings if finding.outcome == "FAIL"]
    for finding in failures:
        for ids in finding.ids:
            show(f"{finding.property}, {finding.side}: {' '.join(map(str, ids))}")
    if failures:
        raise typer.Exit(1)


def _show_partings(model: str, other: str, max_length: int) -> None:
    """Print where two models part; exit with 1 if they do."""
    from shapeshift.check import against, open_engine
    from shapeshift.check.engines import Engine

    loaded = [open_engine(name, max_length) or load_model(name)[0] for name in (model, other)]
    partings = against(loaded[0], loaded[1], max_length=max_length)
    for parting in partings:
        length = len(parting.ids)
        show(
            f"{parting.side}: logits differ by {parting.difference:.1e} from {length}"
            f" {'token' if length == 1 else 'tokens'} on, at position {parting.position}:"
            f" {' '.join(map(str, parting.ids))}"
        )
        # Of an engine, nothing is measured.
        columns = [
            name
            for name, each in zip(("MODEL", "OTHER"), loaded, strict=True)
            if not isinstance(each, Engine)
        ]
        verb, width = ("differs", 4) if len(columns) == 2 else ("acts", 3)
        rows = [(x.property, x.where(), x.measured, x.declared)[:width] for x in parting.readings]
        if not rows:
            show(f"no position that --declared measures {verb}: compare weights and other layers")
            continue
        if width == 3:
            show(f"only {columns[0]} can be measured; one of its positions may be the reason:")
        show_table(("property", "layers", *columns), rows, numbers=False)
    if partings:
        raise typer.Exit(1)
    show(f"no difference in sequences of up to {max_length} tokens, or of all that the models take")


def _show_declared(model: nn.Module) -> None:
    """Print what a model does with positions; exit with 1 if its configuration says otherwise, or
    nothing was measured."""
    from shapeshift.check import declared

    readings = declared(model)
    rows = [(x.property, x.where(), x.measured, x.declared, x.outcome) for x in readings]
    show_table(("property", "layers", "measured", "declared", "outcome"), rows, numbers=False)
    if any(reading.outcome == "DIFFERS" for reading in readings):
        raise typer.Exit(1)
    if all(reading.outcome == "not measured" for reading in readings):
        raise ShapeshiftError(
            f"nothing was measured in this {type(model).__name__}, for the reasons in the table; if"
            " its attention was not reached, give a module:factory that loads the model with"
            " attn_implementation='eager'"
        )
