"""What several integration tests need."""

import sys

import pytest

from shapeshift.cli import main


@pytest.fixture(scope="session")
def shapeshift():
    """Return a function that runs a command in this process and returns its exit status, or the
    message that it ends with."""

    def run(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["shapeshift", *arguments])
            try:
                main()
            except SystemExit as end:
                return end.code or 0
        return 0

    return run
