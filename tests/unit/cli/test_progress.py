"""What a command shows of its phases and of a grid's runs, on a terminal and in a file."""

import io
from types import SimpleNamespace

import pytest

from shapeshift.cli import output, progress
from shapeshift.cli.output import plain_console
from shapeshift.cli.progress import Display, GridDisplay, TrainingDisplay
from shapeshift.config import parse_config
from shapeshift.study.grid import PlannedRun
from shapeshift.study.runner import State

RUNS = [
    PlannedRun(
        "mine",
        "tiny",
        {"position": "ape"},
        seed,
        parse_config({"training": {"seed": seed, "max_updates": 2000}}),
    )
    for seed in range(1, 4)
]
SCORING = (State.RUNNING, "score-test", {"update": 2000, "loss": 1.2, "tokens_per_s": 1.0})
FINISHED = (State.FINISHED, None, {})


def running(update):
    return State.RUNNING, "train", {"update": update, "loss": 1.2345, "tokens_per_s": 28_123.4}


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def show(monkeypatch):
    """Puts a file, or a terminal, in place of standard error; returns a function that reads it."""

    def make(**settings):
        console = plain_console(**({"file": io.StringIO(), "width": 200} | settings))
        monkeypatch.setattr(output, "console", lambda: console)
        return console.file.getvalue

    return make


DUMB = {"force_terminal": True, "color_system": None, "_environ": {"TERM": "dumb"}}
"""A terminal without a cursor that moves, such as a shell in Emacs."""


@pytest.mark.parametrize("console", [{}, DUMB], ids=["file", "dumb terminal"])
def test_a_file_gets_a_line_for_each_phase_and_one_twice_a_minute(show, clock, console):
    shown = show(**console)
    with Display() as display:
        for done in range(0, 1001, 100):  # five seconds each
            display("encode train", done, 1000)
            clock[0] += 5
        display("encode test", 0, None)
        clock[0] += 0.25
    assert shown().splitlines() == [
        "encode train: 700 of 1,000 · about 15 s left",
        "✓ encode train (55 s)",
        "✓ encode test (0.2 s)",
    ]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("kernel", "moves"), [(None, True), ("123", False)])
def test_a_notebook_gets_lines(monkeypatch, kernel, moves):
    """Its terminal would keep each frame of a display that moves."""
    for name in ("JPY_PARENT_PID", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    if kernel is not None:
        monkeypatch.setenv("JPY_PARENT_PID", kernel)
    monkeypatch.setattr("sys.stderr", _Terminal())
    assert output.console.__wrapped__().is_terminal is moves


def test_a_terminal_shows_a_bar_for_each_cell_at_work(show, clock):
    shown = show(force_terminal=True, color_system=None, width=80)
    with Display() as bars:
        display = GridDisplay(bars, RUNS)
        for update in range(1000, 1301, 10):
            display.changed(RUNS[0], *running(update))
            clock[0] += 2
        display.changed(RUNS[1], *SCORING)
        bars._progress.refresh()
        first, both, second = shown().splitlines()[-3:]
        display.changed(RUNS[1], State.FAILED, "train", {})
        assert "✓" not in shown()
        display.changed(RUNS[2], State.ELSEWHERE, None, {})
        display.changed(RUNS[2], *FINISHED)
    assert "ape/1 train" in first
    assert "1,300/2,000 loss 1.234 · 28,123 tokens/s · about 2 min left" in first
    assert "ape/2 score-test" in second
    assert "all runs" in both
    assert "3,300/6,000 about 1 min left" in both
    assert "ape/2: failed (0 of 3 runs finished)" in shown()
    assert "ape/3: another command is at work on it" in shown()
    assert "✓ ape/3: 1 of 3 runs finished" in shown()


def test_a_pipe_gets_a_line_for_each_event(show, clock):
    shown = show()
    with Display() as bars:
        display = GridDisplay(bars, RUNS)
        display.changed(RUNS[1], *FINISHED)  # before this command: it is not listed
        display.changed(RUNS[0], State.WAITING, None, {})
        for updates in range(0, 401, 10):  # a second each
            display.changed(RUNS[0], *running(1200 + updates))
            clock[0] += 1
        display.changed(RUNS[0], *SCORING)
        display.changed(RUNS[0], *SCORING)
        clock[0] += 1
        display.changed(RUNS[0], *FINISHED)
    assert shown().splitlines() == [
        "ape/1 train: 1,200 of 2,000 · loss 1.234 · 28,123 tokens/s",
        "all runs: 3,200 of 6,000",
        "ape/1 train: 1,510 of 2,000 · loss 1.234 · 28,123 tokens/s · about 49 s left",
        "all runs: 3,510 of 6,000 · about 4 min left",
        "ape/1 score-test",
        "✓ ape/1 (42 s): 2 of 3 runs finished",
    ]


@pytest.mark.parametrize(
    ("estimate", "corrected"),
    [
        ((280.0, 2800.0), True),  # a range is always narrowed
        ((2800.0, 2800.0), True),
        ((60.0, 60.0), True),
        ((210.0, 210.0), False),
        (None, False),
    ],
)
def test_an_estimate_is_corrected_within_the_first_minute(show, clock, estimate, corrected):
    """Of 100 updates each takes two seconds, after a slow first one."""
    shown = show()
    with Display() as display:
        training = TrainingDisplay(display, "mine", 100, estimate)
        training.advanced(0)
        clock[0] += 20
        for update in range(1, 30):
            training.advanced(update)
            clock[0] += 2
            if update == 20:
                assert ("left, until" in shown()) == corrected
    said = [line for line in shown().splitlines() if "left, until" in line]
    assert len(said) == corrected
    if corrected:
        assert said[0].startswith("mine: at the speed of its first 16 updates, 3 min are left")
