"""`shapeshift score`: BLEU and chrF of translations, over the corpus and by source length."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shapeshift.evaluation.scores import Scores

STDIN = "-"


def score(
    hypotheses: Annotated[
        str,
        typer.Argument(
            metavar="HYPOTHESES", help="Detokenised translations, one a line; - for standard input."
        ),
    ],
    references: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCES", help="Detokenised references, line n for translation n."
        ),
    ],
    metric: Annotated[
        list[str], typer.Option(help="bleu, chrf or chrf++; may be given several times.")
    ] = ["bleu", "chrf"],  # noqa: B006 (Typer copies it)
    source: Annotated[
        Path | None,
        typer.Option(help="The file that was translated: adds BLEU by its length in words."),
    ] = None,
    edges: Annotated[
        str, typer.Option(help="With --source: the bounds between the length buckets.")
    ] = "10,20,30,40,50",
    json: Annotated[
        Path | None, typer.Option(help="Write the scores with hashes of both sides to this file.")
    ] = None,
) -> None:
    """Score translations with BLEU and chrF.

    sacreBLEU computes the scores, and each comes with its signature. They are printed as tables on
    a terminal, as one plain line each into a file or a pipe.
    """
    bounds = _parse_edges(edges)
    from shapeshift.data.files import read_lines, read_stream
    from shapeshift.evaluation.scores import evaluate

    scores = evaluate(
        list(
            read_stream(sys.stdin.buffer, "<stdin>")
            if hypotheses == STDIN
            else read_lines(hypotheses)
        ),
        list(read_lines(references)),
        metrics=metric,
        lengths=None if source is None else [len(line.split()) for line in read_lines(source)],
        edges=bounds,
    )
    if json is not None:
        scores.save(json)
    if sys.stdout.isatty():
        _print_tables("score" if hypotheses == STDIN else Path(hypotheses).name, scores)
    else:
        _print_lines(scores)


def _parse_edges(text: str) -> list[int]:
    try:
        return [int(edge) for edge in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"expected whole numbers with commas between them, like 10,20,30; got {text!r}",
            param_hint="--edges",
        ) from None


def _print_tables(name: str, scores: Scores) -> None:
    from rich.console import Console

    from shapeshift.evaluation.tables import length_table, score_table

    console = Console()
    tables = [score_table({name: scores})]
    if scores.by_length is not None:
        tables.append(length_table({name: scores}))
    for table in tables:
        console.print(table.rich())
    # The length table's signature is the first table's; marks are explained once, at the end.
    for note in dict.fromkeys(note for table in tables for note in table.notes):
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)


def _print_lines(scores: Scores) -> None:
    for result in scores.scores:
        print(f"{result.name} {result.value:.2f} ({result.signature})")
    for bucket in scores.by_length or ():
        high = "inf" if bucket.high is None else bucket.high
        value = "none" if bucket.bleu is None else f"{bucket.bleu:.2f}"
        print(f"BLEU[{bucket.low},{high}) {value} ({bucket.num_segments} segments)")
