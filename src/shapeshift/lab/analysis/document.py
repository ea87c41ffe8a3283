"""The data of a figure as a JSON file, so that it can be drawn again without the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from shapeshift import __version__
from shapeshift.disk import save
from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import digest

_Data = TypeVar("_Data")


def save_data(data: object, path: str | Path) -> None:
    """Write what `compute` of an analysis returned, complete or not at all.

    Args:
        data: a frozen dataclass of this package, such as `similarity.ShiftSimilarity`.
        path: the JSON file; its directory is made if need be.

    Raises:
        ShapeshiftError: the file cannot be written.
    """
    kind: type[Any] = type(data)
    content = TypeAdapter(kind).dump_python(data, mode="json")
    document = {
        "figure": kind.__name__,
        "version": __version__,
        "sha256": digest(content),
        "data": content,
    }
    save(Path(path), json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def load_data(kind: type[_Data], path: str | Path) -> _Data:
    """Read what `save_data` wrote.

    Args:
        kind: the class of the data, such as `similarity.ShiftSimilarity`.
        path: the JSON file.

    Raises:
        ShapeshiftError: the file cannot be read, holds something else, or was changed.
    """
    try:
        document = json.loads(Path(path).read_bytes())
        if document["figure"] != kind.__name__ or document["sha256"] != digest(document["data"]):
            raise ValueError("it holds something else, or was changed")
        return TypeAdapter(kind).validate_python(document["data"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ShapeshiftError(
            f"cannot be read as the data of {kind.__name__}; they have to be computed again",
            path=path,
        ) from error
