"""Reads configuration files, and those that they extend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from shapeshift.config_errors import no_sections
from shapeshift.errors import ShapeshiftError


def read_document(path: str | Path) -> Any:
    """Read a YAML file, and those it extends, without checking what they say.

    With `extends: other.yaml`, a path relative to its own folder, a file begins from another one:
    its sections are laid over the other's, key by key. Lists and plain values replace what was
    there, and so does a section that makes another choice (another `name` or `corpus`): the old
    one's settings have no meaning for it. `extends` itself is gone from the result.

    Raises:
        ShapeshiftError: for a file that cannot be read, or files that extend each other in a
            circle.
    """
    return _read(Path(path), ())


def _read(path: Path, extending: tuple[Path, ...]) -> Any:
    """Read `path`, which was reached through the files in `extending`."""
    document = _read_yaml(path, extending)
    if not isinstance(document, dict) or "extends" not in document:
        return document
    other = document.pop("extends")
    if not isinstance(other, str) or not other:
        raise ShapeshiftError(f"extends: expected the path of one file, got {other!r}", path=path)
    below, chain = path.parent / other, (*extending, path)
    if any(below.resolve() == file.resolve() for file in chain):
        circle = " -> ".join(map(str, (*chain, below)))
        raise ShapeshiftError(f"extends goes in a circle: {circle}; take one out", path=path)
    base = _read(below, chain)
    if not isinstance(base, dict):
        raise no_sections(base, below)
    return _merge(base, document)


def _read_yaml(path: Path, extending: tuple[Path, ...]) -> Any:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        reason = f" (extended by {extending[-1]})" if extending else ""
        raise ShapeshiftError(f"no such configuration file{reason}", path=path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ShapeshiftError(f"cannot be read: {error}", path=path) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ShapeshiftError(f"not YAML: {problem}", path=path, line=line) from error
    return {} if document is None else document


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `over` laid over `base`."""
    for choice in ("name", "corpus"):
        old, new = base.get(choice), over.get(choice)
        if isinstance(old, str) and isinstance(new, str) and old != new:
            return over
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        mappings = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merge(merged[key], value) if mappings else value
    return merged
