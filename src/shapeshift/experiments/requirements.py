"""The optional packages that a run will need, looked for before it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.config import GrammarCorpus, HubCorpus
from shapeshift.data.hub import is_exported, require_datasets
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.comet import require_comet
from shapeshift.evaluation.detokenize import moses
from shapeshift.evaluation.tokenizers import make_bleu


def missing_requirements(config: Config, prepared: Path) -> list[str]:
    """Return a line for each package that a run lacks: what it is for and how to get it. Nothing is
    fetched, but for the tokenizers that `make_bleu` names.

    Args:
        config: of the run.
        prepared: the folder of its prepared data, which need not be there.
    """
    lines = []
    for check in _checks(config, prepared):
        try:
            check()
        except ShapeshiftError as error:
            lines.append(str(error))
    return lines


def check_requirements(config: Config, prepared: Path) -> None:
    """Raise a `ShapeshiftError` that names all of `missing_requirements`, if there are any: before
    a run begins, not when days have passed."""
    lines = missing_requirements(config, prepared)
    if lines:
        raise ShapeshiftError("; ".join(lines))


def _checks(config: Config, prepared: Path) -> Iterator[Callable[[], object]]:
    corpus = config.data.corpus
    if isinstance(corpus, HubCorpus) and not (prepared.is_dir() or is_exported(corpus)):
        yield require_datasets
    yield lambda: make_bleu(config.bleu_tokenizer)
    if config.evaluation.detokenize == "moses" and not isinstance(corpus, GrammarCorpus):
        yield lambda: moses(corpus.target)
    if "comet" in (*config.training.validated_metrics, *config.evaluation.metrics):
        yield require_comet
