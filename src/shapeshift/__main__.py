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
    *("matplotlib", "pandas", "jinja2", "tensorboard"),
}
"""The packages that the extra `testbed` installs, as Python imports them."""

MALLOC = "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"
HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"


def main() -> None:
    """Run the command line; until it has begun, Ctrl-C ends the process at once."""
    # Large tensors in huge pages, where the kernel leaves that to programs: less memory, and less
    # time for its pages (dev/log.md). PyTorch reads this before its first tensor.
    os.environ.setdefault(HUGE_PAGES, "1")
    # Figures are files. Jupyter names a backend here that may not be installed in this environment.
    os.environ["MPLBACKEND"] = "agg"
    _start_without_small_caches()
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
        from shapeshift.errors import install_extra

        sys.exit(
            f"shapeshift: error: the command line needs {missing}, which is not installed;"
            f" {install_extra('testbed')}"
        )


def _start_without_small_caches() -> None:
    """Start this program anew without glibc's caches of small blocks, unless the user has set
    `GLIBC_TUNABLES`.

    What is in such a cache does not join the free memory next to it, so that the place of a freed
    tensor is too small for the next one of its size. Without them training needs 13 to 22 %
    less memory and 4 to 9 % less time (dev/log.md). Only the environment can turn them off.
    """
    is_glibc = sys.platform == "linux" and "CS_GNU_LIBC_VERSION" in os.confstr_names
    program = Path(sys.argv[0])
    ours = program.name == "shapeshift" or program.resolve() == Path(__file__).resolve()
    if is_glibc and ours and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = MALLOC
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


if __name__ == "__main__":
    main()
