"""Test sets by the names that sacreBLEU has for them, such as `wmt14/full`.

sacreBLEU downloads and checks them, and keeps them in `~/.sacrebleu` or in the folder that the
environment variable SACREBLEU names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from shapeshift.data.sources.folders import exclusive
from shapeshift.errors import ShapeshiftError, nearest


def fetch_test_set(name: str, source: str, target: str) -> tuple[Path, Path]:
    """Return the files of source and reference, downloaded if need be.

    One process at a time downloads a test set, and the others wait: sacreBLEU gives up waiting
    after a minute, and writes text in place. A folder that cannot be written to is read as it is.

    Where there are several references, this is the one that sacreBLEU takes first.

    Raises:
        ShapeshiftError: no such test set or direction, or it cannot be downloaded.
    """
    dataset, pair = _find(name, source, target)
    files = _files(dataset, pair)
    folder = files[0].parent
    try:
        if os.access(folder.parent, os.W_OK) or not _are_there(files):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(folder):
                if not _are_there(_files(dataset, pair)):
                    dataset.get_files(pair)
    except (Exception, SystemExit) as error:  # sacreBLEU exits where a download is damaged
        words = " ".join(str(error).split()) or type(error).__name__
        raise ShapeshiftError(
            f"sacreBLEU cannot fetch the test set {name} {pair} ({words}); run `sacrebleu -t {name}"
            f" -l {pair} --echo src` where the network is, and copy its folder"
            f" ({files[0].parent}) here"
        ) from error
    return local_test_set(name, source, target)


def local_test_set(name: str, source: str, target: str) -> tuple[Path, Path]:
    """Return the files of source and reference, without a network."""
    dataset, pair = _find(name, source, target)
    files = _files(dataset, pair)
    for file in files:
        if not file.is_file():
            raise ShapeshiftError(
                f"the test set {name} {pair} has not been downloaded: no such file", path=file
            )
    return files


def _are_there(files: Iterable[Path]) -> bool:
    return all(file.is_file() for file in files)


def _files(dataset: Any, pair: str) -> tuple[Path, Path]:
    """Return where source and reference are, or will be.

    What sacreBLEU has for this in public downloads the test set, so this is by its other names.
    """
    path: Callable[[str, str], str] = dataset._get_txt_file_path
    preferred: list[str] = getattr(dataset, "_get_langpair_allowed_refs", lambda pair: [])(pair)
    references = [Path(path(pair, field)) for field in (*preferred, "ref", "ref:0")]
    there = (reference for reference in references if reference.is_file())
    return Path(path(pair, "src")), next(there, references[0])


def _find(name: str, source: str, target: str) -> tuple[Any, str]:
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        raise ShapeshiftError(
            f"sacreBLEU has no test set {name!r}{nearest(name, DATASETS)} (`sacrebleu --list`)"
        )
    dataset, pair = DATASETS[name], f"{source}-{target}"
    if pair not in dataset.langpairs:
        raise ShapeshiftError(
            f"sacreBLEU's test set {name} has no {pair}; it has {', '.join(dataset.langpairs)}"
        )
    return dataset, pair
