"""`shapeshift` and `python -m shapeshift`, as `torchrun -m shapeshift` starts it, too."""

import sys

# `python -m` puts the current folder first, where a file of the user's may have the name of a
# module of Python's: here it comes last, see `own_modules`.
if __name__ == "__main__" and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

import atexit
import gc
import os
import signal
from pathlib import Path

TESTBED = {
    *("numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic", "yaml", "typer", "rich"),
    *("scipy", "matplotlib", "pandas", "jinja2", "tensorboard", "filelock"),
}
"""The packages that the extra `testbed` installs, as Python imports them."""


def main() -> None:
    """Run the command line; until it has begun, Ctrl-C ends the process at once."""
    # Figures are files. Jupyter names a backend here that may not be installed in this environment.
    os.environ["MPLBACKEND"] = "agg"
    _set_environment()
    # Else the end of the process searches all that was imported for garbage: 0.3 s with PyTorch.
    atexit.register(gc.freeze)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    try:
        from shapeshift.cli import main as run

        run()
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in TESTBED:
            raise
        from shapeshift._system.errors import install_extra

        sys.exit(
            f"shapeshift: error: the command line needs {missing}, which is not installed;"
            f" {install_extra('testbed')}"
        )


def _set_environment() -> None:
    """Set what `threads.SETTINGS` says in the environment, and start this program anew where that
    is too late for this process. A program that runs our command line in its own process keeps
    its settings."""
    from shapeshift._system.threads import apply_settings

    program = Path(sys.argv[0])
    ours = program.name == "shapeshift" or program.resolve() == Path(__file__).resolve()
    if ours and apply_settings():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
