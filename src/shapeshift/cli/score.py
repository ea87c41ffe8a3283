"""`shapeshift score`: BLEU, chrF and COMET of translations, and BLEU by source length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.options import read_text, usage_error
from shapeshift.cli.output import notice, show, write

LENGTH_BUCKETS = (10, 20, 30, 40, 50)
"""Bounds between the buckets of source lengths, in words."""


def score(
    hypotheses: Annotated[
        str,
        typer.Argument(
            metavar="HYPOTHESES",
            help="Detokenised translations, one per line; - for standard input.",
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
            metavar="NAME,...", help="bleu, chrf, chrf++ or comet (which needs --source)."
        ),
    ] = ["bleu", "chrf"],  # noqa: B006 (Typer copies it)
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="sacreBLEU's tokenizer for BLEU: 13a for most languages, zh for Chinese, ja-mecab"
            " for Japanese, ko-mecab for Korean, char (single characters) for others without spaces"
            " between words, such as Thai, flores200 for any. Also intl, none and the others of"
            " sacreBLEU. [default: that of the language by which REFERENCES ends, such as .ja, or"
            " else of the script]",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            help="The source file: adds BLEU by source length in words (in characters, for text"
            " without spaces)."
        ),
    ] = None,
    comet_model: Annotated[
        str | None,
        typer.Option(
            help="For comet: a name on the Hugging Face hub, or the path of a checkpoint."
            " [default: Unbabel/wmt20-comet-da]"
        ),
    ] = None,
    paired: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Translations of the same text by another system: tests whether it is better or"
            " worse than HYPOTHESES. May be given several times: the p-values of a score are then"
            " corrected for the number of systems (Holm 1979).",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the scores and hashes of both files to this file.")
    ] = None,
) -> None:
    """Score translations: BLEU, chrF, COMET.

    sacreBLEU computes BLEU and chrF, and unbabel-comet computes COMET; each score has a signature.
    Each score is a line.
    With --paired, each other system is compared by a paired bootstrap test (Koehn 2004).

    Example: shapeshift score baseline.de reference.de --paired new.de
    """
    metrics = list(dict.fromkeys(name for names in metric for name in names.lower().split(",")))
    if paired and "comet" in metrics:
        raise usage_error("--paired", "tests BLEU and chrF; leave comet out")
    if twice := [path for path in paired or () if (paired or []).count(path) > 1]:
        raise usage_error("--paired", f"{twice[0]} is given twice")
    if comet_model and "comet" not in metrics:
        raise usage_error("--comet-model", "needs --metric comet")
    if tokenize and "bleu" not in metrics and source is None:
        raise usage_error("--tokenize", "applies to BLEU, which --metric leaves out")
    from shapeshift.data.scripts import count_words
    from shapeshift.data.sources.files import hold, read_lines
    from shapeshift.evaluation.comet import DEFAULT_MODEL
    from shapeshift.evaluation.scores import evaluate, up_to_longest
    from shapeshift.evaluation.tokenizers import by_text, misfit, one_is_tokenised

    title, lines = read_text(hypotheses)
    translations, wanted = hold(lines, title), hold(read_lines(references), references)
    language = references.name.removesuffix(".gz").rpartition(".")[2]
    tokenizer = tokenize or by_text(language, wanted)
    if "bleu" in metrics:
        for line in (misfit(tokenizer, wanted), one_is_tokenised(translations, wanted)):
            if line is not None:
                notice(f"warning: {line}", "yellow")
    sources = None if source is None else hold(read_lines(source), source)
    others = {str(path): hold(read_lines(path), path) for path in paired or ()}
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
        comet_model=comet_model or DEFAULT_MODEL,
        lengths=None if sources is None else [*map(count_words, sources)],
        length_buckets=LENGTH_BUCKETS,
    )
    if json is not None:
        write(json, scores.document())
    for result in scores.scores:
        show(f"{result.name} {result.value:.2f} ({result.signature})")
    for bucket in up_to_longest(scores.by_length or ()):
        high = "inf" if bucket.high is None else bucket.high
        value = "none" if bucket.bleu is None else f"{bucket.bleu:.2f}"
        show(f"BLEU[{bucket.low},{high}) {value} ({bucket.num_segments} segments)")
    for kind, result in zip(metrics, scores.scores, strict=False) if others else ():
        _show_tests(others, (title, translations), wanted, kind, tokenizer, result.name)


def _show_tests(
    others: Mapping[str, Sequence[str]],
    against: tuple[str, Sequence[str]],
    references: Sequence[str],
    metric: str,
    tokenizer: str,
    score_name: str,
) -> None:
    """Print whether each of several systems is better than another, on one metric."""
    from shapeshift.study.significance import NUM_SAMPLES, compare, holm

    title, baseline = against
    tests = {
        name: compare({1: other}, {1: baseline}, references, metric=metric, tokenizer=tokenizer)
        for name, other in others.items()
    }
    p_values = holm({name: test.p_value for name, test in tests.items()})
    method = f"paired bootstrap, {NUM_SAMPLES:,} samples"
    if len(others) > 1:
        method += f", Holm's correction over {len(others)} systems"
    for name, test in tests.items():
        show(
            f"{name}: {score_name} {test.score:.2f}, {test.difference:+.2f} against {title},"
            f" p = {p_values[name]:.4f} ({method})"
        )
