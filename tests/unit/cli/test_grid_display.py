"""How a grid looks on a terminal and in a file."""

import io
from dataclasses import replace

import pytest

from shapeshift.cli import output
from shapeshift.cli.grid_display import GridDisplay, show_failures
from shapeshift.config import parse_config
from shapeshift.lab.grid import Cell
from shapeshift.lab.runner import Report
from shapeshift.lab.status import CellStatus, State

CELLS = [
    Cell("mine", "tiny", {"position": "ape"}, seed, parse_config({}, [f"training.seed={seed}"]))
    for seed in range(1, 9)
]
RUNNING = CellStatus(
    State.RUNNING, "train", update=1200, max_updates=2000, loss=1.2345, tokens_per_s=28_123.4,
    left_s=3723.4,
)  # fmt: skip


@pytest.fixture
def make_console(monkeypatch):
    """Return a function that puts a file, or a terminal, in place of standard error."""

    def make(**settings):
        console = output.plain_console(file=io.StringIO(), width=90, **settings)
        monkeypatch.setattr(output, "console", lambda: console)
        return console

    return make


@pytest.fixture
def terminal(make_console):
    return make_console(height=12, force_terminal=True, color_system=None)


@pytest.fixture
def pipe(make_console):
    return make_console()


def lines(display, terminal):
    with terminal.capture() as capture:
        terminal.print(display.table())
    return capture.get().splitlines()


def test_a_row_shows_state_updates_loss_speed_and_time_left(terminal):
    display = GridDisplay(CELLS[:2])
    with display:
        display.changed(CELLS[0], RUNNING)
    text = lines(display, terminal)
    [first] = [line.split() for line in text if "ape/1" in line]
    assert first == ["ape/1", "running:", "train", "1,200/2,000", "1.234", "28,123", "1.0", "h"]
    [second] = [line.split() for line in text if "ape/2" in line]
    assert second == ["ape/2", "waiting", "0/200,000", "–", "–", "–"]
    display.changed(CELLS[0], CellStatus(State.FINISHED))
    text = "\n".join(lines(display, terminal))
    assert "1 waiting, 1 finished" in text
    assert "1 of 2 cells finished" in text


def test_a_small_terminal_shows_what_matters_most(terminal):
    display = GridDisplay(CELLS)
    with display:
        for cell in CELLS[:5]:
            display.changed(cell, CellStatus(State.FINISHED))
        display.changed(CELLS[5], CellStatus(State.FAILED))
        display.changed(CELLS[6], RUNNING)
        drawn = terminal.file.getvalue()  # at the end, all cells are drawn
    last = drawn[drawn.rindex("1 running, 1 failed, 1 waiting, 5 finished") :].splitlines()
    assert len(last) <= terminal.height
    shown = [line.split()[0] for line in last if "ape/" in line]
    assert shown[:3] == ["ape/7", "ape/6", "ape/8"]


def test_a_pipe_gets_a_line_for_each_event(pipe):
    with GridDisplay(CELLS[:1]) as display:
        display.changed(CELLS[0], CellStatus(State.WAITING))
        display.changed(CELLS[0], RUNNING)
        display.changed(CELLS[0], RUNNING)
        display.changed(CELLS[0], CellStatus(State.RUNNING, "score-test"))
        display.changed(CELLS[0], CellStatus(State.FINISHED))
    assert pipe.file.getvalue().splitlines() == [
        "ape/1: train · update 1200/2000 · loss 1.234 · 28,123 tokens/s · about 1.0 h left",
        "ape/1: score-test",
        "ape/1: finished (1 of 1 cells finished)",
    ]


def test_the_time_left_stands_behind_what_is_finished(pipe):
    seconds = iter((0.0, 60.0, 60.0, 60.0))
    total = CELLS[0].config.training.max_updates
    with GridDisplay(CELLS, lambda: next(seconds)) as display:
        display.changed(CELLS[7], CellStatus(State.FINISHED, update=total))
        display.changed(CELLS[0], CellStatus(State.WAITING))
        display.changed(CELLS[0], CellStatus(State.RUNNING, "train", update=total))
        display.changed(CELLS[0], CellStatus(State.FINISHED, update=total))
    # One cell in a minute, and six are left.
    assert pipe.file.getvalue().splitlines()[-1] == (
        "ape/1: finished (2 of 8 cells finished, about 6 min left)"
    )


def test_cells_of_several_grids_are_named_with_their_grid(pipe):
    other = replace(CELLS[1], grid="other")
    with GridDisplay([CELLS[0], other, CELLS[2]]) as display:
        display.changed(CELLS[2], CellStatus(State.FINISHED))  # before: it is not listed
        display.changed(CELLS[0], RUNNING)
        display.changed(other, CellStatus(State.RUNNING, "score-test"))
    names = [line.split(":")[0] for line in pipe.file.getvalue().splitlines()]
    assert names == ["mine ape/1", "other ape/2"]


def test_a_failure_shows_its_last_lines(pipe):
    statuses = {
        CELLS[0].key: CellStatus(State.FAILED, message="Traceback\nKeyError: '[bold]'"),
        CELLS[1].key: CellStatus(State.FINISHED),
    }
    show_failures(Report(statuses, tuple(CELLS[:2])))
    text = pipe.file.getvalue()
    assert text.splitlines()[0] == f"ape/1 ({CELLS[0].key}) failed:"
    assert text.splitlines()[1:] == ["  Traceback", "  KeyError: '[bold]'"]
