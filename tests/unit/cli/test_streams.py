"""Standard streams that are closed or full: one line, a status, and no notice among the output."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache

import pytest

from shapeshift.papers.document import ItemDocument

CONFIG = """\
model: {size: tiny}
data:
  corpus: {corpus: grammar, num_train: 300, num_valid: 5, num_test: 5}
  subwords: {vocab_size: 200}
"""
COMMANDS = [
    *("--help", "translate --help", "score text text"),
    *(
        pytest.param(arguments, marks=pytest.mark.slow)
        for arguments in (
            *("positions", "reproduce --list shaw", "prepare config.yaml"),
            *("train config.yaml --dry-run", "report items --output page.html"),
        )
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("streams")
    (path / "text").write_text("a b c d e\nf g h i j\n")
    (path / "config.yaml").write_text(CONFIG)
    fields = ("paper", "item", "title", "citation", "scale", "command", "version", "time")
    ItemDocument(**dict.fromkeys(fields, "x")).save(path / "items")
    return path


@pytest.fixture(scope="module")
def shell(folder):
    """Run a command with its streams redirected by a shell; return status, output and errors."""

    @cache
    def run(arguments, redirection=""):
        command = f"{shlex.quote(sys.executable)} -m shapeshift {arguments} {redirection}"
        with (folder / "text").open() as text:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=folder,
                stdin=text,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize("arguments", COMMANDS)
def test_output_that_is_lost_is_an_error_of_one_line(shell, arguments, redirection):
    status, out, err = shell(arguments, redirection)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("shapeshift: error: standard output cannot be written: ")
    assert "Traceback" not in err
    assert "Exception ignored" not in err


def _without_times(out):
    """Return output without numbers, which are measured, and the note on a busy processor."""
    lines = (re.sub(r"[\d.,─ ]+|µs|ms", " ", line) for line in out.splitlines())
    return [line for line in lines if "another program was using the processor" not in line]


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("arguments", [*COMMANDS, "score text missing", "scor"])
def test_notices_that_are_lost_change_neither_output_nor_status(shell, arguments, redirection):
    status, out, _ = shell(arguments, redirection)
    status_alone, out_alone, _ = shell(arguments)
    assert (status, _without_times(out)) == (status_alone, _without_times(out_alone))
    assert status == {"score text missing": 1, "scor": 2}.get(arguments, 0)


@pytest.mark.parametrize("redirection", ["<&-", "<&- 2>&-", "<&- >&-"])
def test_input_that_is_closed_is_an_error_of_one_line(shell, redirection):
    status, out, err = shell("score - text", redirection)
    assert (status, out) == (1, "")
    if "2>" not in redirection:
        assert err == "shapeshift: error: <stdin>: cannot be read: Bad file descriptor\n"
