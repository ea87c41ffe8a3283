"""Datasets of the Hugging Face hub, written once as text files.

    <root>/<repo>-<key>/         the key is a hash of the settings
        corpus.json              the settings and the commit
        train-train.en, …        one entry of a split each
        SHA256SUMS               hashes of all these files, see `integrity`

The library `datasets` downloads the data, continues a download that was interrupted, and keeps the
files in its cache. The folder appears complete or not at all.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from functools import partial
from pathlib import Path
from typing import Any

from shapeshift._system.errors import ShapeshiftError, reason, require
from shapeshift._system.hashes import verify
from shapeshift.data.config import SPLITS, FilesCorpus, HubCorpus, Split, is_test_set
from shapeshift.data.sources.download import Progress, watched
from shapeshift.data.sources.folders import build_once

NEEDED = ("hub", "datasets")
RECORD = "corpus.json"


def export(corpus: HubCorpus, on_progress: Progress | None = None) -> FilesCorpus:
    """Write the dataset as text files, unless they are there, and return the corpus of them.

    Raises:
        ShapeshiftError: `datasets` is not installed; the hub cannot be reached; there is no such
            dataset, configuration, split or column.
    """
    build_once(
        folder_of(corpus),
        folder_of(corpus).is_dir,
        lambda new: _export(require(*NEEDED), corpus, new, on_progress),
    )
    return exported(corpus)


def exported(corpus: HubCorpus) -> FilesCorpus:
    """Return the corpus of the exported text files, after checking that they have not changed."""
    folder = folder_of(corpus)
    if not folder.is_dir():
        raise ShapeshiftError(
            f"the text of {corpus.repo} has not been fetched; run `shapeshift prepare` with this"
            " configuration where the network is",
            path=folder,
        )
    remedy = f"remove the folder {folder} and run the command again, which fetches the text anew"
    verify(folder, remedy=remedy, sums_remedy=remedy)
    return as_files(corpus)


def as_files(corpus: HubCorpus) -> FilesCorpus:
    """Return the corpus of the text files, which need not be there."""
    return FilesCorpus(
        root=folder_of(corpus),
        source=corpus.source,
        target=corpus.target,
        **{split: [_file(split, entry) for entry in corpus.prefixes(split)] for split in SPLITS},
    )


def folder_of(corpus: HubCorpus) -> Path:
    """Return the folder of the exported text; each way to read the dataset has its own."""
    settings = corpus.model_dump_json(exclude={"root"})
    # Of those with such names an earlier version may have written one file over another.
    settings += "".join(x for split in SPLITS for x in corpus.prefixes(split) if _is_renamed(x))
    key = hashlib.sha256(settings.encode()).hexdigest()[:12]
    name = _plain("-".join(filter(None, (corpus.repo, corpus.subset))))
    return corpus.root / f"{name.strip('-.')}-{key}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _file(split: Split, entry: str) -> str:
    """Return a unique file name for an entry."""
    if is_test_set(entry):
        return entry
    name = f"{split}-{_plain(entry)}"
    if _is_renamed(entry):  # `test[:9]` and `test[9:]` are both `test-9-`
        name += f"-{hashlib.sha256(entry.encode()).hexdigest()[:8]}"
    return name


def _is_renamed(entry: str) -> bool:
    return not is_test_set(entry) and _plain(entry) != entry


def _export(datasets: Any, corpus: HubCorpus, folder: Path, on_progress: Progress | None) -> None:
    entries = ((split, entry) for split in SPLITS for entry in corpus.prefixes(split))
    wanted = [(split, entry) for split, entry in entries if not is_test_set(entry)]
    try:
        commit = _commit(corpus)
        load = partial(datasets.load_dataset, corpus.repo, corpus.subset, revision=commit)
        # All are loaded first: a wrong name is reported before anything is written.
        loaded = [load(split=entry) for _, entry in wanted]
    except Exception as error:  # of several libraries, with no base class of their own
        raise ShapeshiftError(
            f"the dataset {corpus.repo} cannot be read ({type(error).__name__}: {reason(error)});"
            " look at data.corpus.repo, subset, revision, train, valid and test, at the network and"
            " at the free disk space"
        ) from error
    for (split, entry), dataset in zip(wanted, loaded, strict=True):
        name, draws = _file(split, entry), random.Random(corpus.seed)
        share = corpus.share if split == "train" else 1.0
        drawn = (row for row in dataset if share == 1.0 or draws.random() < share)
        with (
            (folder / f"{name}.{corpus.source}").open("wb") as source,
            (folder / f"{name}.{corpus.target}").open("wb") as target,
        ):
            for row in watched(drawn, f"fetch {name}", None, on_progress):
                for file, text in zip((source, target), _texts(row, corpus, entry), strict=True):
                    file.write(f"{text}\n".encode())
    settings = corpus.model_dump(mode="json", exclude={"root"})
    record = json.dumps({"settings": settings, "commit": commit}, indent=1) + "\n"
    (folder / RECORD).write_text(record, "utf-8")


def _commit(corpus: HubCorpus) -> str | None:
    """Return the commit to read, so that all splits come from the same one; None for a local
    folder."""
    if Path(corpus.repo).exists():
        return None
    if corpus.revision is not None and re.fullmatch(r"[0-9a-f]{40}", corpus.revision):
        return corpus.revision
    from huggingface_hub import HfApi

    return HfApi().dataset_info(corpus.repo, revision=corpus.revision).sha


def _texts(row: Any, corpus: HubCorpus, split: str) -> list[str]:
    """Return source and target; a missing text is empty, and training drops such pairs."""
    texts = row if corpus.columns else row.get(corpus.column)
    for key in (keys := corpus.columns or (corpus.source, corpus.target)):
        if not isinstance(texts, dict) or key not in texts:
            there = ", ".join(texts if isinstance(texts, dict) else row)
            raise ShapeshiftError(
                f"{corpus.repo}, {split}: no {key!r} (there are {there}); set data.corpus.column,"
                " or columns=[SOURCE, TARGET], or source and target"
            )
    return [str(texts[key] or "").replace("\n", " ") for key in keys]
