"""`shapeshift translate`: translate text line by line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from shapeshift._system.errors import ShapeshiftError, shell_command
from shapeshift.cli.options import (
    STDIN,
    Checkpoint,
    SetOption,
    TrainedRun,
    open_run,
    read_text,
    usage_error,
)
from shapeshift.cli.output import notice

if TYPE_CHECKING:
    from shapeshift.data.subwords import Subwords
    from shapeshift.decoding.translator import TranslatedLine


def translate(
    run: TrainedRun,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text to translate, one sentence per line; - or no file reads standard input.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write this file instead of standard output; it appears complete or not at all.",
        ),
    ] = None,
    checkpoint: Checkpoint = "average",
    engine: Annotated[
        str,
        typer.Option(
            metavar="torch|EXPORT",
            help="Translate with PyTorch, or with a model that `shapeshift export` wrote into the"
            " run's folder, by its name there: ctranslate2-int8, onnx and so on.",
        ),
    ] = "torch",
    n_best: Annotated[
        int,
        typer.Option(min=1, help="Print n candidates per line: number, score and text, with tabs."),
    ] = 1,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per line: its number and, for each candidate, the text, the"
            " score, log p, and the subwords with their log-probabilities.",
        ),
    ] = False,
    on_long: Annotated[
        Literal["error", "split", "skip"] | None,
        typer.Option(
            help="What to do with a line of more subwords than decoding.max_source_length, or than"
            " the model has positions for: stop with an error, translate its pieces and join them,"
            " or leave its line empty. Each such line is named on standard error."
            "  [default: error]"
        ),
    ] = None,
    overrides: SetOption = None,
) -> None:
    """Translate files or standard input with a trained run.

    Writes one line for each input line, in order; an empty line stays empty. Input is read once.
    Output is written after every decoding.buffer_size lines, or line by line if standard input is a
    terminal.

    If a line cannot be translated, the command writes the translations of all lines before it, and
    ends with FILE:LINE and the reason. With --output, it then writes no file.
    """
    from shapeshift._system.files import replacing
    from shapeshift.data.sources.files import find_file
    from shapeshift.run.folder import TORCH

    names = files or [STDIN]
    for name in set(names) - {STDIN}:
        try:
            find_file(name)  # a missing file is reported before any work
        except ShapeshiftError as error:
            if " " not in name:
                raise
            raise ShapeshiftError(f"{error}; give a sentence on standard input") from error
    if output is not None and any(
        x != STDIN and output.resolve() == Path(x).resolve() for x in names
    ):
        raise usage_error("--output", f"{output} is translated, and would be replaced")
    if engine != TORCH and checkpoint != "average":
        others = shell_command("export", run, "--checkpoint", checkpoint, "--output")
        raise usage_error(
            "--checkpoint", f"has no effect on {engine}, which has the weights that it was exported"
            f" with; export others: {others} …"
        )  # fmt: skip
    long = [] if on_long is None else [f"decoding.on_long={on_long}"]
    trained = open_run(run, [*(overrides or ()), *long])
    translator = trained.translator(checkpoint, engine=engine)
    number = 0
    stdout: Any = sys.stdout
    if output is None:
        stdout.reconfigure(encoding="utf-8", newline="\n")
    with nullcontext(stdout) if output is None else replacing(output) as sink:
        for name in names:
            title, lines = read_text(name)
            translated = translator.translate_lines(
                _checked(lines, translator.subwords, title),
                n_best,
                name=title,
                stream=name == STDIN and sys.stdin.isatty(),
                each_token=as_json,
            )
            for line in _with_notices(translated, title):
                number += 1
                if as_json:
                    sink.write(_as_json(number, line))
                for each in () if as_json else line.candidates:
                    start = f"{number}\t{each.score:.4f}\t" if n_best > 1 else ""
                    sink.write(f"{start}{each.text}\n")
                sink.flush()


def _as_json(number: int, line: TranslatedLine) -> str:
    candidates = [
        {
            "text": each.text,
            "score": each.score,
            "log_prob": each.log_prob,
            "at_limit": each.at_limit,
            "tokens": [piece for piece, _ in each.tokens or ()],
            "token_log_probs": [log_prob for _, log_prob in each.tokens or ()],
        }
        for each in line.candidates
    ]
    return json.dumps({"line": number, "candidates": candidates}, ensure_ascii=False) + "\n"


def _checked(lines: Iterator[str], subwords: Subwords, name: str) -> Iterator[str]:
    """Yield the lines; if the subword model rejects one, add its line number to the error."""
    for number, line in enumerate(lines, start=1):
        try:
            subwords.check_source(line)
        except ShapeshiftError as error:
            raise ShapeshiftError(str(error), path=name, line=number) from error
        yield line


def _with_notices(lines: Iterator[TranslatedLine], title: str) -> Iterator[TranslatedLine]:
    """Yield the lines and name the long ones on standard error; at the end, count them and the
    translations that may be truncated."""
    number = num_long = num_at_limit = 0
    try:
        for number, line in enumerate(lines, start=1):
            if line.exceeded is not None:
                num_long += 1
                how = f"split ({line.num_pieces:,} pieces)" if line.num_pieces else "left empty"
                subwords = f"more subwords than {line.exceeded}"
                if line.num_subwords is not None:
                    subwords = f"{line.num_subwords:,} subwords, over {line.exceeded}"
                notice(f"{title}:{number}: {subwords}: {how}")
            num_at_limit += any(candidate.at_limit for candidate in line.candidates)
            yield line
    finally:
        if num_long:
            notice(f"{title}: {num_long:,} of {number:,} lines were too long")
        if num_at_limit:
            notice(
                f"{title}: {num_at_limit:,} of {number:,} translations reach the length limit and"
                " may be cut short; to see the rest, raise it: --set decoding.max_length_b=NUMBER"
            )
