"""The frame of the command line, in processes of its own: what it imports, how it ends."""

import os
import subprocess
import sys
import textwrap

import pytest

HEAVY = {"torch", "numpy", "pydantic", "sacrebleu", "matplotlib", "rich", "sentencepiece"}


def python(code, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, **options
    )


def script(body):
    """A program that runs `shapeshift fake`, a subcommand with this body."""
    return textwrap.dedent(
        f"""
        import sys, types
        from shapeshift import cli
        from shapeshift.errors import ShapeshiftError
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
    )


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], HEAVY),
        (["--version"], HEAVY),
        (["score", "--help"], HEAVY - {"pydantic"}),  # Typer itself asks for it to read options
    ],
)
def test_help_imports_nothing_heavy(arguments, heavy):
    done = python(
        f"""
        import atexit, sys
        atexit.register(lambda: print(*sys.modules, file=sys.stderr))
        from shapeshift.cli import main
        sys.argv = ["shapeshift", *{arguments!r}]
        main()
        """
    )
    assert done.returncode == 0
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert "typer" in imported
    assert imported & heavy == set()


def test_every_registered_command_is_in_the_help_and_has_one_itself():
    from shapeshift.cli import COMMANDS

    assert COMMANDS
    overview = python("import sys; sys.argv[1:] = ['-h']; from shapeshift.cli import main; main()")
    for name in COMMANDS:
        assert f"\n  {name} " in overview.stdout
        code = f"import sys; sys.argv[1:] = [{name!r}, '-h']; from shapeshift.cli import main"
        own = python(code + "; main()")
        assert own.returncode == 0
        assert own.stdout.startswith(f"Usage: shapeshift {name} ")


def test_80_columns_show_every_command_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    overview = python("import sys; sys.argv[1:] = ['-h']; from shapeshift.cli import main; main()")
    assert max(map(len, overview.stdout.splitlines())) <= 80
    assert [line for line in overview.stdout.splitlines()[1:] if line.endswith("...")] == []


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [("shapeshift tr", "1", "train\ntranslate"), ("shapeshift train --dr", "2", "--dry-run")],
)
def test_a_shell_can_complete_commands_and_options(monkeypatch, words, at, expected):
    monkeypatch.setenv("_SHAPESHIFT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", at)
    done = python("from shapeshift.cli import main; main()")
    assert done.stdout.strip() == expected


def test_version_is_the_packages():
    from shapeshift import __version__

    done = python(
        "import sys; sys.argv[1:] = ['--version']; from shapeshift.cli import main; main()"
    )
    assert done.stdout == f"shapeshift {__version__}\n"


@pytest.mark.parametrize(
    ("body", "status", "stdout", "stderr"),
    [
        ("print('done')", 0, "done\n", ""),
        (
            "raise ShapeshiftError('expected x', path='run.yaml', line=3)",
            1,
            "",
            "shapeshift: error: run.yaml:3: expected x\n",
        ),
    ],
    ids=["success", "an error of the user"],
)
def test_success_is_0_and_an_error_of_the_user_one_line_and_1(body, status, stdout, stderr):
    done = python(script(body))
    assert (done.returncode, done.stdout, done.stderr) == (status, stdout, stderr)


def test_an_interrupt_is_130_without_a_traceback():
    done = python(script("raise KeyboardInterrupt"))
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_a_bug_keeps_a_plain_traceback_without_locals():
    done = python(script("raise RuntimeError('ours')"))
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("RuntimeError: ours\n")
    assert "local value" not in done.stderr


# Large output fails at the write, small output at the last flush.
@pytest.mark.parametrize("body", ["print('x' * 1_000_000)", "print('short')"])
def test_a_reader_that_went_away_is_no_error_message(body):
    reader, writer = os.pipe()
    os.close(reader)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", script(body)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scor"], "no such command 'scor'; did you mean 'score'?"),
        (["--nonsense"], "--nonsense"),
        (["score"], "HYPOTHESES"),
    ],
)
def test_wrong_usage_ends_with_2(arguments, message):
    done = python(
        f"import sys; sys.argv[1:] = {arguments!r}; from shapeshift.cli import main; main()"
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
