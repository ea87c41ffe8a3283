"""`shapeshift` and `python -m shapeshift`, as `torchrun -m shapeshift` starts it, too."""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line; until it has begun, Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from shapeshift.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
