"""`shapeshift score`: BLEU, chrF and COMET of translations, over the corpus, BLEU by source length,
and the probability that a model gives to them."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shapeshift.cli.options import (
    STDIN,
    Settings,
    open_run,
    read_text,
    refuse_without_effect,
    usage_error,
)
from shapeshift.cli.output import show, show_table, write
from shapeshift.errors import ShapeshiftError

if TYPE_CHECKING:
    from shapeshift.config import Config
    from shapeshift.decoding.running import PairScore
    from shapeshift.evaluation.scores import Scores

_WITHOUT_RUN = (
    "evaluation.tokenize",
    "evaluation.comet_model",
    "evaluation.comet_batch_size",
    "evaluation.comet_device",
)


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
        list[str],
        typer.Option(
            metavar="NAME,...",
            help="bleu, chrf, chrf++ or comet (which needs --source).",
        ),
    ] = ["bleu", "chrf"],  # noqa: B006 (Typer copies it)
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sacreBLEU's tokenizer for BLEU, for the language of the translations: 13a for"
            " most, zh for Chinese, ja-mecab for Japanese, ko-mecab for Korean, flores200 for any"
            " (Thai, for one, has no spaces between words), char for single characters. Also intl,"
            " none and the others of sacreBLEU. [default: the run's with --run, else 13a]",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(help="The file that was translated: adds BLEU by its length in words."),
    ] = None,
    length_buckets: Annotated[
        str | None,
        typer.Option(
            help="With --source: the bounds between the length buckets. [default: 10,20,30,40,50]",
        ),
    ] = None,
    paired: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Translations of the same text by another system: tests whether it is better or"
            " worse than HYPOTHESES; may be given several times.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the scores with hashes of both sides to this file.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="With --source: the folder of a trained run; adds the log-probability that its"
            " model gives to the translations."
        ),
    ] = None,
    log_probs: Annotated[
        Path | None,
        typer.Option(
            help="With --run: write log p of each translation to this file, line by line."
        ),
    ] = None,
    overrides: Settings = None,
) -> None:
    """Score translations: BLEU, chrF, COMET, a model's probability.

    sacreBLEU computes BLEU and chrF, unbabel-comet COMET, and each comes with its signature. Scores
    are printed as tables on a terminal, as one plain line each into a file or a pipe. With --paired
    each other system is compared by a paired bootstrap test (Koehn 2004). Without --run, --set
    takes settings of COMET, such as evaluation.comet_model=PATH.

    Example: shapeshift score baseline.de reference.de --paired new.de
    """
    metrics = list(dict.fromkeys(name for names in metric for name in names.lower().split(",")))
    if paired and "comet" in metrics:
        raise usage_error("--paired", "tests BLEU and chrF; leave comet out")
    bounds = _parse_bounds(length_buckets or "10,20,30,40,50")
    if source is None and (length_buckets is not None or run is not None):
        option = "--length-buckets" if run is None else "--run"
        raise usage_error(option, "needs --source, the text that was translated")
    if run is None and log_probs is not None:
        raise usage_error("--log-probs", "needs --run")
    from shapeshift.data.sources.files import read_lines
    from shapeshift.evaluation.scores import evaluate
    from shapeshift.evaluation.tokenizers import DEFAULT

    trained = None if run is None else open_run(run, overrides or (), ("evaluation",))
    config = _settings_without_run(overrides or []) if trained is None else trained.config
    tokenizer = tokenize or (config.bleu_tokenizer if config else DEFAULT)
    title, lines = read_text(hypotheses)
    translations, wanted = list(lines), list(read_lines(references))
    sources = None if source is None else list(read_lines(source))
    others = {str(path): list(read_lines(path)) for path in paired or ()}
    for name, other in others.items():
        if len(other) != len(wanted):
            raise ShapeshiftError(
                f"has {len(other):,} lines, but there are {len(wanted):,} references", path=name
            )
    scores = evaluate(
        translations,
        wanted,
        metrics=metrics,
        sources=sources,
        tokenizer=tokenizer,
        comet=config.evaluation.comet if config else None,
        lengths=None if sources is None else [len(line.split()) for line in sources],
        length_buckets=bounds,
    )
    if json is not None:
        write(json, scores.document())
    if sys.stdout.isatty():
        show_scores("score" if hypotheses == STDIN else Path(hypotheses).name, scores)
    else:
        _print_lines(scores)
    for kind, result in zip(metrics, scores.scores, strict=False) if others else ():
        from shapeshift.lab.significance import compare

        for name, other in others.items():
            test = compare({1: other}, {1: translations}, wanted, metric=kind, tokenizer=tokenizer)
            show(
                f"{name}: {result.name} {test.score:.2f}, {test.difference:+.2f} against {title},"
                f" p = {test.p_value:.4f} (paired bootstrap, {test.num_samples:,} samples)"
            )
    if trained is not None and source is not None and sources is not None:
        pairs = trained.translator().score(sources, translations, names=(source, title))
        _print_log_probs(pairs, log_probs)


def _settings_without_run(settings: list[str]) -> Config | None:
    """Return the settings of COMET and of the tokenizer; `None` leaves PyTorch out."""
    refuse_without_effect(settings, _WITHOUT_RUN, " without --run")
    if not settings:
        return None
    from shapeshift.config import parse_config

    return parse_config({}, settings)


def _print_log_probs(pairs: list[PairScore], path: Path | None) -> None:
    if path is not None:
        write(path, "".join(f"{pair.log_prob!r}\n" for pair in pairs))
    num_tokens = sum(pair.num_tokens for pair in pairs)
    mean = math.fsum(pair.log_prob for pair in pairs) / max(1, num_tokens)
    print(f"log p {mean:.6f} (mean over {num_tokens:,} tokens, natural logarithm)")


def _parse_bounds(text: str) -> list[int]:
    try:
        return [int(bound) for bound in text.split(",")]
    except ValueError:
        raise usage_error(
            "--length-buckets",
            f"expected whole numbers with commas between them, like 10,20,30; got {text!r}",
        ) from None


def show_scores(name: str, scores: Scores) -> None:
    """Print scores as tables, and by source length if they have that."""
    from dataclasses import replace

    from shapeshift.evaluation.tables import length_table, score_table

    table = score_table(name, scores)
    if scores.by_length is not None:  # all notes stand at the end, each once
        lengths = length_table(name, scores)
        show_table(replace(table, notes=()))
        table = replace(lengths, notes=list(dict.fromkeys([*table.notes, *lengths.notes])))
    show_table(table)


def _print_lines(scores: Scores) -> None:
    for result in scores.scores:
        print(f"{result.name} {result.value:.2f} ({result.signature})")
    for bucket in scores.by_length or ():
        high = "inf" if bucket.high is None else bucket.high
        value = "none" if bucket.bleu is None else f"{bucket.bleu:.2f}"
        print(f"BLEU[{bucket.low},{high}) {value} ({bucket.num_segments} segments)")
