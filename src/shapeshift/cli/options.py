"""Options that several subcommands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

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
        show_default=False,
    ),
]

PreparedRoot = Annotated[Path, typer.Option(help="Folder of prepared data, shared by all runs.")]
PREPARED_ROOT = Path("prepared")

STDIN = "-"
"""Stands for standard input where a file is named."""

OF_A_TRAINED_MODEL = (
    "decoding",
    "evaluation.detokenize",
    "training.device",
    "training.precision",
)
"""Settings and sections that affect how a trained model translates."""


def refuse_without_effect(
    settings: Iterable[str], allowed: tuple[str, ...], remark: str = ""
) -> None:
    """Refuse a setting given with `--set` that has no effect.

    Args:
        settings: each `KEY=VALUE`.
        allowed: keys, and sections of keys.
        remark: follows "has no effect" in the message.

    Raises:
        typer.BadParameter: for the first one.
    """
    for key in (setting.partition("=")[0] for setting in settings):
        if not any(f"{key}.".startswith(f"{each}.") for each in allowed):
            raise typer.BadParameter(
                f"{key} has no effect{remark}; give {' or '.join(allowed)}", param_hint="--set"
            )
