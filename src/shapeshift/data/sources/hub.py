"""Datasets of the Hugging Face hub, streamed once into text files by the `datasets` library.

    <root>/<repo>-<key>/         the key is a hash of the settings
        corpus.json              the settings, the commit, and size and SHA-256 of each file
        train.en, train.de …     an entry of a split each
    <root>/.<repo>-<key>.partial/
                                 what has come so far; see `data.sources.partial`

The folder appears complete or not at all. An export that breaks off is taken up again by later
calls, as long as the commit is the same: what has been read of the dataset's files is not fetched
again, but for the one that was being read. A folder on this machine, which has no commit, is read
from the beginning.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from shapeshift import __version__
from shapeshift.data.config import SPLITS, FilesCorpus, HubCorpus, Split, is_test_set
from shapeshift.data.sources.download import Progress, exclusive
from shapeshift.data.sources.partial import Partial, Place
from shapeshift.disk import Disk, make_directory, writing
from shapeshift.errors import ShapeshiftError

RECORD = "corpus.json"
_PROGRESS_EVERY = 10_000
_SAVE_EVERY = 100_000


def export(corpus: HubCorpus, on_progress: Progress | None = None) -> FilesCorpus:
    """Stream the dataset into text files, unless they are there, and return the corpus of them.

    Args:
        corpus: which dataset, splits and languages, and how much of it.
        on_progress: told of the pairs of each split.

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
    for path, known in _recorded(corpus).items():
        size = path.stat().st_size if path.is_file() else None  # whoever reads it names what lacks
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


def sha256s(corpus: HubCorpus) -> dict[Path, str]:
    """Return the SHA-256 that each text file had when it was fetched."""
    return {path: known.sha256 for path, known in _recorded(corpus).items()}


class _File(BaseModel):
    bytes: int
    sha256: str


class _Record(BaseModel):
    files: dict[str, _File] = Field(default_factory=dict)


def _recorded(corpus: HubCorpus) -> dict[Path, _File]:
    """Return what the record says of each text file; an older one says nothing."""
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
    origin = {"commit": commit, "shapeshift": __version__, "datasets": datasets.__version__}
    partial = Partial(
        folder.with_name(f".{folder.name}.partial"),
        (corpus.source, corpus.target),
        origin if commit else None,
    )
    try:
        for (split, entry), stream in zip(wanted, streams, strict=True):
            _write(stream, split, entry, corpus, partial, on_progress)
    except BaseException:
        partial.discard_useless()
        raise
    settings = corpus.model_dump(mode="json", exclude={"root"})
    partial.finish(folder, RECORD, {"settings": settings, "commit": commit})


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


def _rows(stream: Any, place: Place, corpus: HubCorpus) -> Iterator[tuple[int, int, Any]]:
    """Yield the rows after a place, each with the shard and the row that follow from it.

    The library can skip rows, for which it reads them all, and can save its own state, which in
    some of its versions goes on from a wrong row.
    """
    try:
        for shard in range(place.shard, stream.num_shards):
            rows = enumerate(stream.shard(num_shards=stream.num_shards, index=shard), start=1)
            begin = place.row if shard == place.shard else 0
            for row, columns in islice(rows, begin, None):
                yield shard, row, columns
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
        " kept, and the same command goes on from there"
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


def _write(
    stream: Any,
    split: Split,
    entry: str,
    corpus: HubCorpus,
    partial: Partial,
    on_progress: Progress | None,
) -> None:
    """Write what is missing of an entry; of train, `max_pairs` of the pairs that are drawn."""
    name = _file(split, entry)
    share, limit = (corpus.share, corpus.max_pairs) if split == "train" else (1.0, None)
    draws = random.Random(corpus.seed)
    with partial.open(name) as sides:
        place = partial.places[name]
        for _ in range(place.num_rows):
            draws.random()
        for shard, row, columns in _rows(stream, place, corpus):
            if place.num_pairs == limit:
                break
            drawn = share == 1.0 or draws.random() < share
            texts = _texts(columns, corpus, entry) if drawn else []
            pair = [f"{text}\n".encode() for text in texts] or [b"", b""]
            for side, line in zip(sides, pair, strict=True):
                side.write(line)
            place = Place(
                shard=shard,
                row=row,
                num_rows=place.num_rows + 1,
                num_pairs=place.num_pairs + drawn,
                source_bytes=place.source_bytes + len(pair[0]),
                target_bytes=place.target_bytes + len(pair[1]),
            )
            partial.places[name] = place
            if place.num_rows % _SAVE_EVERY == 0:
                partial.save(name, sides)
            if on_progress is not None and place.num_rows % _PROGRESS_EVERY == 0:
                on_progress(f"fetch {name}", place.num_pairs, None)
        partial.places[name] = place._replace(shard=stream.num_shards, row=0)
    if on_progress is not None:
        on_progress(f"fetch {name}", place.num_pairs, place.num_pairs)
