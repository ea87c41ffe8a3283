"""`shapeshift init`: from parallel text to a configuration that fits the text and this machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.output import duration, results_console, show, write

if TYPE_CHECKING:
    from shapeshift.data.config import FilesCorpus, Split
    from shapeshift.data.survey import Survey

MAX_HELD_OUT = 1_000
"""Source sentences of validation and of test text that are taken out of the training text, but no
more than one in twenty each."""

Text = list[Path] | None


def init(
    source: Annotated[
        str | None, typer.Option(help="Ending of the source files, such as en.", show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Ending of the target files, such as de.", show_default=False)
    ] = None,
    train: Annotated[
        Text,
        typer.Option(
            help="Training text: data/train stands for data/train.en and data/train.de, plain or"
            " with .gz after them; an archive with such files, as OPUS has them (.zip, .tar.gz), is"
            " unpacked. May be given several times, as the next two.",
            show_default=False,
        ),
    ] = None,
    valid: Annotated[
        Text, typer.Option(help="Validation text, in the same form.", show_default=False)
    ] = None,
    test: Annotated[
        Text,
        typer.Option(
            help="Test text. [default: without --valid and --test, both are taken out of the"
            " training text]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="The configuration to write.")] = Path("mine.yaml"),
) -> None:
    """Look at your text and write a configuration for it.

    Prints how many pairs there are, how long they are and what may be wrong with them. Chooses a
    model and a number of updates for that much text, measures a few steps, and says how long
    training will take here. On a terminal it asks for what is not given.
    """
    from shapeshift.config import load_config
    from shapeshift.data.config import FilesCorpus
    from shapeshift.errors import ShapeshiftError
    from shapeshift.training.estimate import measure

    if output.exists():
        raise ShapeshiftError("exists already; name another file with --output", path=output)
    source = source or _ask("--source", "Ending of the source files, such as en")
    target = target or _ask("--target", "Ending of the target files, such as de")
    train = train or [Path(_ask("--train", f"Training text without .{source} and .{target}"))]
    if (valid is None) != (test is None):
        missing = "--valid" if valid is None else "--test"
        raise typer.BadParameter("give both --valid and --test, or neither", param_hint=missing)
    languages = (source, target)
    given = [
        [x for path in each for x in _prefixes(path, languages, output.with_suffix(""))]
        for each in (train, valid or [], test or [])
    ]
    if valid is None:
        folder = output.with_suffix("")
        show(f"validation and test text are taken out of the training text: {folder}/")
        given = _hold_out(given[0], folder, languages)
    corpus = FilesCorpus(
        source=source, target=target, train=given[0], valid=given[1], test=given[2]
    )
    surveys = _survey(corpus)
    results_console().print(_table(surveys, corpus))
    write(output, _yaml(corpus, surveys["train"]))
    config = load_config(output)
    vocab_size, updates = config.data.subwords.vocab_size, config.training.max_updates
    length = round(1.4 * surveys["train"].mean_words) + 1  # subwords of a sentence, about
    step = measure(config.model, config.position.scheme, config.training, vocab_size, length)
    show(
        f"{output}: a {config.model.size} model, {updates:,} updates; on this machine about"
        f" {duration(updates * step.seconds_per_update)} of training"
        f" ({step.seconds_per_update:.2g} s an update, measured)"
    )
    show("Next, train one model, or compare several positions:")
    show(f"  shapeshift train {output}")
    # So short a run does not learn word order with the paper's K of 500 (docs/faq.md).
    shape = "shape-10 position=shape position.indices.max_offset=10"
    show(f"  shapeshift compare {output} --position ape,rpe --system '{shape}'")


def _ask(option: str, question: str) -> str:
    if not sys.stdin.isatty():
        raise typer.BadParameter("is missing", param_hint=option)
    answer: str = typer.prompt(question, err=True)
    return answer


def _prefixes(path: Path, languages: tuple[str, str], folder: Path) -> list[str]:
    """Return what a path names, without the ending of a language; an archive is unpacked."""
    from shapeshift.data.sources.archives import is_archive, unpack
    from shapeshift.errors import ShapeshiftError

    endings = tuple(f".{language}{packed}" for language in languages for packed in (".gz", ""))

    def prefix(name: str) -> str:
        return name.removesuffix(next((each for each in endings if name.endswith(each)), ""))

    if not is_archive(path):
        return [prefix(str(path))]
    files = unpack(path, folder / path.name.partition(".")[0], lambda name: name.endswith(endings))
    sides = Counter(prefix(str(file)) for file in files)
    found = [name for name, count in sides.items() if count == 2]
    if not found:
        raise ShapeshiftError(
            f"has no two files that end in .{languages[0]} and .{languages[1]}", path=path
        )
    return found


def _hold_out(train: list[str], folder: Path, languages: tuple[str, str]) -> list[list[str]]:
    from itertools import chain

    from shapeshift.data.sources.files import read_parallel
    from shapeshift.data.survey import hold_out

    prefixes = (folder / "train", folder / "valid", folder / "test")
    hold_out(
        lambda: chain.from_iterable(
            read_parallel(*(f"{prefix}.{language}" for language in languages)) for prefix in train
        ),
        MAX_HELD_OUT,
        prefixes,
        languages,
    )
    return [[str(prefix)] for prefix in prefixes]


def _survey(corpus: FilesCorpus) -> dict[Split, Survey]:
    from shapeshift.data.config import SPLITS
    from shapeshift.data.corpora import read_split
    from shapeshift.data.survey import survey

    found: dict[Split, Survey] = {}
    for split in SPLITS:
        training = found["train"].sources if found else ()
        found[split] = survey(read_split(corpus, split), training)
    return found


def _table(surveys: dict[Split, Survey], corpus: FilesCorpus) -> object:
    from statistics import fmean, quantiles

    from rich import box
    from rich.table import Table

    def lengths(words: Sequence[int]) -> str:
        most = quantiles(words, n=20)[-1] if len(words) > 1 else max(words, default=0)
        return f"{fmean(words):.1f} / {most:.0f} / {max(words)}" if words else "none"

    table = Table("", *surveys, box=box.SIMPLE_HEAD)
    every = [*surveys.values()]
    table.add_row("pairs", *(f"{one.num_pairs:,}" for one in every))
    title = "words, {}: mean / 95 % / longest"
    table.add_row(title.format(corpus.source), *(lengths(one.source_words) for one in every))
    table.add_row(title.format(corpus.target), *(lengths(one.target_words) for one in every))
    for name, about in (
        ("empty", "with an empty side"),
        ("identical", "with identical sides"),
        ("repeated", "with a repeated source"),
        ("uneven", "with 9 times as many words on one side"),
        ("misread", "with signs of a wrong encoding"),
        ("in_training", "whose source is in the training text"),
    ):
        counts = [getattr(one, name) for one in every]
        if any(counts):
            table.add_row(about, *(f"{count:,}" for count in counts))
    return table


def _yaml(corpus: FilesCorpus, train: Survey) -> str:
    """Return the configuration: what is chosen depends on how much training text there is."""
    import json

    import torch

    num_pairs = train.num_pairs
    gpu = torch.cuda.is_available()
    size = "tiny" if num_pairs < 15_000 else "base" if gpu and num_pairs > 500_000 else "small"
    vocab_size = next(
        (size for limit, size in _VOCABULARIES if num_pairs < limit), _LARGEST_VOCABULARY
    )
    vocab_size = max(100, min(vocab_size, len(train.sources) // 200 * 100))  # there are as many
    max_tokens, peak = _BATCHES[size]
    epochs, dropout = next((found for limit, *found in _EPOCHS if num_pairs < limit), [5, 0.1])
    tokens = 1.4 * train.mean_words * num_pairs
    updates = max(300, round(epochs * tokens / max_tokens, -2))
    every = max(50, round(updates / 15, -1))
    return _TEMPLATE.format(
        pairs=f"{num_pairs:,}",
        source=corpus.source,
        target=corpus.target,
        **{split: json.dumps(corpus.prefixes(split)) for split in ("train", "valid", "test")},
        vocab_size=vocab_size,
        size=size,
        dropout=dropout,
        updates=int(updates),
        epochs=epochs,
        max_tokens=max_tokens,
        peak=peak,
        warmup=min(4_000, int(updates) // 5),
        every=int(every),
    )


_VOCABULARIES = ((5_000, 1_000), (20_000, 4_000), (100_000, 6_000), (1_000_000, 16_000))
_LARGEST_VOCABULARY = 32_000
"""Pieces of a joint vocabulary, by pairs of training text."""

_EPOCHS = ((10_000, 40, 0.3), (50_000, 25, 0.3), (300_000, 15, 0.2), (2_000_000, 8, 0.1))
"""Times that training reads its text, and dropout, by pairs of training text."""

_BATCHES = {"tiny": (2_048, 0.003), "small": (4_096, 0.002), "base": (16_384, 0.0007)}
"""Tokens of a batch, and the highest learning rate."""

_TEMPLATE = """\
# Written by `shapeshift init` for {pairs} pairs of training text. Paths are relative to the folder
# in which you run shapeshift. All settings: docs/configuration.md, `shapeshift train --dry-run`.
data:
  corpus:
    corpus: files
    source: {source}
    target: {target}
    train: {train}
    valid: {valid}
    test: {test}
  subwords:
    vocab_size: {vocab_size}  # pieces of one vocabulary for both languages
model:
  size: {size}  # tiny, small, base or big
  dropout: {dropout}  # the less text, the more
position: ape  # or shape, rpe, rope, …: see `shapeshift positions`
training:
  max_updates: {updates}  # the training text about {epochs} times
  batch: {{max_tokens: {max_tokens}}}
  schedule: {{name: inverse_sqrt, peak: {peak}, warmup_updates: {warmup}}}
  checkpoint_every: {every}
  keep_checkpoints: 5
  average_checkpoints: 5
decoding:
  beam: 5
"""
