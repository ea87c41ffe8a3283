"""Signals end a command in one line, wherever it is; a second one cuts short what it puts in
order."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import typer

from shapeshift.cli import signals
from shapeshift.cli.signals import ending_on_signals

from .running import ENVIRONMENT, python


@pytest.fixture
def said(monkeypatch):
    lines = []
    monkeypatch.setattr(signals, "notice", lines.append)
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


def test_an_ignored_signal_stays_ignored(said):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert status_of(lambda: signal.raise_signal(signal.SIGINT)) is None
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_block_in_order(said, number, status):
    done = []

    def work():
        try:
            signal.raise_signal(number)
        except Exception:  # no handler for errors catches it
            pytest.fail("it has been caught")
        finally:
            done.append("put in order")

    assert status_of(work, "the same command goes on") == status
    assert done == ["put in order"]
    assert said == [f"stopped by {number.name}; the same command goes on"]


def test_a_terminal_that_closes_ends_a_command_once(said):
    """The kernel and the shell may each send a SIGHUP."""
    done = []

    def ours(number, frame):
        pytest.fail("nothing was done about it")

    def work():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            done.append("put in order")

    before = signal.signal(signal.SIGHUP, ours)
    try:
        assert status_of(work) == 143
        assert signal.getsignal(signal.SIGHUP) is ours
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (said, done) == (["stopped by SIGTERM; go on"], ["put in order"])


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


GREEDY = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))
except BaseException:
    pass
"""
IMPORTING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from shapeshift.cli.signals import ending_on_signals
with ending_on_signals('go on'):
    import greedy
    print('swallowed')
"""


def test_a_signal_while_a_module_is_imported_is_not_swallowed(tmp_path):
    (tmp_path / "greedy.py").write_text(GREEDY, encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = python("-c", IMPORTING, env=ENVIRONMENT | {"PYTHONPATH": paths})
    assert (done.returncode, done.stdout) == (130, ""), done.stderr


def test_ctrl_c_ends_a_command_wherever_it_starts():
    """Before Python listens, SIGINT ends the process itself (-2 here, 130 in a shell)."""
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    for delay_s in (0.05, 0.4, 1.1):
        process = subprocess.Popen(
            [sys.executable, "-m", "shapeshift", "positions"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **listening,
        )
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        if "Could not import runpy" in stderr or "Fatal Python error: init_" in stderr:
            continue  # Python itself was starting, on a busy machine
        assert process.returncode in (130, -2) or "alibi" in stdout, stderr
        assert process.returncode == -2 or "Traceback" not in stderr


DEAF = """
import hashlib, os, signal, sys, threading, time, typer
from shapeshift.cli.signals import ending_on_signals
def send():
    for _ in range(int(sys.argv[1])):
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=send, daemon=True).start()
try:
    with ending_on_signals():
        hashlib.pbkdf2_hmac("sha256", b"", b"", int(sys.argv[2]))  # in C, which hears no handler
        print("computed", flush=True)
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


def test_one_signal_waits_for_a_computation_that_python_cannot_end_and_a_second_does_not():
    for num_signals, num_rounds in ((1, 5 * 10**6), (2, 2 * 10**9)):  # some seconds, or for hours
        done = python("-c", DEAF, num_signals, num_rounds, timeout=60)
        assert (done.returncode, done.stdout) == (143, ""), done.stderr
        assert ("stopped by SIGTERM" in done.stderr) == (num_signals == 1)


def test_no_watch_is_left_behind():
    before = threading.active_count()
    watched = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(watched)
    for _ in range(3):
        status_of(lambda: signal.raise_signal(signal.SIGTERM))
    assert signal.set_wakeup_fd(watched) == watched
    deadline = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
