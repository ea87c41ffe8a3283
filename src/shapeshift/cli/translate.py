"""`shapeshift translate`: text in, text out, line for line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import OF_A_TRAINED_MODEL, refuse_without_effect

if TYPE_CHECKING:
    from shapeshift.decoding.translator import TranslatedLine, Translator

STDIN = "-"


class OnLong(Enum):
    """What becomes of a line that is too long."""

    error = "error"
    split = "split"
    skip = "skip"


_LINES_NAMED = 10  # in a summary


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
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write here instead of standard output; the file appears whole or not at all.",
        ),
    ] = None,
    checkpoint: Annotated[
        str, typer.Option(help="average, last, best or the number of an update.")
    ] = "average",
    n_best: Annotated[
        int, typer.Option(min=1, help="Print n candidates a line: number, score, text, by tabs.")
    ] = 1,
    max_source_length: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="A line of more subwords is too long, as is one that the model has no positions"
            " for. Nothing else is: time and memory grow with the square of the length.",
            show_default=False,
        ),
    ] = None,
    on_long: Annotated[
        OnLong | None,
        typer.Option(
            help="What becomes of a line that is too long: the end of it all, pieces that are"
            " translated and joined again, or an empty line. Each is told on standard error."
            "  [default: error]",
            show_default=False,
        ),
    ] = None,
    batch_invariant: Annotated[
        bool,
        typer.Option(
            "--batch-invariant",
            help="The same bytes on a CPU whatever else is translated, in whatever batches. Takes"
            " about twice the time for a file, and up to four times for single lines.",
        ),
    ] = False,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, such as decoding.beam=10."),
    ] = None,
) -> None:
    """Translate files or standard input with a trained run.

    One line out for each line in, in order; an empty line stays empty. Output is written as soon as
    a window of lines is done, and line by line when standard input is a terminal.

    A line that cannot be translated ends the work with FILE:LINE and the reason. Files are checked
    before the first line is translated, so that nothing is written then; from standard input, all
    lines before it are answered first, unless --output names a file, which does not appear.
    """
    from shapeshift.data.sources.files import rereadable
    from shapeshift.lab.run import Run
    from shapeshift.threads import set_num_threads

    refuse_without_effect(overrides or [], OF_A_TRAINED_MODEL, " on a trained model")
    settings = _settings(overrides or [], max_source_length, on_long, batch_invariant)
    trained = Run(run, settings)
    set_num_threads(trained.config.model.dim)
    translator = trained.translator(checkpoint)
    check = trained.subwords().check_source
    with ExitStack() as stack:
        inputs: list[tuple[str, Callable[[], Iterator[str]] | None]] = []
        for name in files or [STDIN]:
            lines = None if name == STDIN else stack.enter_context(rereadable(name))
            inputs.append((name, lines))
            if lines is not None:
                translator.check(_checked(lines(), check, name), name=name)
        sink = stack.enter_context(_open(output))
        for number, line in enumerate(_lines(translator, check, inputs, n_best), start=1):
            for candidate in line.candidates:
                prefix = f"{number}\t{candidate.score:.4f}\t" if n_best > 1 else ""
                sink.write(prefix + candidate.text + "\n")
            sink.flush()


def _settings(
    overrides: list[str],
    max_source_length: int | None,
    on_long: OnLong | None,
    batch_invariant: bool,
) -> list[str]:
    """Return the options as settings of the run."""
    settings = [*overrides]
    if max_source_length is not None:
        settings.append(f"decoding.max_source_length={max_source_length}")
    if on_long is not None:
        settings.append(f"decoding.on_long={on_long.value}")
    if batch_invariant:
        settings.append("decoding.batch_invariant=true")
    return settings


def _lines(
    translator: Translator,
    check: Callable[[str], None],
    inputs: list[tuple[str, Callable[[], Iterator[str]] | None]],
    n_best: int,
) -> Iterator[TranslatedLine]:
    """Translate one input after the other; files have been checked."""
    from shapeshift.data.sources.files import read_stream

    for name, read in inputs:
        if read is None:
            title = "<stdin>"
            lines = _checked(read_stream(sys.stdin.buffer, title), check, title)
        else:
            title, lines = name, read()
        waiting = read is None and sys.stdin.isatty()
        translated = translator.translate_lines(lines, n_best, name=title, stream=waiting)
        yield from _announced(translated, title)


def _checked(lines: Iterator[str], check: Callable[[str], None], name: str) -> Iterator[str]:
    """Pass lines on; name the one that is not in the form which the model's subwords take."""
    from shapeshift.errors import ShapeshiftError

    for number, line in enumerate(lines, start=1):
        try:
            check(line)
        except ShapeshiftError as error:
            raise ShapeshiftError(str(error), path=name, line=number) from error
        yield line


def _announced(lines: Iterator[TranslatedLine], title: str) -> Iterator[TranslatedLine]:
    """Pass lines on; tell on standard error what was done to long ones, and at the end how many
    there were, and how many translations may be cut."""
    long: dict[str, list[int]] = {"split": [], "skipped": []}
    at_limit: list[int] = []
    number = 0
    try:
        for number, line in enumerate(lines, start=1):
            if line.is_long:
                what = "split" if line.num_pieces else "skipped"
                long[what].append(number)
                how = f"split ({line.num_pieces:,} pieces)" if line.num_pieces else "left empty"
                _tell(f"{title}:{number}: {line.num_subwords:,} subwords, over {line.limit}: {how}")
            if any(candidate.at_limit for candidate in line.candidates):
                at_limit.append(number)
            yield line
    finally:
        for what, numbers in long.items():
            if numbers:
                _tell(f"{title}: {len(numbers):,} of {number:,} lines were too long and {what}")
        if at_limit:
            _tell(
                f"{title}: {len(at_limit):,} of {number:,} translations are as long as they may be,"
                f" and perhaps cut short (line {_some(at_limit)}); raise decoding.max_length_a or"
                " max_length_b to see the rest"
            )


def _some(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:_LINES_NAMED]))
    return named + (", …" if len(numbers) > _LINES_NAMED else "")


def _tell(message: str) -> None:
    print(f"shapeshift: {message}", file=sys.stderr)


def _open(path: Path | None) -> AbstractContextManager[IO[str]]:
    from shapeshift.disk import replacing

    if path is not None:
        return replacing(path)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    return nullcontext(sys.stdout)
