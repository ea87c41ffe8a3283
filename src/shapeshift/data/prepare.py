"""Prepares data: writes everything that training and evaluation read into one folder.

The folder appears only when it is complete and flushed to the disk; `prepared` describes its files.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

import shapeshift
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import MAX_FILE, read, save
from shapeshift._system.hashes import digest, verify
from shapeshift.data.builders import Pair, build
from shapeshift.data.config import (
    SPLITS,
    DataConfig,
    FilesCorpus,
    GrammarCorpus,
    Interpolate,
    Split,
)
from shapeshift.data.corpora import (
    Places,
    check_text,
    corpus_fingerprint,
    fetch,
    labels,
    local_corpus,
    read_split,
    write_grammar,
)
from shapeshift.data.filter import MAX_CHARACTERS, Dropped, empty_side, filter_pairs
from shapeshift.data.prepared import (
    FORMAT,
    REPORT,
    REPORT_OF_RUN,
    LengthStatistics,
    Prepared,
    Report,
    SplitReport,
    read_report,
    text_paths,
)
from shapeshift.data.sources.download import Progress, watched
from shapeshift.data.sources.folders import build_once
from shapeshift.data.store import TokenStore, write_store
from shapeshift.data.subwords import UNK, Subwords, join_pieces

_CHUNK = 10_000

UNWRITABLE = "whose target these subwords cannot write"


def prepare(
    config: DataConfig, directory: str | Path, on_progress: Progress | None = None
) -> Prepared:
    """Prepare data, unless `directory` already holds exactly these; fetch text that is not here.
    Of several processes that prepare the same folder, one works and the others wait.

    Args:
        config: corpus, subwords, recipe.
        directory: where to put it: missing, empty, or prepared before.
        on_progress: see `Progress`.

    Raises:
        ShapeshiftError: input that cannot be fetched or read, settings that do not fit the text,
            or a directory that holds other data.
    """
    directory = Path(directory)
    report = on_progress or (lambda *_: None)
    fetch(config.corpus, report)
    report("check the text", 0, None)
    fingerprint = _fingerprint(config, directory)
    build_once(
        directory.absolute(),
        lambda: _holds(directory, config, fingerprint),
        lambda new: _fill(new, config, fingerprint, report),
    )
    return Prepared(directory)


def _fill(directory: Path, config: DataConfig, fingerprint: str, report: Progress) -> None:
    """Build everything in an empty folder."""
    if isinstance(config.corpus, GrammarCorpus):
        (directory / "corpus").mkdir()
        corpus = write_grammar(config.corpus, directory / "corpus", report)
        sizes = {split: config.corpus.num_pairs(split) for split in SPLITS}
    else:
        corpus = local_corpus(config.corpus)
        sizes = check_text(corpus, report)
    subwords = _train_subwords(directory / "subwords", config, corpus, report)
    splits: dict[Split, SplitReport] = {}
    for split in ("test", "valid", "train"):  # train last: a fault in the others shows sooner
        places, dropped, noticed = Places(), Dropped(), Dropped()
        generated = isinstance(config.corpus, GrammarCorpus)  # its files have no lasting path
        lines = watched(places.read(corpus, split), f"encode {split}", sizes[split], report)
        # Of train alone: valid and test keep their long texts.
        max_length = config.filter.max_length if config.filter and split == "train" else None
        pairs = _encode(lines, subwords, max_length)
        if config.filter is not None:
            pairs = filter_pairs(pairs, config.filter, split, dropped)
        if split != "train":
            pairs = _notice(pairs, subwords, noticed, has_references=bool(corpus.references(split)))
        built = build(pairs, config.recipe, split, dropped, places.file_of, subwords)
        store, longest, numbers = _write_split(directory, split, built, subwords)
        first = dropped.first | noticed.first
        if not len(store):
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
            raise ShapeshiftError(
                f"none of {sizes[split]:,} {split} pairs is left (dropped: {reasons}); "
                "set wider limits in data.recipe or data.filter"
            )
        splits[split] = SplitReport(
            read=sizes[split],
            kept=sizes[split] - dropped.total(),
            built=len(store),
            dropped=dict(dropped),
            noticed=dict(noticed),
            first={} if generated else {x: places.find(number) for x, number in first.items()},
            source_length=_statistics(store.source_lengths),
            target_length=_statistics(store.target_lengths),
            longest=() if generated else tuple(places.find(*each) for each in longest),
            files=() if split == "train" else places.count_by_file(numbers),
        )
    if _fingerprint(config, directory) != fingerprint:
        raise ShapeshiftError("the text changed while it was prepared; run the command again")
    result = Report(
        fingerprint=fingerprint,
        config=config,
        subwords=subwords.fingerprint,
        splits={split: splits[split] for split in SPLITS},
        versions={
            "python": platform.python_version(),
            "shapeshift": shapeshift.__version__,
            "sentencepiece": sentencepiece.__version__,
            "numpy": np.__version__,
        },
    )
    (directory / REPORT).write_text(result.model_dump_json(indent=2) + "\n", "utf-8")


def _train_subwords(
    directory: Path, config: DataConfig, corpus: FilesCorpus, report: Progress
) -> Subwords:
    """Train subword models on the unfiltered train split, or copy the given ones."""
    if config.subwords.models is not None:
        subwords = _subwords_of(config.subwords.models, config)
        for path in (config.subwords.models / "subwords").iterdir():
            save(directory / path.name, read(path, MAX_FILE))
        return subwords
    return Subwords.train(
        lambda: watched(read_split(corpus, "train"), "train subwords", None, report),
        config.subwords,
        directory,
    )


def _encode(
    lines: Iterator[tuple[str, ...]], subwords: Subwords, max_length: int | None
) -> Iterator[Pair]:
    """Encode the lines of a split in chunks; a chunk is encoded while the one before is written. A
    text that is certainly longer than `max_length` is not encoded, and gets `max_length` + 1
    ids."""
    numbers = count()

    def encode_side(model: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]) -> Any:
        if max_length is None:
            return model(texts)
        most, too_long = MAX_CHARACTERS * max_length, [UNK] * (max_length + 1)
        ids = model([text if len(text) <= most else "" for text in texts])
        return [y if len(x) <= most else too_long for x, y in zip(texts, ids, strict=True)]

    def encode(chunk: list[tuple[str, ...]]) -> list[Pair]:
        sources, targets, *references = map(list, zip(*chunk, strict=True))
        source_ids = encode_side(subwords.encode_source, sources)
        target_ids = encode_side(subwords.encode_target, targets)
        if references:
            [targets] = references
        elif subwords.presplit:
            targets = [join_pieces(target) for target in targets]
        return list(map(Pair, sources, targets, source_ids, target_ids, numbers))

    with ThreadPoolExecutor(max_workers=1) as thread:
        before: Future[list[Pair]] = thread.submit(list)
        while chunk := list(islice(lines, _CHUNK)):
            encoded = thread.submit(encode, chunk)
            yield from before.result()
            before = encoded
        yield from before.result()


def _notice(
    pairs: Iterable[Pair], subwords: Subwords, noticed: Dropped, *, has_references: bool
) -> Iterator[Pair]:
    """Yield the pairs of valid or test, and count those that may spoil scores: pairs with an empty
    side, and targets that the subwords cannot reproduce because of normalisation or an unknown
    character."""
    raw = not (has_references or subwords.presplit)
    for pair in pairs:
        if empty_side(pair):
            noticed.add("with an empty side", pair)
        elif raw and subwords.decode_target(pair.target_ids).split() != pair.target.split():
            noticed.add(UNWRITABLE, pair)
        yield pair


def _write_split(
    directory: Path, split: Split, pairs: Iterator[Pair], subwords: Subwords
) -> tuple[TokenStore, list[tuple[int, int]], list[int]]:
    """Write the store of a split and, except for train, its text. Return the store, the number and
    the side (0 or 1) of the pairs with the longest source and the longest target, and the numbers
    of all pairs, except for train."""
    lengths, longest, numbers = [-1, -1], [(0, 0), (0, 1)], list[int]()
    texts = [] if split == "train" else text_paths(directory, split)
    with ExitStack() as stack:
        files = [stack.enter_context(x.open("w", encoding="utf-8", newline="\n")) for x in texts]

        def encoded() -> Iterator[tuple[list[int], list[int]]]:
            for pair in pairs:
                if split != "train":
                    numbers.append(pair.number)
                for file, text in zip(files, (pair.source, pair.target), strict=False):
                    file.write(text + "\n")
                for side, ids in enumerate((pair.source_ids, pair.target_ids)):
                    if len(ids) > lengths[side]:
                        lengths[side], longest[side] = len(ids), (pair.number, side)
                yield pair.source_ids, pair.target_ids

        source_size, target_size = subwords.sizes
        store = write_store(
            directory / split, encoded(), source_size=source_size, target_size=target_size
        )
    return store, longest, numbers


def _statistics(lengths: NDArray[np.int32]) -> LengthStatistics:
    return LengthStatistics(
        min=int(lengths.min()), mean=round(float(lengths.mean()), 2), max=int(lengths.max())
    )


def _fingerprint(config: DataConfig, directory: Path) -> str:
    exclude: Any = {"corpus": {"root", "archive"}, "subwords": {"models"}}
    settings = config.model_dump(mode="json", exclude=exclude)
    document = {"format": FORMAT, "config": settings, "text": corpus_fingerprint(config.corpus)}
    if isinstance(config.recipe, Interpolate) and any(
        len(labels(config.corpus, split)) > 1 for split in ("valid", "test")
    ):
        document["joined"] = "file by file"  # data of an earlier version ran on over their ends
    if (models := config.subwords.models) is not None:
        # Moved or deleted, they are no longer needed where they have been copied.
        copied = not models.exists() and (directory / REPORT).is_file()
        document["subwords"] = _subwords_of(directory if copied else models, config).fingerprint
    return digest(document)


def _subwords_of(directory: Path, config: DataConfig) -> Subwords:
    remedy = "train or prepare it again, or give another folder"
    report = next((x for x in (REPORT, REPORT_OF_RUN) if (directory / x).is_file()), None)
    if report is None:
        raise ShapeshiftError(
            "is neither a run nor prepared data, whose subword models could be used; give a folder"
            " made by `shapeshift train` or `shapeshift prepare`",
            path=directory,
        )
    for name in (report, "subwords/"):
        verify(directory, name, remedy=remedy)
    theirs, own = Report.read(directory / report, remedy).config.subwords, config.subwords
    other = [
        f"data.subwords.{name}={value}"
        for name, value in theirs
        if name != "models" and getattr(own, name) != value
    ]
    if other:
        problem = f"has subword models of other settings than these; set {' '.join(other)}"
        raise ShapeshiftError(problem, path=directory)
    return Subwords.load(directory / "subwords")


def _holds(directory: Path, config: DataConfig, fingerprint: str) -> bool:
    """Return whether a folder holds these data; raise an error if it holds other files."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    report = read_report(directory)
    if report.fingerprint == fingerprint:
        return True
    changed = [f"data.{name}" for name, value in config if getattr(report.config, name) != value]
    raise ShapeshiftError(
        f"holds data prepared otherwise ({', '.join(changed) or 'the corpus text'} changed); "
        "remove this folder, or choose another directory for prepared data",
        path=directory,
    )
