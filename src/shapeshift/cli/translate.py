"""`shapeshift translate`: text in, text out, line for line."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, TextIO

import typer


def translate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a trained run.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text to translate, a sentence a line; - or nothing reads standard input.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of standard output.")
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="average, last, best or the number of an update.")
    ] = "average",
    n_best: Annotated[
        int, typer.Option(min=1, help="Print n candidates a line: number, score, text, by tabs.")
    ] = 1,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as decoding.beam=10."),
    ] = None,
) -> None:
    """Translate files or standard input with a trained run.

    One line out for each line in, in order; an empty line stays empty. Output is written as soon as
    a window of lines is done, and line by line when standard input is a terminal.
    """
    from shapeshift.data.files import read_lines, read_stream
    from shapeshift.experiments.run import Run

    translator = Run(run, overrides or []).translator(checkpoint)
    with _open(output) as sink:
        number = 0
        for name in files or ["-"]:
            from_stdin = name == "-"
            lines = read_stream(sys.stdin.buffer, "<stdin>") if from_stdin else read_lines(name)
            waiting = from_stdin and sys.stdin.isatty()
            for best in translator.translate_n_best(lines, n_best, stream=waiting):
                number += 1
                for candidate in best:
                    prefix = f"{number}\t{candidate.score:.4f}\t" if n_best > 1 else ""
                    sink.write(prefix + candidate.text + "\n")
                sink.flush()


def _open(path: Path | None) -> AbstractContextManager[TextIO]:
    from shapeshift.errors import ShapeshiftError

    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        return nullcontext(sys.stdout)
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ShapeshiftError(f"cannot be written: {error.strerror}", path=path) from error
