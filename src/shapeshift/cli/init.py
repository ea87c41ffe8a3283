"""`shapeshift init`: write a configuration that fits parallel text and this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift._system.errors import ShapeshiftError, shell_command
from shapeshift.cli.options import SHAPE_10, usage_error
from shapeshift.cli.output import show, show_table, write

if TYPE_CHECKING:
    from shapeshift.data.config import FilesCorpus, Split
    from shapeshift.data.survey import Survey

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
            " unpacked, and a file of both languages (.tsv, .tmx, also with .gz) is taken apart."
            " May be given several times, like the next two options."
        ),
    ] = None,
    valid: Annotated[Text, typer.Option(help="Validation text, in the same form.")] = None,
    test: Annotated[
        Text,
        typer.Option(
            help="Test text. [default: without --valid and --test, both are taken out of the"
            " training text]"
        ),
    ] = None,
    output: Annotated[Path, typer.Option(help="The configuration to write.")] = Path("mine.yaml"),
) -> None:
    """Inspect your text and write a configuration for it.

    Prints the number of pairs, their lengths and possible problems. Chooses a model and a number
    of updates for this amount of text, measures a few steps, and estimates the training time on
    this machine. On a terminal, it asks for options that are missing.
    """
    from shapeshift._system.schema import check_plain
    from shapeshift.cli.train import announce
    from shapeshift.config import load_config
    from shapeshift.data.config import SPLITS, FilesCorpus
    from shapeshift.data.corpora import read_split, require_files
    from shapeshift.data.survey import hold_out, survey_corpus
    from shapeshift.run.suggest import suggest, suggest_subwords

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
    found = {path: _prefixes(path, languages, folder, every) for path in dict.fromkeys(every)}
    prefixes = [
        [prefix for path in paths or () for prefix in found[path]] for paths in (train, valid, test)
    ]
    names = dict(zip(SPLITS, (each or prefixes[0] for each in prefixes), strict=True))
    corpus = FilesCorpus(source=source, target=target, **names)
    require_files(corpus)
    if valid is None:
        corpus = hold_out(corpus, folder)
        show(f"validation and test text were taken out of the training text: {folder}/")
    surveys = survey_corpus(corpus)
    _show_counts(surveys, corpus)
    show(f"the first pair of {corpus.train[0]}:")
    for language, line in zip(languages, next(read_split(corpus, "train")), strict=True):
        show(f"  {language}: {line[:MAX_SHOWN]}")
    subwords = suggest_subwords(surveys, lambda: read_split(corpus, "train"))
    for line in _remarks(surveys, corpus):
        show(line)
    write(output, suggest(corpus, surveys, subwords, output.parent))
    config = load_config(output)
    show(f"{output}: a {config.model.size} model")
    announce(config)
    show("Next, train one model, or compare several positions:")
    show(f"  {shell_command('train', output)}")
    others = ("--position", "ape,rpe", "--position", SHAPE_10)
    show(f"  {shell_command('compare', output, *others)}")


def _prefixes(
    path: Path, languages: tuple[str, str], folder: Path, paths: Sequence[Path]
) -> list[str]:
    """Return the prefixes of the text files that a path names. Archives are unpacked, and files
    with both languages are split, into `folder`."""
    from shapeshift.data.sources.download import find_prefixes, own_name
    from shapeshift.data.sources.tables import is_table, split_table

    if not is_table(path):
        return find_prefixes(path, languages, folder, paths)
    prefix = folder / own_name(path, paths)
    num_pairs, num_others = split_table(path, languages, prefix)
    left = f"; {num_others:,} without both languages are left out" if num_others else ""
    show(f"{path}: {num_pairs:,} pairs were written to {prefix}.{{{','.join(languages)}}}{left}")
    return [str(prefix)]


def _remarks(surveys: dict[Split, Survey], corpus: FilesCorpus) -> Iterator[str]:
    """Yield notices about text that changes the configuration or spoils scores."""
    from shapeshift.data.config import SubwordsConfig
    from shapeshift.evaluation.tokenizers import tokenised

    num_changed = sum(survey.num_changed for survey in surveys.values())
    if num_changed:
        before, after = next(survey.changed for survey in surveys.values() if survey.changed)
        yield (
            f"{num_changed:,} {corpus.target} lines would be changed by the usual normalisation"
            f" ({SubwordsConfig().normalization}), so that no translation could equal them; the"
            " configuration has normalization: identity, which keeps the text as it is"
        )
        differ = (n for n, (x, y) in enumerate(zip(before, after, strict=False)) if x != y)
        start = max(0, next(differ, len(before)) - MAX_SHOWN // 2)
        yield f"  such as: {before[start : start + MAX_SHOWN]}"
        yield f"  becomes: {after[start : start + MAX_SHOWN]}"
    pairs = [*zip(*surveys["train"].sample, strict=True)]
    for language, lines in zip((corpus.source, corpus.target), pairs, strict=True):
        if line := tokenised(language, lines):
            yield line


def _ask(option: str, question: str, default: str | None = None) -> str:
    if not sys.stdin.isatty():
        both = "; give both --valid and --test, or neither"
        more = both if option in ("--valid", "--test") else f": {question[0].lower()}{question[1:]}"
        raise usage_error(option, f"is missing{more}")
    answer: str = typer.prompt(question, default=default, show_default=False, err=True)
    return answer


def _show_counts(surveys: dict[Split, Survey], corpus: FilesCorpus) -> None:
    import numpy as np

    from shapeshift.data.scripts import script

    def lengths(words: Sequence[int]) -> str:
        if not len(words):
            return "none"
        return f"{np.mean(words):.1f} / {np.percentile(words, 95):.0f} / {max(words)}"

    every = [*surveys.values()]
    rows: list[tuple[str, ...]] = [
        ("pairs", *(f"{one.num_pairs:,}" for one in every)),
        (f"words, {corpus.source}", *(lengths(one.source_words) for one in every)),
        (f"words, {corpus.target}", *(lengths(one.target_words) for one in every)),
    ]
    for problem in dict.fromkeys(name for one in every for name in one.problems):
        rows.append((problem, *(f"{one.problems[problem]:,}" for one in every)))
    note = "words: mean / 95 % / longest"
    sides = zip(*surveys["train"].sample, strict=True)
    if {script(lines) for lines in sides} & {"han", "kana", "southern"}:
        note += "; of text without spaces, each character counts as one"
    show_table(("", *surveys), rows, [note])
