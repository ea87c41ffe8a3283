"""`shapeshift check`: whether positions work in a model of any library."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from shapeshift._system.errors import ShapeshiftError, reason, require
from shapeshift._system.own_modules import find, is_own

if TYPE_CHECKING:
    from torch import nn

    from shapeshift.run.folder import Run


def check(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Name or folder of a Hugging Face model (causal, encoder-decoder or masked), the"
            " folder of a run, or module:factory, a function without arguments that returns a"
            " model.",
        ),
    ],
    positions: Annotated[
        Literal["absolute", "relative", "none"] | None,
        typer.Option(
            help="Positions that the model claims; relative: adding a number to all positions"
            " changes nothing.  [default: what its modules say]",
            show_default=False,
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
            " logits, and which positions differ.",
            show_default=False,
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
    windows, biases and the first row of a table. It exits with 1 if the configuration says
    otherwise.

    With --against, it compares two implementations of a model, and exits with 1 if they part.

    Example: shapeshift check gpt2
    """
    from shapeshift.check import check as check_model
    from shapeshift.cli.output import show, show_table
    from shapeshift.evaluation.tables import Table

    if against is not None:
        if positions is not None or declared:
            raise ShapeshiftError(
                "--against takes neither --declared nor --positions; leave them out"
            )
        _show_partings(_load(model)[0], _load(against)[0], max_length)
        return
    if declared:
        if positions is not None or max_length != 300:
            raise ShapeshiftError(
                "--declared takes neither --max-length nor --positions; leave them out"
            )
        _show_declared(_load(model)[0])
        return
    loaded, run = _load(model)
    findings = check_model(loaded, positions=positions, max_length=max_length)
    if run is not None:
        from shapeshift.run.export import check_exports

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other libraries say of their own parts
            findings += check_exports(run)
    rows = [(each.property, each.side, each.outcome, each.detail) for each in findings]
    header = ("property", "side", "outcome", "closest or smallest case")
    show_table(Table(header, rows), numbers=False)
    failures = [finding for finding in findings if finding.outcome == "FAIL"]
    for finding in failures:
        for ids in finding.ids:
            show(f"{finding.property}, {finding.side}: {' '.join(map(str, ids))}")
    if failures:
        raise typer.Exit(1)


def _show_partings(model: nn.Module, other: nn.Module, max_length: int) -> None:
    """Print where two models part; exit with 1 if they do."""
    from shapeshift.check import against
    from shapeshift.cli.output import show, show_table
    from shapeshift.evaluation.tables import Table

    partings = against(model, other, max_length=max_length)
    for parting in partings:
        show(
            f"{parting.side}: logits differ by {parting.difference:.1e} from {len(parting.ids)}"
            f" tokens on, at position {parting.position}: {' '.join(map(str, parting.ids))}"
        )
        rows = [(x.property, x.where(), x.measured, x.declared) for x in parting.readings]
        if rows:
            show_table(Table(("property", "layers", "MODEL", "OTHER"), rows), numbers=False)
        else:
            show("no position that --declared measures differs: compare weights and other layers")
    if partings:
        raise typer.Exit(1)
    show(f"no difference in sequences of up to {max_length} tokens, or of all that the models take")


def _show_declared(model: nn.Module) -> None:
    """Print what a model does with positions; exit with 1 if its configuration says otherwise."""
    from shapeshift.check import declared
    from shapeshift.cli.output import show_table
    from shapeshift.evaluation.tables import Table

    readings = declared(model)
    rows = [(x.property, x.where(), x.measured, x.declared, x.outcome) for x in readings]
    show_table(
        Table(("property", "layers", "measured", "declared", "outcome"), rows), numbers=False
    )
    if any(reading.outcome == "DIFFERS" for reading in readings):
        raise typer.Exit(1)


def _load(name: str) -> tuple[nn.Module, Run | None]:
    """Return the model that the user names, and its run."""
    path = Path(name)
    if (path / "config.yaml").exists():
        from shapeshift.run.folder import load_run

        run = load_run(name)
        return run.model(), run
    if is_own(name) and not path.exists():
        factory = find(name, "function")
        try:
            return factory(), None
        except (TypeError, ValueError) as error:
            raise ShapeshiftError(
                f"no function {name!r} without arguments returns a model: {error}"
            ) from error
    if "/" in name and path.parent.is_dir() and not path.exists():
        raise ShapeshiftError("no such folder", path=path)
    transformers = require("hf", "transformers")
    import shapeshift.export.huggingface  # noqa: F401  registers our classes
    from shapeshift._system.files import refuse_irregular

    masked = transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    refuse_irregular(path)
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
        kind = transformers.AutoModelForCausalLM
        if config.is_encoder_decoder:
            kind = transformers.AutoModelForSeq2SeqLM
        elif type(config) in masked and not getattr(config, "is_decoder", False):
            kind = transformers.AutoModelForMaskedLM  # BERT, unless its configuration says more
        return kind.from_pretrained(name, trust_remote_code=False), None
    except Exception as error:  # a stranger's files may raise any of transformers, or of pickle
        raise ShapeshiftError(
            f"{name!r} is neither the folder of a run, nor module:factory, nor a causal, masked or"
            f" encoder-decoder model of Hugging Face: {reason(error)}"
        ) from error
