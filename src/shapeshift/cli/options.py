"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of settings.")]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Settings that replace those of the file, such as position=shape.",
        show_default=False,
    ),
]

PreparedRoot = Annotated[
    Path, typer.Option(help="Folder under which prepared data are kept and found again.")
]
PREPARED_ROOT = Path("prepared")
