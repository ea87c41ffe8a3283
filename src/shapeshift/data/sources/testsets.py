"""Test sets by the names that sacreBLEU has for them, such as `wmt14/full`.

sacreBLEU downloads and checks them, and keeps them in `~/.sacrebleu` or in the folder that the
environment variable SACREBLEU names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapeshift._system.errors import ShapeshiftError, nearest, reason
from shapeshift.data.sources.folders import exclusive


def fetch_test_set(name: str, source: str, target: str) -> None:
    """Download a test set, unless it is here.

    One process at a time downloads a test set, and the others wait: sacreBLEU gives up waiting
    after a minute, and writes text in place. A folder that cannot be written to is read as it is.

    Raises:
        ShapeshiftError: no such test set or direction, or it cannot be downloaded.
    """
    dataset, pair, files = find_test_set(name, source, target)
    folder = files[0].parent
    try:
        if os.access(folder.parent, os.W_OK) or not all(file.is_file() for file in files):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(folder):
                if not all(file.is_file() for file in find_test_set(name, source, target)[2]):
                    dataset.get_files(pair)
    except (Exception, SystemExit) as error:  # sacreBLEU exits where a download is damaged
        raise ShapeshiftError(
            f"sacreBLEU cannot fetch the test set {name} {pair} ({reason(error)}); run `sacrebleu"
            f" -t {name} -l {pair} --echo src` where the network is, and copy its folder ({folder})"
            " here"
        ) from error


def find_test_set(name: str, source: str, target: str) -> tuple[Any, str, list[Path]]:
    """Return the test set, its direction, and where source and reference are or will be. Of several
    references, it is the one that sacreBLEU takes first.

    What sacreBLEU has for the files in public downloads the test set.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        known = f"{nearest(name, DATASETS)} (`sacrebleu --list`)"
        raise ShapeshiftError(f"sacreBLEU has no test set {name!r}{known}")
    dataset, pair = DATASETS[name], f"{source}-{target}"
    if pair not in dataset.langpairs:
        known = ", ".join(dataset.langpairs)
        raise ShapeshiftError(f"sacreBLEU's test set {name} has no {pair}; it has {known}")
    path: Callable[[str, str], str] = dataset._get_txt_file_path
    preferred: list[str] = getattr(dataset, "_get_langpair_allowed_refs", lambda pair: [])(pair)
    references = [Path(path(pair, field)) for field in (*preferred, "ref", "ref:0")]
    there = (reference for reference in references if reference.is_file())
    return dataset, pair, [Path(path(pair, "src")), next(there, references[0])]
