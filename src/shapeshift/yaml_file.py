"""The one way to read YAML: what configurations, grids and overrides are written in.

It is YAML 1.2's core in so far as `yes`, `no`, `on`, `off`, dates and `1:30` are text, `1e-3` is a
number and `010` is ten. Refused, where YAML or its Python library allows it: a key given twice,
types of other languages (`!!set`), and whatever is too deep, too long or no text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from shapeshift.errors import ShapeshiftError

MAX_BYTES = 200_000
_MAX_DEPTH = 50
_MAX_NODES = 50_000
_MAX_DIGITS = 18  # what fits into 64 bits


class _Loader(yaml.SafeLoader):
    """Reads the tags that JSON has types for."""

    # By the first character of the text that they are for; the base class has more of them.
    yaml_implicit_resolvers = {}  # noqa: RUF012
    yaml_constructors = {  # noqa: RUF012
        tag: read
        for tag, read in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.rpartition(":")[2] in ("null", "str", "seq", "map")
    }

    def __init__(self, text: str):
        super().__init__(text)
        self._depth = 0
        self._num_nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Count what aliases stand for, too: a few lines may mean billions of nodes."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        before = self._num_nodes
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _error("an alias (*) inside of what it stands for", event.start_mark)
            self._num_nodes += self._sizes[id(node)]
        else:
            self._num_nodes += 1
            self._sizes[id(node)] = self._num_nodes - before
        if self._num_nodes > _MAX_NODES:
            raise _error(f"more than {_MAX_NODES:,} values", event.start_mark)
        return node

    def compose_sequence_node(self, anchor: Any) -> Any:
        """Refuse what would be too deep to be read."""
        self._check_depth()
        return super().compose_sequence_node(anchor)

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Refuse what would be too deep to be read."""
        self._check_depth()
        return super().compose_mapping_node(anchor)

    def _check_depth(self) -> None:
        if self._depth > _MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise _error(f"more than {_MAX_DEPTH} levels", mark)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice: YAML would take the last."""
        keys = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            text = key.value if isinstance(key, yaml.ScalarNode) else None
            if text is None:
                raise _error("a key that is no text", key.start_mark)
            if text in keys:
                raise _error(f"the key {text!r} is given twice", key.start_mark)
            keys.add(text)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        """Refuse what cannot stand in a file's name, or in a file of text."""
        text = super().construct_scalar(node)
        if re.search(r"[\0\ud800-\udfff]", text):
            raise _error("a character that is no text", node.start_mark)
        return text

    def flatten_mapping(self, node: Any) -> None:
        """Leave `<<` an ordinary key."""

    def read_bool(self, node: Any) -> bool:
        """Return true or false."""
        text = self.construct_scalar(node).lower()
        if text not in ("true", "false"):
            raise _error("neither true nor false", node.start_mark)
        return bool(text == "true")

    def read_int(self, node: Any) -> int:
        """Return a decimal number."""
        text = self.construct_scalar(node).replace("_", "")
        if not re.fullmatch(rf"[-+]?[0-9]{{1,{_MAX_DIGITS}}}", text):
            raise _error(f"no whole number of at most {_MAX_DIGITS} digits", node.start_mark)
        return int(text)

    def read_float(self, node: Any) -> float:
        """Return a number, or what stands for one that is not finite."""
        text = self.construct_scalar(node).replace("_", "").lower()
        try:
            return float(re.sub(r"\.(inf|nan)$", r"\1", text))
        except ValueError:
            raise _error("no number", node.start_mark) from None


def _error(problem: str, mark: Any) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, mark)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+(_[0-9]+)*", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
        r"|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first
    )
_Loader.add_constructor("tag:yaml.org,2002:bool", _Loader.read_bool)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.read_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.read_float)


def parse_yaml(text: str) -> Any:
    """Return what a text of YAML says.

    Raises:
        ShapeshiftError: it is not YAML, or refused (see the module); with the line.
    """
    try:
        return _Loader(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        line = None if mark is None else mark.line + 1
        raise ShapeshiftError(f"not YAML: {problem}", line=line) from error


def read_yaml(path: Path) -> Any:
    """Return what a file of YAML says.

    Raises:
        ShapeshiftError: see `parse_yaml`; or the file cannot be read, or is too long.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode()
    except FileNotFoundError:
        raise ShapeshiftError("no such configuration file", path=path) from None
    except (OSError, ValueError) as error:
        raise ShapeshiftError(f"cannot be read: {error}", path=path) from error
    if len(content) > MAX_BYTES:
        raise ShapeshiftError(f"has more than {MAX_BYTES:,} bytes: no configuration", path=path)
    try:
        return parse_yaml(text)
    except ShapeshiftError as error:
        raise ShapeshiftError(error.args[0], path=path, line=error.line) from error.__cause__
