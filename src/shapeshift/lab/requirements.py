"""What a run will need, looked for before it begins: packages, text, models, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from shapeshift.config import Config
from shapeshift.data.config import FilesCorpus, GrammarCorpus, HubCorpus
from shapeshift.data.corpora import require_files
from shapeshift.data.prepared import Prepared
from shapeshift.data.sources.hub import is_exported, require_datasets
from shapeshift.decoding.capacity import capacity
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation import comet
from shapeshift.evaluation.detokenize import moses
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.model import Transformer, build
from shapeshift.positions import Randomized
from shapeshift.training import estimate


def missing_requirements(config: Config, prepared: Path) -> list[str]:
    """Return a line for each thing that a run lacks: what it is for and how to get it.

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
        read += [(split, lengths, inference.source) for split, lengths in translated]
        limit = config.decoding.max_source_length
        for split, lengths in translated:
            if limit is not None and lengths.max() > limit:
                raise ShapeshiftError(
                    f"{split} pair {lengths.argmax()} (counted from 0) has {lengths.max():,} source"
                    f" subwords, over decoding.max_source_length={limit}; raise that to"
                    f" {lengths.max()}, or cut such lines with decoding.on_long=split",
                    path=data.directory,
                )
    faults = [
        (split, int(lengths.argmax()), int(lengths.max()) + 1, most)
        for split, lengths, most in read
        if most is not None and lengths.max() >= most
    ]
    if faults:
        split, pair, num_tokens, most = faults[0]
        ways = [_more_positions(model, faults)]
        splits = {split for split, *_ in faults}
        if splits == {"test"}:
            ways.append("cut such lines with decoding.on_long=split")
        else:
            ways.append("use a kind without a limit, such as position=ape")
        raise ShapeshiftError(
            f"{split} pair {pair} (counted from 0) has {num_tokens:,} tokens, and the model has"
            f" positions for {most:,}; {', or '.join(ways)}",
            path=data.directory,
        )


def measure_run(config: Config) -> tuple[int, float]:
    """Return the parameters of a run's model, and the seconds of an update here.

    The random sentences are of the length that `assumed_length` returns, or as long as the model
    has positions for: real text may be shorter.
    """
    run, vocab_size = (config.model, config.position.scheme), config.data.subwords.vocab_size
    model = build(*run, vocab_size, vocab_size)
    room = capacity(model, training=True)
    lengths = (estimate.assumed_length(config.data), room.source, room.target)
    length = min(length for length in lengths if length is not None)
    seconds = estimate.measure(*run, config.training, vocab_size, length)
    return sum(parameter.numel() for parameter in model.parameters()), seconds


def _more_positions(model: Transformer, faults: Sequence[tuple[str, int, int, int]]) -> str:
    """Return how to raise the limit so far that all texts fit."""
    position_ids = model.source.position_ids
    if not isinstance(position_ids, Randomized):
        return f"add {max(tokens - most for *_, tokens, most in faults)} to num_positions"
    at_inference = [tokens for split, _, tokens, _ in faults if split != "training"]
    longest = max(tokens for *_, tokens, _ in faults)
    options = [f"position.position_ids.max_length={max(at_inference)}"] if at_inference else []
    if longest > position_ids.max_position:
        options.append(f"position.position_ids.max_position={longest}")
    return f"set {' '.join(options)}"


def _checks(config: Config, prepared: Path) -> Iterator[Callable[[], object]]:
    corpus = config.data.corpus
    if isinstance(corpus, FilesCorpus) and corpus.archive is None:
        yield lambda: require_files(corpus)
    if isinstance(corpus, HubCorpus) and not (prepared.is_dir() or is_exported(corpus)):
        yield require_datasets
    yield lambda: make_bleu(config.bleu_tokenizer)
    if config.evaluation.detokenize == "moses" and not isinstance(corpus, GrammarCorpus):
        yield lambda: moses(corpus.target)
    if "comet" in (*config.training.validated_metrics, *config.evaluation.metrics):
        yield lambda: comet.fetch(config.evaluation.comet_model)
