"""Options and arguments that several subcommands share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import nn

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
        help="Check every setting, print the time and disk space that all runs take, and which text"
        " is missing, and stop.",
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

OF_A_TRAINED_MODEL = (
    "decoding",
    "evaluation.detokenize",
    "training.device",
    "training.precision",
)
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


def load_model(name: str) -> tuple[nn.Module, Run | None]:
    """Return the model that the user names, and its run if it has one: the folder of a run,
    `module:factory`, or a name or folder of Hugging Face."""
    from shapeshift._system.errors import ShapeshiftError, reason, require
    from shapeshift._system.own_modules import find, is_own

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
