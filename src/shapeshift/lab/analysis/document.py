"""The data of a figure as a JSON file, so that it can be drawn again without the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

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
        ShapeshiftError: the file cannot be read, or holds something else.
    """
    expected = f"expected the data of {kind.__name__}; compute them again"
    try:
        document = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise ShapeshiftError(
            f"cannot read the figure's data: {error.strerror}", path=path
        ) from error
    except (ValueError, RecursionError) as error:
        raise ShapeshiftError(f"not JSON ({error}); {expected}", path=path) from error
    found = document.get("figure") if isinstance(document, dict) else None
    if found != kind.__name__:
        raise ShapeshiftError(f"holds {found or 'no figure'}; {expected}", path=path)
    if document.get("sha256") not in (None, digest(document.get("data"))):
        raise ShapeshiftError(f"differs from what was written (SHA-256); {expected}", path=path)
    try:
        return TypeAdapter(kind).validate_python(document.get("data"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "data"
        raise ShapeshiftError(f"{place}: {first['msg']}; {expected}", path=path) from error
