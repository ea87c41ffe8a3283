"""Options and arguments that several subcommands share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shapeshift.run.folder import Run

ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="YAML file of settings, or the name of a shipped one: multi30k, …"
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings that replace those of the file, such as position=shape.",
    ),
]

PreparedRoot = Annotated[Path, typer.Option(help="Folder of prepared data, shared by all runs.")]
PREPARED_ROOT = Path("prepared")

Results = Annotated[Path, typer.Option(help="Folder of runs and results, shared by all commands.")]

Jobs = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Number of runs at a time; 0 trains one after the other in this"
        " process. [default: one for each GPU; without a GPU, as many as the cores allow: a narrow"
        " model (model.dim up to 128) takes one core, a wider one four]",
    ),
]

DryRunOfGrid = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check every setting, print the time and disk space that the runs that are left take,"
        " and which text is missing, and stop.",
    ),
]

TrainedRun = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")]

Checkpoint = Annotated[
    str, typer.Option(help="Weights: average, last, best or the number of an update.")
]

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as decoding.beam=10."),
]
"""For commands on a trained model."""

SHAPE_10 = "shape-10 position=shape position.position_ids.max_offset=10"
"""SHAPE for runs that are too short to learn word order with the paper's K = 500 (docs/faq.md)."""

STDIN = "-"
"""The file name that means standard input."""

OF_A_TRAINED_MODEL = ("decoding", "evaluation.detokenize", "training.device", "training.precision")
"""Settings and sections that affect how a trained model translates."""


def usage_error(option: str, problem: str) -> typer.BadParameter:
    """Return the error for a missing or misused option; the command then exits with 2."""
    return typer.BadParameter(problem, param_hint=option)


def read_text(name: str) -> tuple[str, Iterator[str]]:
    """Return a name for error messages, and the lines of a file or of standard input."""
    from shapeshift.data.sources.files import read_lines, read_stream

    if name != STDIN:
        return name, read_lines(name)
    return "<stdin>", read_stream(sys.stdin.buffer, "<stdin>")


def open_run(directory: Path, settings: Sequence[str] = ()) -> Run:
    """Return a trained run with the settings of `--set`, and set PyTorch's number of threads to fit
    its model."""
    refuse_without_effect(settings)
    from shapeshift._system.threads import set_num_threads
    from shapeshift.run.folder import Run

    run = Run(directory, settings)
    set_num_threads(run.config.model.dim)
    return run


def refuse_without_effect(settings: Iterable[str]) -> None:
    """Raise an error for a setting of `--set` that has no effect on a trained model."""
    sections = tuple(f"{each}." for each in OF_A_TRAINED_MODEL)
    for key in (setting.partition("=")[0] for setting in settings):
        if not f"{key}.".startswith(sections):
            what = f"has no effect on a trained model; what has: {', '.join(OF_A_TRAINED_MODEL)}"
            raise usage_error("--set", f"{key} {what}")
