"""`shapeshift init`: write a configuration that fits parallel text and this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import SHAPE_10, usage_error
from shapeshift.cli.output import show, show_table, write
from shapeshift.errors import ShapeshiftError, shell_command

if TYPE_CHECKING:
    from shapeshift.data.config import FilesCorpus, Split
    from shapeshift.data.survey import Survey
    from shapeshift.evaluation.tables import Table

Text = list[Path] | None

MAX_SHOWN = 100
"""Characters of a line of the text that are shown."""


def init(
    source: Annotated[
        str | None, typer.Option(help="Ending of the source files, such as en.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Ending of the target files, such as de.")
    ] = None,
    train: Annotated[
        Text,
        typer.Option(
            help="Training text: data/train stands for data/train.en and data/train.de, plain or"
            " with the ending .gz. An archive with such files, as from OPUS (.zip, .tar.gz), is"
            " unpacked. May be given several times, like the next two options.",
        ),
    ] = None,
    valid: Annotated[Text, typer.Option(help="Validation text, in the same form.")] = None,
    test: Annotated[
        Text,
        typer.Option(
            help="Test text. [default: without --valid and --test, both are taken out of the"
            " training text]",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="The configuration to write.")] = Path("mine.yaml"),
) -> None:
    """Inspect your text and write a configuration for it.

    Prints the number of pairs, their lengths and possible problems. Chooses a model and a number
    of updates for this amount of text, measures a few steps, and estimates the training time on
    this machine. On a terminal, it asks for options that are missing.
    """
    from shapeshift.cli.train import announce
    from shapeshift.config import load_config
    from shapeshift.data.config import SPLITS, FilesCorpus, SubwordsConfig
    from shapeshift.data.corpora import read_split, require_files
    from shapeshift.data.sources.download import find_prefixes
    from shapeshift.data.subwords import least_size
    from shapeshift.data.survey import hold_out, survey_corpus
    from shapeshift.lab.suggest import suggest
    from shapeshift.schema import check_plain

    if not output.suffix:  # the folder of the text that is taken out has the name without it
        raise usage_error("--output", f"expected a name such as {output}.yaml, got {output}")
    if output.exists():
        raise ShapeshiftError("exists already; name another file with --output", path=output)
    if not (source and target and train):
        source = source or _ask("--source", "Ending of the source files, such as en")
        target = target or _ask("--target", "Ending of the target files, such as de")
        train = train or [Path(_ask("--train", f"Training text, without .{source} or .{target}"))]
        if not (valid or test):
            question = "Validation text (empty: validate and test on some of the training text)"
            valid = [Path(given)] if (given := _ask("--valid", question, default="")) else None
    if test and not valid:
        valid = [Path(_ask("--valid", "Validation text"))]
    if valid and not test:
        test = [Path(_ask("--test", "Test text"))]
    source, target = source.removeprefix("."), target.removeprefix(".")
    for option, name in (("--source", source), ("--target", target)):
        try:
            check_plain(name)
        except ValueError as error:
            raise usage_error(option, str(error)) from error
    if source == target:
        raise usage_error("--target", f"is {target}, as --source is; they name different files")
    languages, folder = (source, target), output.with_suffix("")
    every = [*train, *(valid or ()), *(test or ())]
    prefixes = [
        [prefix for path in paths or () for prefix in find_prefixes(path, languages, folder, every)]
        for paths in (train, valid, test)
    ]
    names = dict(zip(SPLITS, (each or prefixes[0] for each in prefixes), strict=True))
    corpus = FilesCorpus(source=source, target=target, **names)
    require_files(corpus)
    if valid is None:
        corpus = hold_out(corpus, folder)
        show(f"validation and test text were taken out of the training text: {folder}/")
    surveys = survey_corpus(corpus)
    show_table(_table(surveys, corpus))
    show(f"the first pair of {corpus.train[0]}:")
    for language, line in zip(languages, next(read_split(corpus, "train")), strict=True):
        show(f"  {language}: {line[:MAX_SHOWN]}")
    least = least_size(lambda: read_split(corpus, "train"), SubwordsConfig())
    write(output, suggest(corpus, surveys["train"], least))
    config = load_config(output)
    show(f"{output}: a {config.model.size} model")
    announce(config)
    show("Next, train one model, or compare several positions:")
    show(f"  {shell_command('train', output)}")
    others = ("--position", "ape,rpe", "--system", SHAPE_10)
    show(f"  {shell_command('compare', output, *others)}")


def _ask(option: str, question: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        both = "; give both --valid and --test, or neither"
        more = both if option in ("--valid", "--test") else f": {question[0].lower()}{question[1:]}"
        raise usage_error(option, f"is missing{more}")
    answer: str = typer.prompt(question, default=default, show_default=False, err=True)
    return answer


def _table(surveys: dict[Split, Survey], corpus: FilesCorpus) -> Table:
    import numpy as np

    from shapeshift.evaluation.tables import Table

    def lengths(words: Sequence[int]) -> str:
        if not len(words):
            return "none"
        return f"{np.mean(words):.1f} / {np.percentile(words, 95):.0f} / {max(words)}"

    every = [*surveys.values()]
    rows = [
        ("pairs", *(f"{one.num_pairs:,}" for one in every)),
        (f"words, {corpus.source}", *(lengths(one.source_words) for one in every)),
        (f"words, {corpus.target}", *(lengths(one.target_words) for one in every)),
    ]
    for problem in dict.fromkeys(name for one in every for name in one.problems):
        rows.append((problem, *(f"{one.problems[problem]:,}" for one in every)))
    return Table(("", *surveys), rows, ["words: mean / 95 % / longest"])
