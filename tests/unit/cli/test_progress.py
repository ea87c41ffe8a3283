"""What a command shows of its phases, on a terminal and in a file."""

import io

import pytest

from shapeshift.cli import output, progress
from shapeshift.cli.output import duration, plain_console
from shapeshift.cli.progress import Display, TrainingDisplay


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def show(monkeypatch):
    """Puts a file, or a terminal, in place of standard error; returns a function that reads it."""

    def make(**settings):
        console = plain_console(file=io.StringIO(), **settings)
        monkeypatch.setattr(output, "console", lambda: console)
        return console.file.getvalue

    return make


def test_brackets_and_colons_in_names_are_printed_as_they_are(show):
    shown = show(force_terminal=True, width=120)
    with Display() as display:
        display("test runs/[/bold] :smile:", 1, 2)
    assert "✓ test runs/[/bold] :smile: (" in shown()


def test_a_file_gets_a_line_for_each_phase_and_one_twice_a_minute(show, clock):
    shown = show(width=200)
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


def test_a_run_that_goes_on_is_timed_from_where_it_goes_on(show, clock):
    shown = show(width=200)
    with Display() as display:
        training = TrainingDisplay(display, "mine", 1000)
        for update in range(901, 941):
            training.advanced(update)
            training.updated(update, 2.5, 3000.0)
            clock[0] += 1
        training.validated(940, {"valid_loss": 1.0, "valid_bleu": 12.345})
    assert shown().splitlines() == [
        "train mine: 932 of 1,000 · loss 2.500 · 3,000 tokens/s · about 1 min left",
        "mine: update 940 · valid loss 1.000 · ppl 2.72 · BLEU 12.35",
        "✓ train mine (40 s)",
    ]


def test_what_fails_is_not_ticked_off(show):
    shown = show(width=200)
    display = Display()
    display("encode train", 1, 2)
    with pytest.raises(ZeroDivisionError), display:
        display("encode train", 2 // 0, 2)
    assert shown() == ""


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(1.2, "1.2 s"), (10, "10 s"), (59.4, "59 s"), (300, "5 min"), (1_000_000, "277.8 h")],
)
def test_durations_are_for_people(seconds, said):
    assert duration(seconds) == said
