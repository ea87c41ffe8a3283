"""Datasets of the Hugging Face hub, streamed once into text files by the `datasets` library.

    <root>/<repo>-<key>/         the key is a hash of the settings
        corpus.json              the settings, the commit, and size and SHA-256 of each file
        train.en, train.de …     an entry of a split each
    <root>/.<repo>-<key>.partial/parts/
                                 what has been fetched so far: a file for each file of the dataset

The folder appears complete or not at all. An export that breaks off is continued by later calls, as
long as the commit is the same: parts that are complete are not fetched again. A dataset in a local
folder, which has no commit, is read from the beginning.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from shapeshift import __version__
from shapeshift.data.config import SPLITS, FilesCorpus, HubCorpus, Split, is_test_set
from shapeshift.data.sources.download import Progress, exclusive
from shapeshift.data.sources.parts import Part, join_parts, part_content, read_part
from shapeshift.disk import (
    PARTIAL,
    Disk,
    make_directory,
    remove_directory,
    replace_file,
    save,
    writing,
)
from shapeshift.errors import ShapeshiftError

RECORD = "corpus.json"
_PROGRESS_EVERY = 10_000
_PARTS = "parts"


def export(corpus: HubCorpus, on_progress: Progress | None = None) -> FilesCorpus:
    """Stream the dataset into text files, unless they are there, and return the corpus of them.

    Args:
        corpus: which dataset, splits and languages, and how much of it.
        on_progress: called with the number of pairs of each split.

    Raises:
        ShapeshiftError: `datasets` is not installed; the hub cannot be reached; there is no such
            dataset, configuration, split or column.
    """
    folder = folder_of(corpus)
    if not is_exported(corpus):
        datasets = require_datasets()
        with writing(folder):
            make_directory(Disk(), folder.parent)
            with exclusive(folder):
                if not is_exported(corpus):  # another process may have been at work
                    _export(datasets, corpus, folder, on_progress)
    return exported(corpus)


def exported(corpus: HubCorpus) -> FilesCorpus:
    """Return the corpus of the text files, which are there.

    Raises:
        ShapeshiftError: they are not, or one has another size than it had.
    """
    folder = folder_of(corpus)
    if not is_exported(corpus):
        raise ShapeshiftError(
            f"the text of {corpus.repo} has not been fetched; run `shapeshift prepare` with this"
            " configuration where the network is",
            path=folder,
        )
    for path, known in recorded(corpus).items():
        size = path.stat().st_size if path.is_file() else None  # reading it names what is missing
        if size not in (None, known.bytes):
            raise ShapeshiftError(
                f"has {size:,} bytes, and had {known.bytes:,} when it was fetched; remove its"
                " folder, and fetch it again",
                path=path,
            )
    return FilesCorpus(
        root=folder,
        source=corpus.source,
        target=corpus.target,
        **{split: [_file(split, entry) for entry in corpus.prefixes(split)] for split in SPLITS},
    )


class FetchedFile(BaseModel):
    """Size and SHA-256 that a text file had when it was fetched."""

    bytes: int
    sha256: str


class _Record(BaseModel):
    files: dict[str, FetchedFile] = Field(default_factory=dict)


def recorded(corpus: HubCorpus) -> dict[Path, FetchedFile]:
    """Return what the record says of each text file; an older one says nothing.

    Raises:
        ShapeshiftError: the record is damaged.
    """
    if not is_exported(corpus):
        return {}
    folder = folder_of(corpus)
    try:
        record = _Record.model_validate_json((folder / RECORD).read_bytes())
    except (OSError, ValueError) as error:
        raise ShapeshiftError(
            "cannot be read, or is damaged; remove its folder, and fetch it again",
            path=folder / RECORD,
        ) from error
    return {folder / name: known for name, known in record.files.items()}


def folder_of(corpus: HubCorpus) -> Path:
    """Return where the text is kept: one folder for each way to read the dataset."""
    settings = corpus.model_dump_json(exclude={"root"})
    key = hashlib.sha256(settings.encode()).hexdigest()[:12]
    name = _plain("-".join(filter(None, (corpus.repo, corpus.subset))))
    return corpus.root / f"{name.strip('-.')}-{key}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _file(split: Split, entry: str) -> str:
    return entry if is_test_set(entry) else f"{split}-{_plain(entry)}"


def _export(datasets: Any, corpus: HubCorpus, folder: Path, on_progress: Progress | None) -> None:
    commit = _commit(corpus)
    wanted = [
        (split, entry)
        for split in SPLITS
        for entry in corpus.prefixes(split)
        if not is_test_set(entry)
    ]
    # All are opened first: a name that is wrong shows before hours of reading.
    streams = [_stream(datasets, corpus, commit, entry) for _, entry in wanted]
    origin = json.dumps([commit, __version__, datasets.__version__])
    partial = folder.with_name(f".{folder.name}.partial")
    for path in (partial, partial / _PARTS):
        if path.is_symlink():
            path.unlink()
    if commit is None and partial.exists():
        remove_directory(Disk(), partial)
    make_directory(Disk(), partial / _PARTS)
    files: dict[str, dict[str, Any]] = {}
    try:
        for (split, entry), stream in zip(wanted, streams, strict=True):
            parts = _fetch(stream, split, entry, corpus, partial / _PARTS, origin, on_progress)
            files |= join_parts(parts, partial, _file(split, entry), corpus.source, corpus.target)
    except BaseException:
        for left in (partial / _PARTS).glob(f"{PARTIAL}*"):
            left.unlink()
        if commit is None or not any((partial / _PARTS).iterdir()):
            remove_directory(Disk(), partial)
        raise
    settings = corpus.model_dump(mode="json", exclude={"root"})
    record = {"settings": settings, "commit": commit, "files": files}
    save(partial / RECORD, json.dumps(record, indent=1) + "\n")
    partial.rename(folder)
    Disk().sync_directory(folder.parent)
    remove_directory(Disk(), folder / _PARTS)


def is_exported(corpus: HubCorpus) -> bool:
    """Return whether the text is here."""
    return (folder_of(corpus) / RECORD).is_file()


def require_datasets() -> Any:
    """Return the library `datasets`.

    Raises:
        ShapeshiftError: it is not installed.
    """
    try:
        import datasets
    except ImportError as error:
        raise ShapeshiftError(
            "a corpus from the hub needs the library datasets: pip install 'shapeshift[hub]'"
        ) from error
    return datasets


def _commit(corpus: HubCorpus) -> str | None:
    """Return the commit to read, so that all splits are of one, whatever is pushed meanwhile; None
    for a folder."""
    if Path(corpus.repo).exists():
        return None
    if corpus.revision is not None and re.fullmatch(r"[0-9a-f]{40}", corpus.revision):
        return corpus.revision
    from huggingface_hub import HfApi

    try:
        commit: str = HfApi().dataset_info(corpus.repo, revision=corpus.revision).sha or ""
    except Exception as error:  # whatever the library below has for it
        raise _explain(corpus, error) from error
    return commit


def _stream(datasets: Any, corpus: HubCorpus, commit: str | None, split: str) -> Any:
    try:
        return datasets.load_dataset(
            corpus.repo, corpus.subset, split=split, revision=commit, streaming=True
        )
    except Exception as error:  # of several libraries, with no base of their own
        raise _explain(corpus, error) from error


def _explain(corpus: HubCorpus, error: Exception) -> ShapeshiftError:
    """Turn what the libraries below raise into one line with a remedy."""
    kind, words = type(error).__name__, " ".join(str(error).split())
    what = f"the dataset {corpus.repo}"
    if kind in ("DatasetNotFoundError", "RepositoryNotFoundError", "RevisionNotFoundError"):
        return ShapeshiftError(
            f"{what} is not on the hub, or is not public ({words[:200]}); look at data.corpus.repo"
            " and revision"
        )
    if isinstance(error, ValueError):  # `datasets` says so of configurations and splits
        return ShapeshiftError(
            f"{what}: {words[:300]}; look at data.corpus.subset, train, valid and test"
        )
    return ShapeshiftError(
        f"{what} cannot be read ({kind}: {words[:200]}); is the network there? What has come is"
        " kept, and the same command continues from there"
    )


def _texts(columns: Any, corpus: HubCorpus, split: str) -> list[str]:
    """Return source and target; what is not there is empty, for training drops such pairs."""
    if corpus.columns is None:
        found, keys = columns.get(corpus.column), (corpus.source, corpus.target)
        if not isinstance(found, dict):
            known = ", ".join(columns)
            raise ShapeshiftError(
                f"{corpus.repo}, {split}: no column {corpus.column!r} of both languages (there are"
                f" {known}); set data.corpus.column, or columns=[SOURCE, TARGET]"
            )
    else:
        found, keys = columns, corpus.columns
    for key in keys:
        if key not in found:
            raise ShapeshiftError(
                f"{corpus.repo}, {split}: no {key!r} (there are {', '.join(found)}); set"
                " data.corpus.source and target, or columns"
            )
    return [str(found[key] or "").replace("\n", " ") for key in keys]


def _fetch(
    stream: Any,
    split: Split,
    entry: str,
    corpus: HubCorpus,
    folder: Path,
    origin: str,
    on_progress: Progress | None,
) -> list[Part]:
    """Fetch the parts of an entry that are not there; of train, `max_pairs` of the pairs drawn."""
    name = _file(split, entry)
    share, limit = (corpus.share, corpus.max_pairs) if split == "train" else (1.0, None)
    draws = random.Random(corpus.seed)
    parts: list[Part] = []
    num_pairs = 0

    def report(num_in_part: int) -> None:
        if on_progress is not None:
            on_progress(f"fetch {name}", num_pairs + num_in_part, None)

    for shard in range(stream.num_shards):
        left = None if limit is None else limit - num_pairs
        if left == 0:
            break
        path = folder / f"{name}.{shard}"
        part = read_part(path, origin)
        if part is None:
            rows = _rows(stream, shard, corpus)
            drawn = (None if share < 1.0 and draws.random() >= share else row for row in rows)
            texts = (None if row is None else _texts(row, corpus, entry) for row in drawn)
            replace_file(Disk(), path, part_content(texts, left, origin, report))
            part = read_part(path, origin)
            assert part is not None
        else:
            for _ in range(part.num_rows):
                draws.random()
        parts.append(part)
        num_pairs += part.num_pairs
    if on_progress is not None:
        on_progress(f"fetch {name}", num_pairs, num_pairs)
    return parts


def _rows(stream: Any, shard: int, corpus: HubCorpus) -> Iterator[Any]:
    """Yield the rows of one of the dataset's files.

    A file is always read from its beginning: the library reads the rows that it skips, and its own
    saved state continues from a wrong row in some of its versions.
    """
    try:
        yield from stream.shard(num_shards=stream.num_shards, index=shard)
    except Exception as error:  # of several libraries, with no base of their own
        raise _explain(corpus, error) from error
