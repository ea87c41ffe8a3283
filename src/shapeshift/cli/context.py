"""`shapeshift context`: how a causal language model reads texts longer than in training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.models import load_model
from shapeshift.cli.options import read_text
from shapeshift.cli.output import notice, show, show_table

if TYPE_CHECKING:
    from torch import Tensor, nn

    from shapeshift.check.context import Encode, Extension


def context(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Name or folder of a causal model of Hugging Face, or module:factory, a function"
            " without arguments that returns one; also after use_position.",
        ),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="Methods, with commas: linear, ntk, dynamic, yarn, longrope, llama3, drope, or"
            " files of rope_parameters (NAME.json).  [default: all seven]",
            show_default=False,
        ),
    ] = "linear,ntk,dynamic,yarn,longrope,llama3,drope",
    length: Annotated[
        int | None,
        typer.Option(help="Tokens of the longest sequence.  [default: 4 times the trained length]"),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Text for the perplexity; token ids for a model without a tokenizer; - reads"
            " standard input.",
        ),
    ] = None,
    windows: Annotated[
        int, typer.Option(min=1, help="Most windows of LENGTH tokens of the text to read.")
    ] = 16,
    passkeys: Annotated[
        int, typer.Option(min=0, help="Passkeys for each context length and depth.")
    ] = 4,
    longest_passkey: Annotated[
        int, typer.Option(min=1, help="Longest context with a passkey, in tokens.")
    ] = 4096,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write context.csv, context.json and a figure of the perplexity there.",
        ),
    ] = None,
) -> None:
    """Measure a causal language model beyond its trained length.

    Each method of context extension changes the model's rotary positions; nothing is trained.
    drope removes them, and needs further training to be of use. For the model as it is and for each
    method, the table has the perplexity by position, the share of passkeys that are found in
    contexts of each length, and whether a cache that is filled across the trained length gives the
    logits of a pass without one. It exits with 1 if a method cannot be applied.

    Example: shapeshift context HuggingFaceTB/SmolLM2-135M --method yarn,ntk --text book.txt
    """
    from shapeshift.check.context import context as measure
    from shapeshift.training.precision import choose_device

    loaded, run = load_model(model)
    if run is not None:
        raise ShapeshiftError(
            f"{model} is the folder of a run; give a causal model of Hugging Face"
        )
    encode, tokens = _tokenizer(loaded)
    names, own = _methods(method)
    rows: list[Extension] = []
    for row in measure(
        loaded.to(choose_device(device)),
        names,
        rope_parameters=own,
        length=length,
        text=None if text is None else _ids(text, encode, loaded),
        encode=encode,
        num_windows=windows,
        num_passkeys=passkeys,
        longest_passkey=longest_passkey,
    ):
        notice(f"{row.method}: {row.refused or 'measured'}")
        rows.append(row)
    _show(rows, tokens, text)
    if output is not None:
        _write(output, rows, model, text)
    if any(row.refused for row in rows):
        raise typer.Exit(1)


def _methods(given: str) -> tuple[list[str], dict[str, Any]]:
    """Return the names of methods, and the `rope_parameters` of those that are files."""
    from shapeshift.config.yaml_file import parse_yaml

    names, own = [], {}
    for each in filter(None, given.split(",")):
        path = Path(each.strip())
        names.append(path.name.removesuffix(".json"))
        if path.suffix == ".json":
            own[names[-1]] = parse_yaml("\n".join(read_text(str(path))[1]), path)
            if not isinstance(own[names[-1]], dict):
                expected = 'expected rope_parameters, such as {"rope_type": "yarn", "factor": 4.0}'
                raise ShapeshiftError(expected, path=path)
    return names, own


def _tokenizer(model: nn.Module) -> tuple[Encode | None, str]:
    """Return text → ids by the model's tokenizer, if it has one, and what passkeys consist of."""
    import transformers

    from shapeshift._system.errors import reason

    name = getattr(model, "name_or_path", "")
    if not name:
        return None, "random token ids, as the model has no folder with a tokenizer"
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        # Without tokenizer files, transformers may build one that has only special tokens.
        is_empty = not {*tokenizer.get_vocab().values()} - {*tokenizer.all_special_ids}
    except Exception as error:  # a stranger's files may raise anything
        return None, f"random token ids, as there is no tokenizer: {reason(error)}"
    if is_empty:
        return None, "random token ids, as the model's folder has no tokenizer"

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    return encode, "five digits in sentences"


def _ids(name: str, encode: Encode | None, model: nn.Module) -> Tensor:
    """Return the ids of a text."""
    import torch

    path, lines = read_text(name)
    text = "\n".join(lines)
    if encode is not None:
        return torch.tensor(encode(text))
    size = getattr(getattr(model, "config", None), "vocab_size", float("inf"))
    words = text.split()
    for word in words:
        if not word.isdecimal() or int(word) >= size:
            raise ShapeshiftError(
                f"the model has no tokenizer, so the text must be token ids below {size}, separated"
                f" by spaces, got {word!r}; save its tokenizer next to it",
                path=path,
            )
    return torch.tensor([int(word) for word in words])


def _show(rows: Sequence[Extension], tokens: str, text: str | None) -> None:
    """Print a table with a row for each method."""
    from statistics import fmean

    from shapeshift.evaluation.tables import NO_VALUE

    first = rows[0]
    sizes = list(dict.fromkeys(size for size, _, _ in first.passkey))
    header = ["method", *(f"{start}–{end}" for start, end, _ in first.perplexity)]
    header += [*(f"passkey {size}" for size in sizes), "cache"]
    lines = []
    for row in rows:
        cells = [f"{value:,.2f}" for _, _, value in row.perplexity]
        shares = [
            fmean(share for n, _, share in row.passkey if n == size)
            for size in sizes
            if row.passkey
        ]
        cells += [f"{share:.0%}" for share in shares]
        if row.cache is not None:
            cells.append(f"{'same' if row.is_consistent else 'DIFFERS'} ({row.cache:.0e})")
        lines.append([row.method, *cells, *[NO_VALUE] * (len(header) - 1 - len(cells))])
    notes = [
        f"trained with {first.trained} tokens, read up to {first.length}; nothing was trained here"
    ]
    if text is not None:
        notes.append(f"first columns: perplexity of the tokens at these positions of {text}")
    if sizes:
        notes.append(f"passkey: share that was found, by tokens of the context; {tokens}")
    notes.append("cache: difference of the last logits from those without a cache, by their spread")
    if any(row.method == "drope" and not row.refused for row in rows):
        notes.append("drope: without the further training that it needs")
    notes += [f"{row.method}: not applied: {row.refused}" for row in rows if row.refused]
    show_table(header, lines, notes)


def _write(folder: Path, rows: Sequence[Extension], model: str, text: str | None) -> None:
    """Write all numbers as CSV and JSON, and the perplexity by position as a figure."""
    from dataclasses import asdict

    from shapeshift import __version__
    from shapeshift._system.files import save
    from shapeshift.study.figures import Line, Panel, draw_lines
    from shapeshift.study.figures import save as save_figure
    from shapeshift.study.results import csv_text

    lines: list[list[object]] = [["method", "metric", "from", "to", "depth", "value"]]
    for row in rows:
        lines += [[row.method, "perplexity", *span[:2], None, span[2]] for span in row.perplexity]
        lines += [[row.method, "passkey", 0, *case] for case in row.passkey]
        if row.cache is not None:
            lines.append([row.method, "cache difference", 0, row.length, None, row.cache])
    document = {
        "model": model,
        "text": text,
        "version": __version__,
        "rows": list(map(asdict, rows)),
    }
    paths = [folder / "context.csv", folder / "context.json"]
    save(paths[0], csv_text(lines))
    save(paths[1], json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    drawn = [row for row in rows if row.perplexity]
    if drawn:
        first = drawn[0]
        panel = Panel(
            [
                Line(
                    row.method,
                    [(start + end) / 2 for start, end, _ in row.perplexity],
                    [[value] for _, _, value in row.perplexity],
                )
                for row in drawn
            ],
            "perplexity",
            shaded=[(first.trained, first.length)] * (first.length > first.trained),
            log=True,
            min_span=1.2,
        )
        figure = draw_lines([panel], "position in tokens; shaded: beyond the trained length")
        paths += save_figure(figure, folder / "context")
    for path in paths:
        show(path)
