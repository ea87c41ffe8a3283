"""Programs of other toolkits: found, run one after the other, each once."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shapeshift.disk import open_in_place, save, writing
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.cell_folder import tail

# Checkpoints of other toolkits hold settings next to tensors; PyTorch reads those only on request.
_ENVIRONMENT = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    Attributes:
        name: of its log and of its mark.
        arguments: the program first.
        output: file that standard output goes to; by default the log.
    """

    name: str
    arguments: tuple[str, ...]
    output: Path | None = None

    def __str__(self) -> str:
        settings = [f"{name}={shlex.quote(value)}" for name, value in _ENVIRONMENT.items()]
        target = [] if self.output is None else [">", shlex.quote(str(self.output))]
        return " ".join([*settings, shlex.join(self.arguments), *target])


def find_program(name: str) -> Path | None:
    """Return where a program is: on the PATH, or in the folder of this interpreter."""
    folders = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    path = shutil.which(name, path=os.pathsep.join(folders))
    return None if path is None else Path(path).absolute()


def interpreter(script: Path) -> str:
    """Return the Python that a script with a `#!` line is run by: the one that has its toolkit."""
    with script.open("rb") as file:
        first = file.readline().decode(errors="replace").strip()
    named = first.removeprefix("#!").strip()
    if first.startswith("#!") and Path(named).exists():
        return named
    return str(script.parent / "python")


def run_commands(commands: Sequence[Command], directory: Path) -> None:
    """Run commands in a folder, in order. One that is done is marked and not run again, unless its
    arguments or an earlier command have changed. What they print is kept as `NAME.log`, what was
    run as `commands.sh`.

    Raises:
        ShapeshiftError: one of them failed; the last line of its log is in the message.
    """
    script = "".join(f"{command}\n" for command in commands)
    save(directory / "commands.sh", script)
    history = hashlib.sha256()
    for command in commands:
        history.update(str(command).encode())
        mark = directory / f"{command.name}.done"
        if mark.is_file() and mark.read_bytes() == history.hexdigest().encode():
            continue
        _run(command, directory)
        save(mark, history.hexdigest())


def _run(command: Command, directory: Path) -> None:
    log = directory / f"{command.name}.log"
    with writing(log), ExitStack() as stack:
        messages = stack.enter_context(open_in_place(log, "wb"))
        output = messages
        if command.output is not None:
            output = stack.enter_context(open_in_place(command.output, "wb"))
        stack.enter_context(_signals_raise())
        try:
            status = subprocess.run(
                command.arguments,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=messages,
                env={**os.environ, **_ENVIRONMENT},
            ).returncode
        except OSError as error:
            raise ShapeshiftError(
                f"{command.arguments[0]} cannot be started: {error.strerror}"
            ) from error
    if status:
        lines = [line for line in tail(log).splitlines() if line.strip()]
        last = lines[-1].strip()[:300] if lines else "it printed nothing"
        raise ShapeshiftError(
            f"{Path(command.arguments[0]).name} ended with status {status}: {last}", path=log
        )


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Make SIGTERM raise `SystemExit`, so that the program ends, too: by default this process would
    end and leave it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
