"""`shapeshift` and `python -m shapeshift`, as `torchrun -m shapeshift` starts it, too."""

import os
import signal
import sys
from types import FrameType

TESTBED = {
    *("numpy", "sentencepiece", "sacrebleu", "safetensors", "pydantic", "yaml", "typer", "rich"),
    *("matplotlib", "pandas", "jinja2", "tensorboard"),
}
"""The packages that the extra `testbed` installs, as Python imports them."""


def main() -> None:
    """Run the command line; until it has begun, Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
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


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
