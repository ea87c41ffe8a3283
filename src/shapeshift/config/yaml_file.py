"""The only YAML reader, for configurations, studies and overrides.

It is YAML 1.2's core in so far as `yes`, `no`, `on`, `off`, dates and `1:30` are text, `1e-3` is a
number and `010` is ten. Refused, where YAML or its Python library allows it: a key given twice,
types of other languages (`!!set`), and whatever is too deep, too long or no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift._system.files import read

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 50
_MAX_VALUES = 50_000
_MAX_DIGITS = 18  # what fits into 64 bits


class _Loader(yaml.SafeLoader):
    """A YAML loader limited to JSON's types."""

    # By the first character of the text that they are for; the base class has more of them.
    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors = {  # noqa: RUF012
        tag: read
        for tag, read in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("str", "seq", "map")
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice; YAML would take the last value."""
        keys = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                raise _error("a key that is no text", key.start_mark)
            if key.value in keys:
                raise _error(f"the key {key.value!r} is given twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        """Refuse characters that file names or text files cannot contain."""
        text = super().construct_scalar(node)
        if re.search(r"[\0\ud800-\udfff]", text):
            raise _error("a character that is no text", node.start_mark)
        return text


def _error(problem: str, mark: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_PLAIN = re.compile(
    r"^(?:|~|null|Null|NULL|true|True|TRUE|false|False|FALSE"
    r"|[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?)$"
)


def _read_plain(loader: _Loader, node: Any) -> Any:
    """Return the value of unquoted text that is not a string."""
    text = loader.construct_scalar(node).lower()
    if text in _WORDS:
        return _WORDS[text]
    if not re.fullmatch("[-+]?[0-9_]+", text):
        return float(text)
    if len(text) > _MAX_DIGITS:
        raise _error("not a valid number", node.start_mark)
    return int(text)


_Loader.add_implicit_resolver("plain", _PLAIN, ["", *"~nNtTfF-+.0123456789"])
_Loader.add_constructor("plain", _read_plain)


def _depths(value: Any, depth: int = 0) -> Iterator[int]:
    """Yield the depth of each value of a document, including those that aliases (`*`) repeat."""
    yield depth
    for below in value.values() if isinstance(value, dict) else value:
        if isinstance(below, dict | list):
            yield from _depths(below, depth + 1)
        else:
            yield depth + 1


def parse_yaml(text: str, path: Path | None = None) -> Any:
    """Parse YAML text; messages name `path` if it is from a file.

    Raises:
        ShapeshiftError: it is not YAML, or refused (see the module); with the line.
    """
    try:
        document = _Loader(text).get_single_data()
        for number, depth in enumerate(_depths([document])):
            if number > _MAX_VALUES or depth > _MAX_DEPTH:
                raise RecursionError
        return document
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        if "'\\t'" in problem:
            problem = "found a tab; indent with spaces"
        line = None if mark is None else mark.line + 1
        raise ShapeshiftError(f"not YAML: {problem}", path=path, line=line) from error
    except RecursionError:
        raise ShapeshiftError(
            f"more than {_MAX_VALUES:,} values or {_MAX_DEPTH} levels: no configuration", path=path
        ) from None


@lru_cache(maxsize=4)
def _nodes(text: str) -> Any:
    return _Loader(text).get_single_node()


def line_of(path: Path, keys: Sequence[Any]) -> int | None:
    """Return the line, from 1, of a file in which a value begins, or a name for its section; None
    if the file does not give it."""
    try:
        node = _nodes(read(path, _MAX_BYTES).decode())
    except (OSError, ValueError, yaml.YAMLError):
        return None
    line = None
    for key in map(str, keys):
        if isinstance(node, yaml.MappingNode):
            items = {name.value: (name, value) for name, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            items = {str(n): (value, value) for n, value in enumerate(node.value)}
        else:
            return line
        if key not in items:
            return None
        name, node = items[key]
        line = name.start_mark.line + 1
    return line


def read_yaml(path: Path) -> Any:
    """Read a YAML file."""
    try:
        text = read(path, _MAX_BYTES).decode()
    except FileNotFoundError:
        others = [each.name for each in path.parent.glob("*.y*ml")]
        raise ShapeshiftError(f"no such file{nearest(path.name, others)}", path=path) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise ShapeshiftError(f"cannot be read: {why}", path=path) from error
    return parse_yaml(text, path)
