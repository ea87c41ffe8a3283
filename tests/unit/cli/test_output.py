"""Lines on a terminal and in a pipe."""

import io

import pytest

from shapeshift.cli import output
from shapeshift.evaluation.tables import Table
from shapeshift.export.support import ENGINES, table

PATH = "a/very/long/path/of/a/file-whose-name-someone-will-copy.png"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_is_folded_between_words_and_on_a_terminal_alone(monkeypatch, is_terminal):
    stream = io.StringIO()
    console = output.plain_console(file=stream, width=20, force_terminal=is_terminal)
    monkeypatch.setattr(output, "console", lambda: console)
    line = f"a comparison of several: {PATH}"
    output.notice(line)
    folded = f"a comparison of\nseveral:\n{PATH}"
    assert stream.getvalue() == (folded if is_terminal else line) + "\n"


@pytest.mark.parametrize("width", [70, 120])
def test_a_table_is_folded_between_words(monkeypatch, width):
    stream = io.StringIO()
    console = output.plain_console(file=stream, width=width)
    monkeypatch.setattr(output, "results_console", lambda: console)
    support = Table(("kind", "place", *ENGINES), [*table()])
    output.show_table(support, numbers=False)
    shown = stream.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert {word for row in support.rows for text in row for word in text.split()} <= {
        *shown.split()
    }
