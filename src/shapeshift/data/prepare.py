"""From a configuration to everything that training and evaluation read, in one folder.

    prepared.json              configuration, counts, length statistics, fingerprint, versions
    subwords/                  the subword models
    train/ valid/ test/        token stores
    valid.source.txt …         raw text of valid and test after building, source and target
    corpus/                    the generated text, for the built-in grammar
    SHA256SUMS                 hashes of all these files, see `integrity`

The references are raw text where the corpus has some; else, where text is already split, they are
its pieces joined. The folder appears complete or not at all, when all of it is on the disk, and is
compared with its hashes when it is opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from glob import escape
from importlib import metadata
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from shapeshift.data.builders import Counts, Pair, build
from shapeshift.data.config import SPLITS, DataConfig, FilesCorpus, GrammarCorpus, Split
from shapeshift.data.corpora import (
    at_hand,
    corpus_fingerprint,
    fetch,
    read_references,
    read_split,
    write_grammar,
)
from shapeshift.data.presplit import join_pieces
from shapeshift.data.sources.download import Progress
from shapeshift.data.sources.files import read_lines
from shapeshift.data.store import TokenStore, TokenStoreWriter
from shapeshift.data.subwords import Subwords
from shapeshift.disk import Disk, make_directory, open_in_place, remove_directory, writing
from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import SUMS, seal, verify
from shapeshift.schema import Strict

REPORT = "prepared.json"
_CHUNK = 10_000
_LOCK = "lock"
_LONG_S = 86_400.0
_FORMAT: Literal[1] = 1


class LengthStatistics(Strict):
    """Lengths of one side of a split, in subwords. All zero where there is no pair."""

    min: int
    mean: float
    max: int


class SplitReport(Strict):
    """What a split became: its counts (see `builders.Counts`) and lengths."""

    read: int
    kept: int
    built: int
    dropped: dict[str, int]
    source_length: LengthStatistics
    target_length: LengthStatistics


class SubwordsReport(Strict):
    """The subword models: whether there is one, their sizes, their SHA-256."""

    joint: bool
    source_size: int
    target_size: int
    fingerprint: str


class Report(Strict):
    """The file `prepared.json`.

    Attributes:
        fingerprint: SHA-256 of the configuration and of the corpus text, wherever it stands.
        config: what was asked for.
        subwords: the models.
        splits: counts and lengths of train, valid and test.
        versions: of what the result may depend on.
    """

    format: Literal[1] = _FORMAT
    fingerprint: str
    config: DataConfig
    subwords: SubwordsReport
    splits: dict[Split, SplitReport]
    versions: dict[str, str]

    @classmethod
    def read(cls, path: Path, remedy: str) -> Report:
        """Read a report, compared with its hash before.

        Raises:
            ShapeshiftError: it is of another version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ShapeshiftError(
                f"is damaged, or of another version; {remedy}", path=path
            ) from error


class Prepared:
    """Prepared data, opened for reading.

    Attributes:
        directory: where it is.
        report: configuration, counts, statistics, versions.
        subwords: the subword models.
        train, valid, test: token stores.
    """

    def __init__(self, directory: str | Path):
        """Open what `prepare` wrote.

        Raises:
            ShapeshiftError: it is missing, damaged, or of another version.
        """
        self.directory = Path(directory)
        self.report = _read_report(self.directory)
        _verify(self.directory)
        self.subwords = Subwords.load(self.directory / "subwords")
        self.train = TokenStore.open(self.directory / "train")
        self.valid = TokenStore.open(self.directory / "valid")
        self.test = TokenStore.open(self.directory / "test")

    @classmethod
    def open(cls, directory: str | Path) -> Prepared:
        """Open what `prepare` wrote; the same as the constructor."""
        return cls(directory)

    def store(self, split: Split) -> TokenStore:
        """The token store of a split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def text(self, split: Literal["valid", "test"]) -> tuple[list[str], list[str]]:
        """Return the source texts, as the corpus has them, and the references of a split, in the
        order of its store.

        The parts of joined texts stand with ` <sep> ` between them.
        """
        source, target = _text_paths(self.directory, split)
        return list(read_lines(source)), list(read_lines(target))


def prepare(
    config: DataConfig, directory: str | Path, on_progress: Progress | None = None
) -> Prepared:
    """Prepare data, unless `directory` already holds this very data; fetch its text before, if it
    comes from elsewhere.

    Args:
        config: corpus, subwords, dataset.
        directory: where it shall be; missing, empty, or prepared before.
        on_progress: called with a stage, how much of it is done, and of how much, if known.

    Raises:
        ShapeshiftError: input that cannot be fetched or read, settings that do not fit the text,
            or a directory that holds other data.
    """
    directory = Path(directory)
    report = on_progress or _silent
    fetch(config.corpus, report)
    report("fingerprint", 0, None)
    fingerprint = _fingerprint(config)
    if _holds(directory, config, fingerprint):
        return Prepared.open(directory)
    target = directory.absolute()
    with writing(directory), _scratch(target) as folder:
        built = folder / target.name  # the scratch folder itself is closed to other users
        built.mkdir()
        _fill(built, config, fingerprint, report)
        seal(built)
        try:
            built.rename(target)
            Disk().sync_directory(target.parent)
        except OSError:  # another process was quicker: that is as good, if it holds the same
            if not _holds(directory, config, fingerprint):
                raise
    return Prepared.open(directory)


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """Yield a new folder next to `target`, which is removed at the end; also remove those that
    killed processes have left."""
    make_directory(Disk(), target.parent)
    for left in target.parent.glob(f".{escape(target.name)}.*"):
        if left.is_dir() and not left.is_symlink() and _is_abandoned(left):
            remove_directory(Disk(), left)
    with (
        TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder,
        open_in_place(Path(folder) / _LOCK, "wb") as lock,
    ):
        with suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends, however it does
        yield Path(folder)


def _is_abandoned(scratch: Path) -> bool:
    try:
        with open(scratch / _LOCK, "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:  # its process has only begun, or is of an earlier version
        return time.time() - scratch.stat().st_mtime > _LONG_S
    except OSError:
        return False
    return True


def _fill(directory: Path, config: DataConfig, fingerprint: str, report: Progress) -> None:
    """Build everything in an empty folder."""
    if isinstance(config.corpus, GrammarCorpus):
        (directory / "corpus").mkdir()
        corpus = write_grammar(config.corpus, directory / "corpus", report)
    else:
        corpus = at_hand(config.corpus)
    subwords, num_train = _train_subwords(directory / "subwords", config, corpus, report)
    splits: dict[Split, SplitReport] = {}
    for split in ("test", "valid", "train"):  # train last: a fault in the others shows sooner
        counts = Counts()
        total = num_train if split == "train" else None
        pairs = _watched(read_split(corpus, split), f"encode {split}", total, report)
        encoded = _with_references(_encode(pairs, subwords), read_references(corpus, split), split)
        built = build(encoded, config.dataset, split, counts)
        _write_split(directory, split, built, subwords)
        if not counts.built:
            raise ShapeshiftError(_nothing_left(split, counts))
        splits[split] = _split_report(counts, TokenStore.open(directory / split))
    result = Report(
        fingerprint=fingerprint,
        config=config,
        subwords=SubwordsReport(
            joint=subwords.joint,
            source_size=subwords.source_size,
            target_size=subwords.target_size,
            fingerprint=subwords.fingerprint,
        ),
        splits={split: splits[split] for split in SPLITS},
        versions=_versions(),
    )
    (directory / REPORT).write_text(result.model_dump_json(indent=2) + "\n", "utf-8")


def _train_subwords(
    directory: Path, config: DataConfig, corpus: FilesCorpus, report: Progress
) -> tuple[Subwords, int]:
    """Train the models on the train split as it is in the corpus; also return its size."""
    num_train = 0

    def pairs() -> Iterator[tuple[str, str]]:  # read once for each model
        nonlocal num_train
        num_train = 0
        text = _watched(read_split(corpus, "train"), "train subwords", None, report)
        for pair in text:
            num_train += 1
            yield pair

    return Subwords.train(pairs, config.subwords, directory), num_train


def _watched(
    pairs: Iterator[tuple[str, str]], stage: str, total: int | None, report: Progress
) -> Iterator[tuple[str, str]]:
    """Yield the pairs and report how many went by."""
    done = 0
    report(stage, done, total)
    for done, pair in enumerate(pairs, start=1):
        yield pair
        if done % _CHUNK == 0:
            report(stage, done, total)
    report(stage, done, done)


def _encode(pairs: Iterator[tuple[str, str]], subwords: Subwords) -> Iterator[Pair]:
    """Encode a stream of pairs, a chunk at a time."""
    while chunk := list(islice(pairs, _CHUNK)):
        sources = [source for source, _ in chunk]
        targets = [target for _, target in chunk]
        source_ids, target_ids = subwords.encode_source(sources), subwords.encode_target(targets)
        if subwords.presplit:
            targets = [join_pieces(target) for target in targets]
        yield from map(Pair, sources, targets, source_ids, target_ids)


def _with_references(
    pairs: Iterator[Pair], references: Iterator[str] | None, split: Split
) -> Iterator[Pair]:
    """Yield the pairs with the text that a translation is scored against as their target."""
    if references is None:
        yield from pairs
        return
    for number, pair in enumerate(pairs, start=1):
        reference = next(references, None)
        if reference is None:
            raise ShapeshiftError(
                f"{split} has more lines than its references, which end before line {number:,};"
                f" compare data.corpus.{split} and {split}_references"
            )
        yield replace(pair, target=reference)
    if next(references, None) is not None:
        raise ShapeshiftError(
            f"{split} has fewer lines than its references; compare data.corpus.{split} and"
            f" {split}_references"
        )


def _write_split(directory: Path, split: Split, pairs: Iterator[Pair], subwords: Subwords) -> None:
    """Write the store of a split and, but for train, its text."""
    with ExitStack() as stack:
        store = stack.enter_context(
            TokenStoreWriter(
                directory / split,
                source_size=subwords.source_size,
                target_size=subwords.target_size,
            )
        )
        texts = [] if split == "train" else _text_paths(directory, split)
        files = [stack.enter_context(x.open("w", encoding="utf-8", newline="\n")) for x in texts]
        for pair in pairs:
            store.add(pair.source_ids, pair.target_ids)
            for file, text in zip(files, (pair.source, pair.target), strict=False):
                file.write(text + "\n")


def _text_paths(directory: Path, split: Split) -> list[Path]:
    return [directory / f"{split}.{side}.txt" for side in ("source", "target")]


def _split_report(counts: Counts, store: TokenStore) -> SplitReport:
    return SplitReport(
        read=counts.read,
        kept=counts.kept,
        built=counts.built,
        dropped=counts.dropped,
        source_length=_statistics(store.source_lengths),
        target_length=_statistics(store.target_lengths),
    )


def _statistics(lengths: NDArray[np.int32]) -> LengthStatistics:
    return LengthStatistics(
        min=int(lengths.min()), mean=round(float(lengths.mean()), 2), max=int(lengths.max())
    )


def _nothing_left(split: Split, counts: Counts) -> str:
    if not counts.read:
        return f"the {split} text has no lines; expected one sentence a line"
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.dropped.items())
    return (
        f"none of {counts.read:,} {split} pairs is left (dropped: {reasons}); "
        "set wider limits in data.dataset"
    )


def _fingerprint(config: DataConfig) -> str:
    settings = config.model_dump(mode="json", exclude={"corpus": {"root", "archives"}})
    document = {"format": _FORMAT, "config": settings, "text": corpus_fingerprint(config.corpus)}
    if config.subwords.vocabulary is not None:
        document["vocabulary"] = hashlib.sha256(_bytes(config.subwords.vocabulary)).hexdigest()
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror or error}", path=path) from error


def _holds(directory: Path, config: DataConfig, fingerprint: str) -> bool:
    """Return whether a folder holds these data; raise if it holds anything else."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    found = _read_report(directory)
    if found.fingerprint == fingerprint:
        return True
    old, new = _flat(found.config.model_dump()), _flat(config.model_dump())
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    raise ShapeshiftError(
        f"holds data prepared otherwise ({', '.join(changed) or 'the corpus text'} changed); "
        "choose another directory or remove this one",
        path=directory,
    )


def _flat(tree: dict[str, Any], prefix: str = "data") -> dict[str, Any]:
    """Return the leaves of a nested dictionary under dotted names."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}"
        leaves |= _flat(value, name) if isinstance(value, dict) else {name: value}
    return leaves


def _read_report(directory: Path) -> Report:
    path = directory / REPORT
    if not (directory / SUMS).exists():
        if not path.exists():
            raise ShapeshiftError(
                f"holds no {REPORT}: not prepared data; name a directory that `shapeshift prepare`"
                " wrote, or a new one to prepare in",
                path=directory,
            )
        raise ShapeshiftError(
            f"holds no {SUMS}: prepared by an earlier version, or not copied whole;"
            f" {_remedy(directory)}",
            path=directory,
        )
    _verify(directory, REPORT)
    return Report.read(path, _remedy(directory))


def _verify(directory: Path, prefix: str = "") -> None:
    remedy = _remedy(directory)
    verify(directory, prefix, remedy=remedy, sums_remedy=remedy)


def _remedy(directory: Path) -> str:
    return f"remove the folder {directory} and run the command again, which prepares the data anew"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("shapeshift", "sentencepiece", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a source tree that is not installed
            versions[package] = "unknown"
    return versions


def _silent(stage: str, done: int, total: int | None) -> None:
    """No progress wanted."""
