"""Signals end a command in one line, wherever it is; a second one cuts short what it puts in
order."""

import signal

import pytest
import typer

from shapeshift.cli import signals
from shapeshift.cli.demo import demo
from shapeshift.cli.signals import SignalledError, ending_on_signals
from shapeshift.experiments import comparison
from shapeshift.training.stopping import StoppedError, StopSignals


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(signals, "_say", lines.append)
    return lines


@pytest.fixture(autouse=True)
def handlers():
    """The handlers before, which are there again after each test."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def status_of(work, remark="go on"):
    """Return the exit status that `work` ends with, or None if it does not end the command."""
    try:
        with ending_on_signals(remark):
            work()
    except typer.Exit as end:
        return end.exit_code
    return None


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_block_in_order(said, number, status):
    done = []

    def work():
        try:
            signal.raise_signal(number)
        finally:
            done.append("put in order")

    assert status_of(work, "the same command goes on") == status
    assert done == ["put in order"]
    assert said == [f"stopped by {number.name}; the same command goes on"]


def test_a_second_signal_cuts_putting_in_order_short(said):
    done = []

    def work():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            done.append("never")

    assert status_of(work) == 143
    assert done == []
    assert said == ["stopped by SIGTERM; go on"]


def test_no_handler_for_errors_catches_it():
    assert not issubclass(SignalledError, Exception)


def test_training_takes_the_first_signal_itself(said, tmp_path):
    def work():
        with StopSignals() as stop:
            signal.raise_signal(signal.SIGTERM)
        raise StoppedError(stop.received, 7, tmp_path)

    assert status_of(work) == 143
    assert said == [f"stopped by SIGTERM after update 7, saved in {tmp_path}; the same command"
                    " goes on from there"]  # fmt: skip


def test_without_a_signal_nothing_happens(said):
    assert status_of(lambda: None) is None
    with pytest.raises(KeyError):
        status_of(lambda: {}["x"])
    assert said == []


def test_the_demo_lets_the_run_at_work_save(said, monkeypatch, tmp_path):
    def train(config, directory, observer, *, stop, **others):
        with stop:
            signal.raise_signal(signal.SIGINT)
        raise StoppedError(stop.received, 3, directory)

    monkeypatch.setattr(comparison, "train", train)
    with pytest.raises(typer.Exit) as exit_:
        demo(seed=[1], directory=tmp_path, prepared=tmp_path)
    assert exit_.value.exit_code == 130
    assert len(said) == 1
    assert said[0].startswith(f"stopped by SIGINT after update 3, saved in {tmp_path / 'ape'}")
