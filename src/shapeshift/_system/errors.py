"""The one exception for everything that a user can fix."""

from __future__ import annotations

import difflib
import errno
import re
import shlex
from collections.abc import Collection, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any


class ShapeshiftError(ValueError):
    """Bad input, a bad setting, a missing file: something the user can fix.

    The message is one line that says what is wrong, what was expected and what would work. A very
    long word in it is cut. The command line prints it without a traceback and exits with status 1.
    Any other exception is a bug of ours and shows its traceback.

    Args:
        message: one line; no final full stop is needed.
        path: the file at fault, if there is one.
        line: the line in that file, counted from 1.
    """

    def __init__(self, message: str, *, path: str | Path | None = None, line: int | None = None):
        self.path = None if path is None else Path(path)
        self.line = line
        place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        text = re.sub(r"\S{1000,}", lambda word: word[0][:100] + "…", place + message)
        super().__init__(text.replace("\n", "\\n"))  # a path may hold one


def shell_command(*words: object) -> str:
    """Return a command of ours as it is typed in a shell, such as `shapeshift train mine.yaml`."""
    return shlex.join(["shapeshift", *map(str, words)])


def is_text(text: str) -> bool:
    """Return whether text can be written as UTF-8; an argument of other bytes cannot."""
    return text.isascii() or not re.search("[\ud800-\udfff]", text)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the known word closest to `word`, or an empty string."""
    match = closest(word, known)
    return "" if match is None else f"; did you mean {match!r}?"


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like `word`, in capitals or not; None if none is.

    `cutoff` is the least likeness, from 0 to 1 for the same word.
    """
    spelling = {each.lower(): each for each in reversed([*known])}
    matches = difflib.get_close_matches(word.lower(), [*reversed(spelling)], n=1, cutoff=cutoff)
    return spelling[matches[0]] if matches else None


def unknown(what: str, word: str, known: Collection[str], more: str = "") -> str:
    """Return `"WHAT 'word'; did you mean 'x'? (known: x, y)"`; `more` stands behind the names."""
    return f"{what} {word!r}{nearest(word, known)} (known: {', '.join(known)}{more})"


def install_extra(name: str) -> str:
    """Return how to install an extra of this package, to follow what is not installed.

    A wheel is extended by name; a checkout is installed again from its folder.
    """
    checkout = Path(__file__).parents[3]
    if (checkout / "pyproject.toml").is_file():
        return f"install the extra {name} (pip install '.[{name}]' in {checkout})"
    return f"install the extra {name} (pip install 'shapeshift[{name}]')"


def require(extra: str, *modules: str) -> Any:
    """Return the first of some modules that an extra of this package brings.

    Raises:
        ShapeshiftError: one of them cannot be imported.
    """
    try:
        first, *_ = map(import_module, modules)
        return first
    except ImportError as error:
        if lack := out_of_memory(error):
            raise lack from error
        problem = f"this needs {modules[0]} ({reason(error)})"
        raise ShapeshiftError(f"{problem}; {install_extra(extra)}") from error


def out_of_memory(error: BaseException) -> ShapeshiftError | None:
    """Return the error to show where memory ran out, and None for an error of another kind.

    The libraries below have no class for it in common, and some raise another error from theirs.
    """
    cause: BaseException | None = error
    while cause is not None:
        named = isinstance(cause, MemoryError) or type(cause).__name__ == "OutOfMemoryError"
        no_room = isinstance(cause, OSError) and cause.errno == errno.ENOMEM
        if named or no_room or any(sign in str(cause) for sign in _NO_MEMORY):
            return ShapeshiftError(
                f"out of memory ({reason(cause)}); allow the process more (`ulimit -v`), end other"
                " programs, or take a smaller model, batch or text"
            )
        cause = cause.__cause__ or cause.__context__
    return None


_NO_MEMORY = (
    "DefaultCPUAllocator",  # PyTorch
    "could not create a primitive",  # oneDNN
    "failed to map segment from shared object",  # the loader, for a module of Python
    "can't start new thread",
    "annot allocate memory",
    "bad_alloc",
    "error return without exception set",  # of an import in C that could not even say why
)
"""What messages say that stand for a lack of memory."""


def reason(error: BaseException) -> str:
    """Return what an error of another library says, on one line: of a long text, the sentences or
    at least the words that fit into 200 characters."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):  # whose text is the key alone
        text = f"{type(error).__name__}: {text}"
    if len(text) > 200:
        sentences = re.match(r"(.*)[.!?] ", text[:200])
        words = text[:200].rpartition(" ")[0] or text[:200]
        text = sentences[1] if sentences else f"{words} …"
    return text or type(error).__name__
