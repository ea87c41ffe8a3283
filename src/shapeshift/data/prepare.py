"""Prepares data: writes everything that training and evaluation read into one folder.

The folder appears only when it is complete and flushed to the disk; `prepared` describes its files.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

import shapeshift
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
    check_text,
    corpus_fingerprint,
    fetch,
    file_ends,
    labels,
    local_corpus,
    read_split,
    write_grammar,
)
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
from shapeshift.data.subwords import Subwords, join_pieces
from shapeshift.disk import MAX_FILE, read, save
from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import digest, verify

_CHUNK = 10_000


def prepare(
    config: DataConfig, directory: str | Path, on_progress: Progress | None = None
) -> Prepared:
    """Prepare data, unless `directory` already holds exactly these; fetch text that is not here.

    Of several processes that prepare the same folder, one works and the others wait.

    Args:
        config: corpus, subwords, dataset.
        directory: where to put it: missing, empty, or prepared before.
        on_progress: called with a stage, how much of it is done, and of how much, if known.

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
        dropped: Counter[str] = Counter()
        lines = watched(read_split(corpus, split), f"encode {split}", sizes[split], report)
        ends = file_ends(corpus, split) if split != "train" else ()
        built = build(_encode(lines, subwords), config.dataset, split, dropped, ends)
        store = _write_split(directory, split, built, subwords)
        if not len(store):
            reasons = ", ".join(f"{number:,} {reason}" for reason, number in dropped.items())
            raise ShapeshiftError(
                f"none of {sizes[split]:,} {split} pairs is left (dropped: {reasons}); "
                "set wider limits in data.dataset"
            )
        splits[split] = SplitReport(
            read=sizes[split],
            kept=sizes[split] - dropped.total(),
            built=len(store),
            dropped=dict(dropped),
            source_length=_statistics(store.source_lengths),
            target_length=_statistics(store.target_lengths),
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
    """Train the models on the train split as it is in the corpus, or copy those that are given."""
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


def _encode(lines: Iterator[tuple[str, ...]], subwords: Subwords) -> Iterator[Pair]:
    """Encode the lines of a split, a chunk at a time, each while the one before is written."""

    def encode(chunk: list[tuple[str, ...]]) -> list[Pair]:
        sources, targets, *references = map(list, zip(*chunk, strict=True))
        source_ids, target_ids = subwords.encode_source(sources), subwords.encode_target(targets)
        if references:
            [targets] = references
        elif subwords.presplit:
            targets = [join_pieces(target) for target in targets]
        return list(map(Pair, sources, targets, source_ids, target_ids))

    with ThreadPoolExecutor(max_workers=1) as thread:
        before: Future[list[Pair]] | None = None
        while chunk := list(islice(lines, _CHUNK)):
            encoded = thread.submit(encode, chunk)
            if before is not None:
                yield from before.result()
            before = encoded
        if before is not None:
            yield from before.result()


def _write_split(
    directory: Path, split: Split, pairs: Iterator[Pair], subwords: Subwords
) -> TokenStore:
    """Write the store of a split and, except for train, its text."""
    texts = [] if split == "train" else text_paths(directory, split)
    with ExitStack() as stack:
        files = [stack.enter_context(x.open("w", encoding="utf-8", newline="\n")) for x in texts]

        def encoded() -> Iterator[tuple[list[int], list[int]]]:
            for pair in pairs:
                for file, text in zip(files, (pair.source, pair.target), strict=False):
                    file.write(text + "\n")
                yield pair.source_ids, pair.target_ids

        return write_store(
            directory / split,
            encoded(),
            source_size=subwords.source_size,
            target_size=subwords.target_size,
        )


def _statistics(lengths: NDArray[np.int32]) -> LengthStatistics:
    return LengthStatistics(
        min=int(lengths.min()), mean=round(float(lengths.mean()), 2), max=int(lengths.max())
    )


def _fingerprint(config: DataConfig, directory: Path) -> str:
    exclude: Any = {"corpus": {"root", "archive"}, "subwords": {"models"}}
    settings = config.model_dump(mode="json", exclude=exclude)
    document = {"format": FORMAT, "config": settings, "text": corpus_fingerprint(config.corpus)}
    if isinstance(config.dataset, Interpolate) and any(
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
        raise ShapeshiftError(
            f"has subword models of other settings than these; set {' '.join(other)}",
            path=directory,
        )
    return Subwords.load(directory / "subwords")


def _holds(directory: Path, config: DataConfig, fingerprint: str) -> bool:
    """Return whether a folder holds these data; raise if it holds anything else."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    report = read_report(directory)
    if report.fingerprint == fingerprint:
        return True
    sections = DataConfig.model_fields
    changed = [f"data.{x}" for x in sections if getattr(report.config, x) != getattr(config, x)]
    raise ShapeshiftError(
        f"holds data prepared otherwise ({', '.join(changed) or 'the corpus text'} changed); "
        "choose another directory or remove this one",
        path=directory,
    )
