"""The command line: `shapeshift SUBCOMMAND …`.

Each subcommand is one thin module: a Typer function that reads its options, calls the library and
prints. A module is imported when its subcommand runs or its help is shown. Its top level imports
`typer` and the standard library only, and the function imports the rest: `--help` stays fast.

Exit status: 0; 1 for an error that the user can fix (`ShapeshiftError`, one line on stderr) and for
a disk that is full or not writable; 2 for wrong usage; 130 after Ctrl-C, 143 after SIGTERM; 1,
without a message, if the reader of the output closes it. Any other error is a bug and shows its
traceback. On Windows every subcommand is such an error, and its help is shown.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from difflib import get_close_matches
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError, is_text, nearest, out_of_memory
from shapeshift.cli.signals import ending_on_signals

GROUPS = {
    "Your text and models": "init prepare train translate score inspect export import serve",
    "Comparisons and papers": "demo compare reproduce report",
    "Reference": "positions check context",
}
"""The subcommands, in the order of the help."""


def _identifier(name: str) -> str:
    return f"{name}_" if iskeyword(name) else name


COMMANDS = {
    name: f"shapeshift.cli.{'compare' if name == 'demo' else _identifier(name)}"
    for names in GROUPS.values()
    for name in names.split()
}
"""Subcommand → module that has a function of the same name."""

EXAMPLES = (
    "shapeshift demo",
    "shapeshift init --source en --target de --train data/all",
    "shapeshift compare mine.yaml --position ape,shape,rope --seeds 3",
    "shapeshift train multi30k position=shape",
    "shapeshift COMMAND --help",
)


RENAMED_OPTIONS = {"--scale": "--profile", "--system": "--position"}
"""An option's former name → its name now."""


class Subcommand(TyperCommand):
    """A subcommand whose error for another toolkit's option names the setting to use here:
    `--lr` is training.schedule.peak=VALUE."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the usage text; different versions of Typer bracket argument names differently."""
        given = (each for each in self.params if each.param_type_name == "argument")
        return ["[OPTIONS]", *(each.metavar or str(each.name).upper() for each in given)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its name: some versions of Typer have their own copy of click.
            if type(error).__name__ == "BadParameter":
                error.message = str(error.message).removeprefix("Value error, ")  # type: ignore[attr-defined]
            takes = next((each for each in self.params if each.name == "overrides"), None)
            if takes is None or type(error).__name__ != "NoSuchOption":
                raise
            from shapeshift.config import Config
            from shapeshift.config.errors import find_key
            from shapeshift.config.foreign_names import unit_note

            is_argument = takes.param_type_name == "argument"
            sections = ("data", "training", "model") if is_argument else ("decoding",)
            option = str(getattr(error, "option_name", ""))
            ours = [name for each in self.params for name in each.opts]
            if (new := RENAMED_OPTIONS.get(option)) in ours:
                ctx.fail(f"{option} is now {new}")
            if similar := get_close_matches(option, ours, n=1, cutoff=0.9):
                ctx.fail(f"no such option {option}; did you mean {similar[0]}?")
            name = option.strip("-").replace("-", "_")
            key = find_key(name, Config, sections)
            if key is not None:
                setting = f"{key}=VALUE" if is_argument else f"--set {key}=VALUE"
                note = unit_note(name)
                ctx.fail(f"no such option {option}; give a setting: {setting}{note}")
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand; refuse systems without POSIX signals, folders and links."""
        if sys.platform == "win32":
            raise ShapeshiftError(
                "the commands need Linux or macOS, and on Windows its Subsystem for Linux (WSL);"
                " the library, such as `from shapeshift import SHAPE`, works here"
            )
        return super().invoke(ctx)


class LazyCommands(TyperGroup):
    """A group of subcommands, each imported when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the subcommands in groups, and examples."""
        for title, names in GROUPS.items():
            with formatter.section(title):
                commands = ((x, self.get_command(ctx, x)) for x in names.split())
                width = formatter.width - 16
                formatter.write_dl([(name, x.get_short_help_str(width)) for name, x in commands])
        with formatter.section("Examples"):
            formatter.write_text("\b\n" + "\n".join(EXAMPLES))

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand; a signal ends it in an orderly way."""
        if sys.platform == "win32":  # where there is only help, see `Subcommand`
            return super().invoke(ctx)
        with ending_on_signals():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a subcommand; an unknown name is a usage error."""
        if cmd_name not in COMMANDS:
            ctx.fail(f"no such command {cmd_name!r}{nearest(cmd_name, COMMANDS)}")
        function = getattr(import_module(COMMANDS[cmd_name]), _identifier(cmd_name))
        single = _typer(add_completion=False)
        single.command(cmd_name, cls=Subcommand)(function)
        return typer.main.get_command(single)


def _typer(**settings: Any) -> typer.Typer:
    # Markup mode None keeps rich, and its import time, out of help texts and usage errors.
    return typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        **settings,
    )


app = _typer(cls=LazyCommands, no_args_is_help=True)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"shapeshift {__version__}")
        raise typer.Exit


@app.callback()
def shapeshift(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Position representations for Transformers: prepare, train, translate, score, compare."""


_SIGNALLED = (128 + signal.SIGINT, 128 + signal.SIGTERM)


def main() -> None:
    """Run the command line on `sys.argv` and exit with its status."""
    _open_closed_streams()
    try:
        os.getcwd()
    except FileNotFoundError:  # where PyTorch's import ends the process
        _fail("the current folder has been removed; change to another one")
    for argument in sys.argv[1:]:
        if not is_text(argument) and sys.argv[1] not in ("translate", "score"):  # which only read
            _fail(f"{argument!r} is not UTF-8, as all text and names here; rename the file")
    threading.excepthook = _report_thread
    try:
        try:
            # Typer itself ends the run with SystemExit: 0, 2 for wrong usage.
            typer.main.get_command(app)(prog_name="shapeshift")
        finally:
            _flush_output()
    except SystemExit as end:
        if end.code in _SIGNALLED:  # else Python would wait for threads that are still computing
            os._exit(end.code)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except ShapeshiftError as error:
        _fail(str(error))
    except Exception as error:
        if lack := out_of_memory(error):
            _fail(str(lack))
        if not isinstance(error, OSError) or _is_bug(error):
            raise
        name = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        _fail(f"{name}{error.strerror}")


class _Closed(io.FileIO):
    """Stands for a standard output that was closed when the process began: writing results raises
    an error. Buffered text is then discarded, since its flush at exit would fail again."""

    _refused = False

    def write(self, data: Any) -> int:
        if self._refused:
            return len(data)
        self._refused = True
        raise OSError(0, "standard output is closed; the results are lost")


def _open_closed_streams() -> None:
    """Open closed standard streams on `/dev/null`; otherwise the next opened file would get the
    file descriptor of one, and our notices would go into it. Results that nobody can read are an
    error, notices are not."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raw = io.BufferedWriter(_Closed(os.devnull, "w"))
        sys.stdout = io.TextIOWrapper(raw, encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        # Discard what is still buffered: its flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _report_thread(arguments: threading.ExceptHookArgs) -> None:
    # An error of the disk in TensorBoard's thread is raised again in the main thread.
    error = arguments.exc_value
    if error is not None and (lack := out_of_memory(error)):
        print(f"shapeshift: {lack}", file=sys.stderr)
    elif not isinstance(error, OSError) or _is_bug(error):
        threading.__excepthook__(arguments)


def _fail(message: str) -> NoReturn:
    line = "shapeshift: error: " + " ".join(message.split("\n"))
    try:
        from shapeshift.cli.output import notice

        notice(line)
    except (ImportError, MemoryError):  # where memory has run out, there may be none for rich
        print(line, file=sys.stderr)
    sys.exit(1)


def _is_bug(error: OSError) -> bool:
    """Return whether an error comes from a wrong call, not from a disk, a permission or a path."""
    return error.errno in (None, errno.EINVAL, errno.EBADF)
