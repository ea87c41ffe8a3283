"""Datasets of the Hugging Face hub, streamed once into text files by the `datasets` library.

    <root>/<repo>-<key>/         the key is a hash of the settings
        corpus.json              the settings, and the commit that was read
        train.en, train.de …     an entry of a split each

The folder appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from shapeshift.data.config import SPLITS, FilesCorpus, HubCorpus, Split, is_test_set
from shapeshift.data.download import Progress, exclusive
from shapeshift.errors import ShapeshiftError

RECORD = "corpus.json"
_PROGRESS_EVERY = 10_000


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
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(folder):
            if not is_exported(corpus):  # another process may have been at work
                _export(datasets, corpus, folder, on_progress)
    return exported(corpus)


def exported(corpus: HubCorpus) -> FilesCorpus:
    """Return the corpus of the text files, which are there.

    Raises:
        ShapeshiftError: they are not.
    """
    folder = folder_of(corpus)
    if not is_exported(corpus):
        raise ShapeshiftError(
            f"the text of {corpus.repo} has not been fetched; run `shapeshift prepare` with this"
            " configuration where the network is",
            path=folder,
        )
    return FilesCorpus(
        root=folder,
        source=corpus.source,
        target=corpus.target,
        **{split: [_file(split, entry) for entry in corpus.prefixes(split)] for split in SPLITS},
    )


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
    revision = _commit(corpus)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        built = Path(scratch) / folder.name
        built.mkdir()
        for split in SPLITS:
            for entry in corpus.prefixes(split):
                if not is_test_set(entry):
                    rows = _rows(datasets, corpus, revision, entry)
                    pairs = _texts(rows, corpus, entry)
                    if split == "train":
                        pairs = _drawn(pairs, corpus)
                    _write(pairs, built / _file(split, entry), corpus, on_progress)
        settings = corpus.model_dump(mode="json", exclude={"root"})
        record = json.dumps({"settings": settings, "commit": revision}, indent=1)
        (built / RECORD).write_text(record + "\n", encoding="utf-8")
        built.rename(folder)


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


def _rows(
    datasets: Any, corpus: HubCorpus, revision: str | None, split: str
) -> Iterator[dict[str, Any]]:
    try:
        stream = datasets.load_dataset(
            corpus.repo, corpus.subset, split=split, revision=revision, streaming=True
        )
        yield from stream
    except ShapeshiftError:
        raise
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
        f"{what} cannot be read ({kind}: {words[:200]}); is the network there? What is fetched"
        " once needs no network later"
    )


def _texts(
    rows: Iterator[dict[str, Any]], corpus: HubCorpus, split: str
) -> Iterator[tuple[str, str]]:
    """Yield (source, target); what is not there is empty, for training drops such pairs."""
    for row in rows:
        if corpus.columns is None:
            found, keys = row.get(corpus.column), (corpus.source, corpus.target)
            if not isinstance(found, dict):
                known = ", ".join(row)
                raise ShapeshiftError(
                    f"{corpus.repo}, {split}: no column {corpus.column!r} of both languages (there"
                    f" are {known}); set data.corpus.column, or columns=[SOURCE, TARGET]"
                )
        else:
            found, keys = row, corpus.columns
        for key in keys:
            if key not in found:
                raise ShapeshiftError(
                    f"{corpus.repo}, {split}: no {key!r} (there are {', '.join(found)}); set"
                    " data.corpus.source and target, or columns"
                )
        source, target = (str(found[key] or "").replace("\n", " ") for key in keys)
        yield source, target


def _drawn(pairs: Iterator[tuple[str, str]], corpus: HubCorpus) -> Iterator[tuple[str, str]]:
    """Yield the pairs that are drawn, `max_pairs` at most."""
    draws, left = random.Random(corpus.seed), corpus.max_pairs
    for pair in pairs:
        if left == 0:
            return
        if corpus.share == 1.0 or draws.random() < corpus.share:
            left = None if left is None else left - 1
            yield pair


def _write(
    pairs: Iterator[tuple[str, str]],
    prefix: Path,
    corpus: HubCorpus,
    on_progress: Progress | None,
) -> None:
    number = 0
    with ExitStack() as stack:
        sides = [
            stack.enter_context(
                prefix.with_name(f"{prefix.name}.{language}").open(
                    "w", encoding="utf-8", newline="\n"
                )
            )
            for language in (corpus.source, corpus.target)
        ]
        for number, pair in enumerate(pairs, start=1):
            for side, text in zip(sides, pair, strict=True):
                side.write(text + "\n")
            if on_progress is not None and number % _PROGRESS_EVERY == 0:
                on_progress(f"fetch {prefix.name}", number, None)
    if on_progress is not None:
        on_progress(f"fetch {prefix.name}", number, number)
