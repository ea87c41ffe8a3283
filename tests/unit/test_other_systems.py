"""Systems that lack parts of Linux: every module is imported, the help is shown, the library works,
and the command line says what it needs.

A process hides from this package what those systems do not have; other packages, which decide by
the name of the system, are imported before."""

import re

import pytest

from shapeshift.__main__ import TESTBED
from shapeshift.cli import COMMANDS

from .cli.running import python

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES = {
    "darwin": ["sched_getaffinity", "sched_setaffinity", "O_PATH", "posix_fadvise", "pipe2"],
    "win32": [
        *("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "O_PATH", "sched_getaffinity"),
        *("confstr", "confstr_names", "fork", "geteuid", "getpgid", "getuid", "killpg", "mkfifo"),
        *("nice", "pipe2", "posix_fadvise", "register_at_fork", "set_blocking", "setsid"),
        *("statvfs", "sysconf", "wait", "waitid", "SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1"),
        *("SIGUSR2", "pthread_sigmask", "sigwait", "setitimer"),
    ],
}
"""System → what it lacks of `os` and `signal`."""
HIDE = f"""
import os, runpy, signal, sys, sysconfig
sysconfig.get_config_vars()  # reads a file whose name has that of the system
system, *arguments = sys.argv[1:]
sys.platform = system
if system == "win32":
    sys.modules.update(dict.fromkeys({MODULES!r}))  # importing them fails
for name in {NAMES!r}[system]:
    for module in (os, signal):
        if hasattr(module, name):
            delattr(module, name)
def run(*arguments):
    sys.argv = ["shapeshift", *arguments]
    runpy.run_module("shapeshift", run_name="__main__")
"""


@pytest.mark.long
def test_every_module_is_imported_and_the_library_works():
    code = f"""
import torch, fastapi, uvicorn, rich.console, scipy.special, sacrebleu.significance
import matplotlib.font_manager  # looks for fonts, on Windows in its registry
import {", ".join(sorted(TESTBED))}
from transformers import GenerationMixin, PreTrainedModel
{HIDE}
from importlib import import_module
from pathlib import Path
import shapeshift
root = Path(shapeshift.__file__).parent
for path in sorted(root.rglob("*.py")):
    if path.name not in ("__main__.py", "gpu.py"):  # gpu.py needs a compiler for GPUs
        import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))
from shapeshift import SHAPE
from shapeshift._system.threads import num_cores, watch_others
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.positions import Shaw
x = SHAPE(dim=8)(torch.zeros(2, 3, 8))
x, _ = MultiheadAttention(8, 2, batch_first=True, position=Shaw(num_heads=2, head_dim=4))(x, x, x)
print(x.shape, num_cores() > 0, watch_others()())
"""
    done = python("-c", code, "win32")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "torch.Size([2, 3, 8]) True 0.0\n"


def test_windows_shows_the_help_of_every_command():
    code = f"""
import typer, pydantic
{HIDE}
for name in {[None, *COMMANDS]!r}:
    try:
        run(*filter(None, [name]), "--help")
    except SystemExit as end:
        assert not end.code, name
"""
    done = python("-c", code, "win32")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: shapeshift") == 1 + len(COMMANDS)


@pytest.mark.parametrize(
    ("system", "imports", "said"),
    [
        ("darwin", "torch, typer, rich.console", ""),
        (
            "win32",
            "typer, rich.console",
            "shapeshift: error: the commands need Linux or macOS, .*\n",
        ),
    ],
)
def test_a_command_runs_or_says_what_it_needs(system, imports, said):
    code = f"import {imports}{HIDE}run('positions', 'shape')"
    done = python("-c", code, system)
    assert (done.returncode, bool(done.stdout)) == (bool(said), not said)
    assert re.fullmatch(said, done.stderr)
