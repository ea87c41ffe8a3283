"""The options that messages name: each exists in the command that prints the message, or in the
command that stands before it, as in `shapeshift train --run`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import shapeshift
from shapeshift.cli import COMMANDS, app

ROOT = Path(shapeshift.__file__).parent
STUDIES = ("compare", "demo", "reproduce")
PRINT = {
    "check/properties.py": ("check",),
    "cli/dry_run.py": (*STUDIES, "train"),
    "cli/options.py": (*STUDIES, "train"),
    "cli/run_plan.py": ("reproduce",),
    "cli/import_.py": ("import",),
    "data/survey.py": ("init",),
    "export/folder.py": ("export",),
    "run/folder.py": ("train",),
    "run/imported.py": ("import",),
    "run/record.py": STUDIES,
    "serve/server.py": ("serve",),
    "study/compare.py": ("compare",),
    "study/grid.py": ("reproduce",),
    "study/planning.py": STUDIES,
    "study/results.py": STUDIES,
}
"""File → the commands that print its messages. Other files name a command before each option; one
of `cli` prints for the command of its name."""
PROGRAMS = ("sacrebleu", "torchrun", "pip", "sha256sum")
"""Of other people, whose options messages name, too."""

GROUP = typer.main.get_command(app)
OPTIONS = {
    name: {
        option
        for parameter in GROUP.get_command(None, name).params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    | {"--help", "--version"}
    for name in COMMANDS
}
SHELL = re.compile(rf"\b({'|'.join((*COMMANDS, *PROGRAMS))})\b[^`;,()\n]*$")


def messages(path: Path) -> Iterator[str]:
    """Yield the texts of a file, each expression in one of them as `{}`; no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {x for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for x in node.values}
    skipped |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(x.value if isinstance(x, ast.Constant) else "{}" for x in node.values)
        elif isinstance(node, ast.Constant) and node not in skipped and isinstance(node.value, str):
            yield node.value


def named(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the options in a text, each with the command before it, if there is one."""
    for found in re.finditer(r"(?<![\w-])--[a-z][\w-]*", text):
        before = SHELL.search(text[: found.start()])
        yield (before[1] if before else None), found[0]


FILES = [
    str(path.relative_to(ROOT))
    for path in sorted(ROOT.rglob("*.py"))
    if "toolkits" not in path.parts  # other people's programs
    and path != ROOT / "cli/__init__.py"  # old names of options
    and any("--" in text for text in messages(path))
]


@pytest.mark.parametrize("file", FILES)
def test_an_option_that_a_message_names_exists(file):
    own = Path(file).stem.rstrip("_")
    printing = PRINT.get(file) or ((own,) if file.startswith("cli/") and own in COMMANDS else ())
    for text in messages(ROOT / file):
        for command, option in named(text):
            if text == option:  # a word of a command, or the definition of an option
                assert any(option in known for known in OPTIONS.values()), option
            elif command not in PROGRAMS:
                commands = (command,) if command else printing
                assert commands, f"{text!r} does not say of which command {option} is"
                for each in commands:
                    assert option in OPTIONS[each], f"{each} has no {option}: {text!r}"


def test_the_options_of_a_message_are_found():
    text = "use --run, `shapeshift train FILE --prepared X`, or 'sacrebleu -t wmt14 --list'"
    assert [*named(text)] == [(None, "--run"), ("train", "--prepared"), ("sacrebleu", "--list")]
    assert "--run" in OPTIONS["train"]
    assert "run/folder.py" in FILES
