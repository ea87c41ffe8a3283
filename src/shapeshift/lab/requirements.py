"""What a run will need, looked for before it begins: packages, text, models, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.config import FilesCorpus, HubCorpus
from shapeshift.data.corpora import require_files
from shapeshift.data.prepared import Prepared
from shapeshift.data.sources.hub import NEEDED, folder_of
from shapeshift.decoding.capacity import capacity
from shapeshift.errors import ShapeshiftError, require
from shapeshift.evaluation import comet
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.lab.run import detokenizer
from shapeshift.model import Transformer, build
from shapeshift.positions import Randomized
from shapeshift.training import estimate


def missing_requirements(config: Config, prepared: Path) -> list[str]:
    """Return a line for each thing that a run lacks: what it is for and how to get it. It is looked
    for before a run begins, not when days have passed.

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


def require_text(config: Config) -> None:
    """Raise a `ShapeshiftError` if files of the text are missing that cannot be downloaded."""
    corpus = config.data.corpus
    if isinstance(corpus, FilesCorpus) and corpus.archive is None:
        require_files(corpus)


def check_lengths(config: Config, model: Transformer, data: Prepared, *, tested: bool) -> None:
    """Check that the model has positions for every token that it will read in the text.

    Raises:
        ShapeshiftError: a sentence is too long.
    """
    training, inference = capacity(model, training=True), capacity(model)
    read = [
        ("training", data.train.source_lengths, training.source),
        ("training", data.train.target_lengths, training.target),
        ("validation", data.valid.source_lengths, inference.source),
        ("validation", data.valid.target_lengths, inference.target),
    ]
    if config.decoding.on_long == "error":
        translated = [("test", data.test.source_lengths)] if tested else []
        if config.training.validated_metrics:
            translated.append(("validation", data.valid.source_lengths))
        limit = config.decoding.max_source_length
        for split, lengths in translated:
            read.append((split, lengths, inference.source))
            if limit is not None and lengths.max() > limit:
                raise ShapeshiftError(
                    f"{split} pair {lengths.argmax()} (counted from 0) has {lengths.max():,} source"
                    f" subwords, over decoding.max_source_length={limit}; raise that to"
                    f" {lengths.max()}, or cut such lines with decoding.on_long=split",
                    path=data.directory,
                )
    faults = [
        (int(lengths.max()) + 1 - most, split, int(lengths.argmax()), most)
        for split, lengths, most in read
        if most is not None and lengths.max() >= most
    ]
    if faults:
        more, split, pair, most = max(faults)
        options = "num_positions"
        if isinstance(model.source.position_ids, Randomized):
            options = "max_length and max_position of position.position_ids"
        cut = "; decoding.on_long=split cuts lines of the test text" if split == "test" else ""
        raise ShapeshiftError(
            f"{split} pair {pair} (counted from 0) has {most + more:,} tokens, and the"
            f" model has positions for {most:,}; add {more} to {options}, or use a kind without a"
            f" limit, such as position=ape{cut}",
            path=data.directory,
        )


def measure_run(config: Config) -> tuple[int, float]:
    """Return the parameters of a run's model, and the seconds of an update here.

    The random sentences are of the length that `assumed_length` returns, or as long as the model
    has positions for: real text may be shorter.
    """
    vocab_size = config.data.subwords.vocab_size
    model = build(config.model, config.position.scheme, vocab_size, vocab_size)
    room = capacity(model, training=True)
    lengths = (estimate.assumed_length(config.data), room.source, room.target)
    length = min(length for length in lengths if length is not None)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return num_parameters, estimate.measure(model, config.training, length)


def _checks(config: Config, prepared: Path) -> Iterator[Callable[[], object]]:
    corpus = config.data.corpus
    yield lambda: require_text(config)
    if isinstance(corpus, HubCorpus) and not (prepared.is_dir() or folder_of(corpus).is_dir()):
        yield lambda: require(*NEEDED)
    yield lambda: make_bleu(config.bleu_tokenizer)
    yield lambda: detokenizer(config)
    if "comet" in (*config.training.validated_metrics, *config.evaluation.metrics):
        yield lambda: comet.fetch(config.evaluation.comet_model)
