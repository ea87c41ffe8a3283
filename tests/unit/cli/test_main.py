"""The frame of the command line: what it imports, how it ends."""

import os
import platform
import re
import shlex
import sys
import textwrap

import pytest

from shapeshift import __version__
from shapeshift._system.threads import SETTINGS
from shapeshift.cli import COMMANDS

from .running import program, python, shapeshift

HEAVY = {"torch", "numpy", "pydantic", "sacrebleu", "matplotlib", "rich", "sentencepiece"}
LINE_OF_MODULES = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from shapeshift.cli import main
main()
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "heavy", "said"),
    [
        (["--help"], HEAVY, "shapeshift COMMAND --help"),
        (["--version"], HEAVY, f"shapeshift {__version__}\n"),
        (["score", "--help"], HEAVY - {"pydantic"}, "score"),  # Typer itself reads options by it
        (["positions"], {"torch._dynamo"}, "rope"),
        (["train", "short", "--dry-run"], {"torch._dynamo"}, "parameters"),
    ],
)
def test_what_is_not_needed_is_not_imported(arguments, heavy, said):
    """No library for help, and no compiler for models without numbers."""
    done = python("-c", LINE_OF_MODULES, *arguments)
    assert done.returncode == 0
    assert said in done.stdout
    imported = {*done.stderr.split()}
    assert "typer" in imported
    assert ("torch" in imported) == (heavy == {"torch._dynamo"})
    assert imported & heavy == set()


RESTARTED = """
import os, runpy, sys
print(os.environ.get("GLIBC_TUNABLES"), flush=True)
sys.argv[0] = {program!r}
runpy.run_module("shapeshift", run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
@pytest.mark.parametrize(
    ("program", "before", "seen"),
    [
        ("bin/shapeshift", None, ["None", SETTINGS["GLIBC_TUNABLES"]]),
        ("bin/shapeshift", "", [""]),
        ("bin/other", None, ["None"]),  # a program that runs our command line in its own process
    ],
)
def test_the_program_starts_anew_with_other_settings_of_malloc(program, before, seen):
    variables = {k: x for k, x in os.environ.items() if k != "GLIBC_TUNABLES"}
    if before is not None:
        variables["GLIBC_TUNABLES"] = before
    done = python("-c", RESTARTED.format(program=program), "--version", env=variables, check=True)
    assert done.stdout.splitlines() == [*seen, f"shapeshift {__version__}"]


ENDING = """
import atexit, gc, runpy
atexit.register(lambda: print(gc.get_freeze_count() > 0))
runpy.run_module("shapeshift", run_name="__main__")
"""


@pytest.mark.long
def test_the_end_of_the_program_searches_for_no_garbage():
    done = python("-c", ENDING, "--version", check=True)
    assert done.stdout.splitlines() == [f"shapeshift {__version__}", "True"]


@pytest.mark.parametrize(
    "arguments", [("inspect", "run", "caf\udce9"), ("compare", "demo", "--directory", "\udcff")]
)
def test_an_argument_that_is_no_text_is_one_line(tmp_path, arguments):
    status, out, err = shapeshift(tmp_path, *arguments)
    assert (status, out) == (1, "")
    assert re.fullmatch(r"shapeshift: error: .*\\udc..' is not UTF-8, .*\n", err)


@pytest.mark.long
def test_a_current_folder_that_was_removed_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && {shlex.quote(sys.executable)} -m shapeshift positions"
    done = program("sh", "-c", command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch("shapeshift: error: the current folder has been removed; .*\n", done.stderr)


@pytest.mark.long
def test_a_backend_of_jupyter_that_is_not_installed_does_no_harm(tmp_path):
    environment = os.environ | {"MPLBACKEND": "not-installed"}
    command = ("-m", "shapeshift", "inspect", "nowhere", "A sentence.")  # imports matplotlib
    ended = python(*command, cwd=tmp_path, env=environment)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr


def test_every_registered_command_is_in_the_help_and_has_one_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, overview, _ = shapeshift(tmp_path, "-h")
    assert status == 0
    assert max(map(len, overview.splitlines())) <= 80
    assert [line for line in overview.splitlines()[1:] if line.endswith("...")] == []
    for name in COMMANDS:
        assert f"\n  {name} " in overview
        status, own, _ = shapeshift(tmp_path, name, "-h")
        assert (status, own.partition("[")[0]) == (0, f"Usage: shapeshift {name} ")


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [("shapeshift tr", "1", "train\ntranslate"), ("shapeshift train --dr", "2", "--dry-run")],
)
def test_a_shell_can_complete_commands_and_options(tmp_path, monkeypatch, words, at, expected):
    monkeypatch.setenv("_SHAPESHIFT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", at)
    assert shapeshift(tmp_path)[1].strip() == expected


def fake(body, **options):
    """Run a subcommand with this body in a process of its own."""
    program = f"""
        import sys, types
        from shapeshift import cli
        from shapeshift._system.errors import ShapeshiftError
        module = types.ModuleType("fake_command")
        def fake():
            secret = "local value"
            {body}
        module.fake = fake
        sys.modules["fake_command"] = module
        cli.COMMANDS["fake"] = "fake_command"
        sys.argv = ["shapeshift", "fake"]
        cli.main()
        """
    return python("-c", textwrap.dedent(program), **options)


TRACEBACK = r"Traceback \(most recent call last\):\n(?!.*local value).*\nRuntimeError: ours\n"
FULL = "raise OSError(28, 'No space left on device', 'some/path')"


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "status", "out", "err"),
    [
        ("print('done')", 0, "done\n", ""),
        ("raise ShapeshiftError('x', path='run.yaml', line=3)", 1, "", r"run\.yaml:3: x\n"),
        (FULL, 1, "", r"some/path: No space left on device\n"),
        ("raise PermissionError(13, 'Denied')", 1, "", r"Denied\n"),
        ("raise OSError(22, 'Invalid argument')", 1, "", r"Traceback .*Invalid argument\n"),
        ("raise KeyboardInterrupt", 130, "", r"(?!.*Traceback).*"),
        ("raise RuntimeError('ours')", 1, "", TRACEBACK),
    ],
)
def test_how_a_command_ends(body, status, out, err):
    done = fake(body)
    assert (done.returncode, done.stdout) == (status, out)
    said = done.stderr.removeprefix("shapeshift: error: ")
    assert re.fullmatch(err, said, re.DOTALL), said
    assert ("Traceback" in err or status != 1) == (said == done.stderr)


# Large output fails at the write, small output at the last flush.
@pytest.mark.long
@pytest.mark.parametrize("body", ["print('x' * 1_000_000)", "print('short')"])
def test_a_reader_that_went_away_is_no_error_message(body):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = fake(body, stdout=writer, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
