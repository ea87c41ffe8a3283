"""`shapeshift demo`: APE, SHAPE and RPE side by side, inside and beyond the training lengths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import PREPARED_ROOT, Overrides, PreparedRoot

if TYPE_CHECKING:
    from shapeshift.lab.comparison import Comparison

SYSTEMS = {
    "ape": ("position=ape",),
    "shape-40": ("position=shape", "position.indices.max_offset=40"),
    "rpe": ("position=rpe",),
}
"""The three systems of Kiyono et al. 2021; K = 40 is the paper's value for Extrapolate."""


def demo(
    overrides: Overrides = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="YAML file of settings, or the name of a shipped one. [default: demo]",
            show_default=False,
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME [KEY=VALUE]...'",
            help="A system: a preset, or a name and settings. [default: ape, shape-40, rpe]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[list[int], typer.Option(help="Of training; may be given several times.")] = [1],  # noqa: B006
    directory: Annotated[Path, typer.Option(help="Folder of the runs and results.")] = Path(
        "runs/demo"
    ),
    prepared: PreparedRoot = PREPARED_ROOT,
) -> None:
    """Train APE, SHAPE and RPE on the same text and compare them by source length.

    Without options: the built-in English-German grammar, training pairs of at most 20 subwords,
    test pairs of all lengths, some minutes a model on two cores. The same command continues a
    comparison that was stopped and runs nothing twice: Ctrl-C and SIGTERM end the update, save a
    checkpoint and exit with 130 or 143.
    """
    import time

    from shapeshift.cli.progress import Steps, TrainingDisplay, console, make_progress, show_resumed
    from shapeshift.cli.signals import ending_on_signals
    from shapeshift.config import parse_config
    from shapeshift.config_file import find_config, read_document
    from shapeshift.lab.comparison import compare
    from shapeshift.threads import set_num_threads
    from shapeshift.training.stopping import StopSignals

    source = find_config(config or "demo")
    systems = _parse_systems(system) if system else SYSTEMS
    shared = tuple(overrides or ())
    for setting in shared:
        if setting.startswith("training.seed="):
            raise typer.BadParameter("give --seed instead", param_hint=setting)
        if "=" not in setting and setting.endswith((".yaml", ".yml")):
            raise typer.BadParameter(f"give --config {setting}", param_hint=setting)
    document = read_document(source)
    set_num_threads(parse_config(document, shared, source).model.dim)
    began = time.monotonic()
    with ending_on_signals("the same command goes on"), make_progress() as progress:
        result = compare(
            document,
            {name: (*settings, *shared) for name, settings in systems.items()},
            seed,
            directory,
            observe=lambda name, settings: TrainingDisplay(
                progress, name, settings.training.max_updates
            ),
            on_progress=Steps(progress),
            on_resume=show_resumed,
            prepared_root=prepared,
            stop=StopSignals(),
        )
    _show(result)
    console.print(f"done in {time.monotonic() - began:.0f} s")


def _show(result: Comparison) -> None:
    from shapeshift.cli.progress import results_console

    table = result.table()
    out = results_console()
    out.print("BLEU by source length in subwords")
    out.print(table.rich())
    for line in (*table.notes, *map(str, result.files)):
        out.print(line, soft_wrap=True)


def _parse_systems(texts: list[str]) -> dict[str, tuple[str, ...]]:
    from pydantic import TypeAdapter, ValidationError

    from shapeshift.positions import PRESETS
    from shapeshift.schema import PlainName

    systems: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, *settings = text.split() or [""]
        try:
            TypeAdapter(PlainName).validate_python(name)
        except ValidationError:
            raise typer.BadParameter(
                f"expected a name, which also names a folder, and settings, got {text!r}",
                param_hint="--system",
            ) from None
        if name in systems:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--system")
        preset = [f"position={name}"] if name in PRESETS or not settings else []
        systems[name] = (*preset, *settings)
    return systems
