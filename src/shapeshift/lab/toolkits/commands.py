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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from shapeshift.disk import open_in_place, save, writing
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.cell_folder import tail

_GRACE_S = 10.0


@dataclass(frozen=True)
class Command:
    """A program and its arguments.

    Attributes:
        name: of its log and of its mark.
        arguments: the program first.
        output: file that standard output goes to; by default the log.
        environment: variables that differ from this process's.
    """

    name: str
    arguments: tuple[str, ...]
    output: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        target = [] if self.output is None else [">", shlex.quote(str(self.output))]
        return " ".join([*settings, shlex.join(self.arguments), *target])


def find_program(name: str) -> Path | None:
    """Return where a program is: on the PATH, or in the folder of this interpreter."""
    folders = [os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    return None if found is None else Path(found).absolute()


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
    with writing(log), open_in_place(log, "wb") as messages:
        output = messages if command.output is None else open_in_place(command.output, "wb")
        try:
            status = _wait(command, directory, output.fileno(), messages.fileno())
        except OSError as error:
            raise ShapeshiftError(
                f"{command.arguments[0]} cannot be started: {error.strerror}"
            ) from error
        finally:
            output.close()
    if status:
        lines = [line for line in tail(log).splitlines() if line.strip()]
        last = lines[-1].strip()[:300] if lines else "it printed nothing"
        raise ShapeshiftError(
            f"{Path(command.arguments[0]).name} ended with status {status}: {last}", path=log
        )


def _wait(command: Command, directory: Path, output: int, messages: int) -> int:
    """Return the exit status; a signal to this process ends the program, too."""
    with _signals_raise():
        process = subprocess.Popen(
            command.arguments,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=messages,
            env={**os.environ, **command.environment},
        )
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Make SIGTERM raise `SystemExit`: by default this process would end and leave the other."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
