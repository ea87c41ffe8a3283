"""Code of the user's own: kinds, measures and analyses, each named `package.module:name`.

One rule says where a module is looked for: among the standard library and the installed packages,
on `PYTHONPATH`, and last in the current folder, so that no file there hides a module of Python.
A folder that a stranger may have written, such as a run, names modules but never brings them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from shapeshift._system.errors import ShapeshiftError

_untrusted: ContextVar[Path | None] = ContextVar("untrusted", default=None)


@contextmanager
def outside(folder: Path) -> Iterator[None]:
    """Refuse to import modules from inside a folder, such as a run, while the names in it are
    resolved."""
    token = _untrusted.set(folder.resolve())
    try:
        yield
    finally:
        _untrusted.reset(token)


def is_own(name: object) -> bool:
    """Return whether a name is of the form `module:name`."""
    return isinstance(name, str) and ":" in name


def find(name: str, what: str, path: Path | None = None) -> Any:
    """Import what `package.module:name` names.

    Args:
        name: a module, a colon, and a name in it, which may have dots.
        what: it is, for the error: `kind`, `measure`, `analysis`.
        path: of the file that names it, for the error.

    Raises:
        ShapeshiftError: there is no such module, or nothing of this name in it.
    """
    module, _, attribute = name.partition(":")
    if not attribute or not all(part.isidentifier() for part in f"{module}.{attribute}".split(".")):
        problem = "expected package.module:name"
        raise ShapeshiftError(f"no {what} {name!r}: {problem}", path=path)
    try:
        found: Any = _import(module)
        place = getattr(found, "__file__", None) or module
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        problem = str(error) if isinstance(error, ImportError) else f"{place} has no {attribute!r}"
        raise ShapeshiftError(f"no {what} {name!r}: {problem}", path=path) from error
    for each in _modules(name, found):
        _source(each)  # now: the file may change while the module is used
    return found


def _import(name: str) -> ModuleType:
    """Import a module and its parent packages; each is located before any of its code runs."""
    folder, untrusted = os.getcwd(), _untrusted.get()
    if folder not in sys.path:
        sys.path.append(folder)
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        package = ".".join(parts[:number])
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # `__main__`
            spec = None
        if spec is None:
            raise ImportError(
                f"there is no module {package!r} among the installed packages, on PYTHONPATH or in"
                f" {folder}; run the command in the folder that has it, or add that to PYTHONPATH"
            )
        for place in (spec.origin, *(spec.submodule_search_locations or ())):
            if untrusted and place and Path(place).resolve().is_relative_to(untrusted):
                raise ImportError(
                    f"{place} is inside {untrusted}, whose code is not run; copy it elsewhere if"
                    " you trust it, and add that folder to PYTHONPATH"
                )
        module = import_module(package)
    return module


def source_sha256(name: str, what: str) -> str:
    """Return the SHA-256 of the source of the module in `package.module:name`, and of the module
    that defines the object. Each is read once in a process."""
    found = find(name, what)
    return hashlib.sha256(b"\0".join(map(_source, _modules(name, found)))).hexdigest()


def _modules(name: str, found: Any) -> list[str]:
    return [*dict.fromkeys((name.partition(":")[0], str(getattr(found, "__module__", ""))))]


def definition_sha256(function: Any) -> str | None:
    """Return the SHA-256 of the module that defines a function (or `functools.partial` of one);
    None for one of this package."""
    module = str(getattr(getattr(function, "func", function), "__module__", ""))
    ours = module.partition(".")[0] == __name__.partition(".")[0]
    return None if ours else hashlib.sha256(_source(module)).hexdigest()


@cache
def _source(module: str) -> bytes:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).read_bytes() if file and Path(file).is_file() else b""
