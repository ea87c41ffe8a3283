"""Checks before a run begins: packages, text, models, positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError, require
from shapeshift.config import Config
from shapeshift.data.config import FilesCorpus, HubCorpus, Split
from shapeshift.data.corpora import require_files
from shapeshift.data.prepare import UNWRITABLE
from shapeshift.data.prepared import Prepared, read_report, text_paths
from shapeshift.data.sources.files import read_lines
from shapeshift.data.sources.hub import NEEDED, folder_of
from shapeshift.decoding.capacity import capacity
from shapeshift.evaluation import comet
from shapeshift.evaluation.tokenizers import make_bleu, misfit, tokenised
from shapeshift.model import Transformer, build
from shapeshift.positions import Randomized
from shapeshift.run.folder import detokenizer
from shapeshift.training import estimate


def missing_requirements(config: Config, prepared: Path) -> list[str]:
    """Return a line for each missing requirement of a run: what it is for, and how to get it.
    Called before a run begins, so that it does not fail days later; the folder of its `prepared`
    data need not be there."""
    corpus, lines = config.data.corpus, []
    checks: list[Callable[[], object]] = [lambda: require_text(config)]
    if isinstance(corpus, HubCorpus) and not (prepared.is_dir() or folder_of(corpus).is_dir()):
        checks.append(lambda: require(*NEEDED))
    checks += [lambda: make_bleu(config.bleu_tokenizer), lambda: detokenizer(config)]
    if "comet" in (*config.training.validated_metrics, *config.evaluation.metrics):
        checks.append(lambda: comet.fetch(config.evaluation.comet_model))
    for check in checks:
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
    _check_batches(config, data)
    training, inference = capacity(model, training=True), capacity(model)
    read: list[tuple[Split, int, int | None]] = [
        ("train", 0, training.source),
        ("train", 1, training.target),
        ("valid", 0, inference.source),
        ("valid", 1, inference.target),
    ]
    if config.decoding.on_long == "error":
        translated: list[Split] = ["test"] if tested else []
        if config.training.validated_metrics:
            translated.append("valid")
        limit = config.decoding.most_source_subwords
        for split in translated:
            read.append((split, 0, inference.source))
            length, pair = _longest(data, split, 0)
            if length > limit:
                raise ShapeshiftError(
                    f"{pair} has {length:,} source subwords, over decoding.max_source_length="
                    f"{limit}; raise that to {length}, or cut such lines with"
                    " decoding.on_long=split"
                )
    faults = []
    for split, side, most in read:
        length, pair = _longest(data, split, side)
        if most is not None and length >= most:
            faults.append((length + 1 - most, split, side, most, pair))
    if faults:
        more, split, side, most, pair = max(faults)
        options = "num_positions"
        if isinstance(model.source.position_ids, Randomized):
            options = "max_length and max_position of position.position_ids"
        also = {
            "train": f"; data.filter.max_length={most - 1} leaves such pairs out",
            "test": "; decoding.on_long=split cuts lines of the test text",
        }
        raise ShapeshiftError(
            f"{pair} has {most + more:,} tokens, and the model has"
            f" positions for {most:,}; add {more} to {options}, or use a kind without a limit, such"
            f" as position=ape{also.get(split, '')}"
        )


def _longest(data: Prepared, split: Split, side: int) -> tuple[int, str]:
    """Return the length of the longest source (0) or target (1) of a split, and a description of
    the pair for errors."""
    store, places = data.store(split), data.report.splits[split].longest
    lengths = (store.source_lengths, store.target_lengths)[side]
    name = {"train": "training", "valid": "validation", "test": "test"}[split]
    place = f", {places[side]}" if places else ""
    return int(lengths.max()), f"{name} pair {lengths.argmax()} (counted from 0{place})"


def text_notices(config: Config, prepared: Path) -> list[str]:
    """Return notices about the text in a folder of prepared data: pairs that are left out, and
    problems that lower the scores of good translations."""
    report = read_report(prepared)
    lines = report.notices()
    if any(UNWRITABLE in split.noticed for split in report.splits.values()):
        subwords, remedy = config.data.subwords, ""
        if subwords.normalization != "identity":
            remedy = "; data.subwords.normalization=identity keeps the text as it is"
        elif subwords.character_coverage < 1:
            remedy = "; data.subwords.character_coverage=1.0 keeps all characters"
        lines.append(
            "no translation can equal a reference that normalisation changes, or with characters"
            f" that are no subwords{remedy}"
        )
    references = list(read_lines(text_paths(prepared, "test")[1]))
    if fault := misfit(config.bleu_tokenizer, references):
        lines.append(f"{fault} (evaluation.tokenize)")
    if config.evaluation.detokenize == "none" and (fault := tokenised("target", references)):
        lines.append(fault)
    return lines


def _check_batches(config: Config, data: Prepared) -> None:
    """Raise a `ShapeshiftError`, with file and line, for a pair that is too long for any training
    batch."""
    most = config.training.batch.max_tokens
    splits: tuple[Split, ...] = ("train", "valid")
    for split in splits:
        length, pair = max(_longest(data, split, side) for side in (0, 1))
        if length < most:
            continue
        remedy = f"if it is a mistake, leave such pairs out with data.filter.max_length={most - 1}"
        if split == "valid":
            remedy = (
                "take the line out of the validation text if it is a mistake, or set"
                f" training.batch.max_tokens={length + 1}"
            )
        raise ShapeshiftError(
            f"{pair} has {length + 1:,} tokens with </s>, and a batch has {most:,} at most"
            f" (training.batch.max_tokens); {remedy}"
        )


def measure_run(config: Config) -> tuple[int, estimate.UpdateTime]:
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
