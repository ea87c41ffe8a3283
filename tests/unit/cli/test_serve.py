"""`shapeshift serve` as a user starts and stops it."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from shapeshift.serve.server import Server

from ..serve.untrained import write_run
from .running import ENVIRONMENT, shapeshift


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    write_run(root / "run")
    return root


@contextmanager
def started(folder, *arguments):
    """Start the command in a process of its own; yield it and what it says first."""
    command = [sys.executable, "-m", "shapeshift", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command, cwd=folder, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        said = ""
        while "serves" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, said
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_serves_until_a_signal(folder, number, status):
    with started(folder, "run", "--set", "decoding.beam=3") as (process, said):
        url = re.match(r"http://127\.0\.0\.1:\d+", said)[0]
        (run,) = httpx2.get(f"{url}/runs").json()
        assert (run["name"], run["beam"]) == ("run", 3)
        answer = httpx2.post(f"{url}/translate", json={"sentences": ["ab cd"]}, timeout=20)
        assert answer.status_code == 200
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == status
        assert said == f"stopped by {number.name}\n"


def test_two_signals_end_it_at_once(folder):
    with started(folder, "run") as (process, said):
        url = re.match(r"http://\S+", said)[0]
        with socket.create_connection(url.removeprefix("http://").split(":")) as slow:
            slow.sendall(
                b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
            )
            httpx2.get(f"{url}/health")
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
        assert process.returncode in (130, 143)
        assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("none",), 1, "none"),
        (("run", "--set", "model.dim=8"), 2, "has no effect"),
        (("run", "--timeout", "inf"), 2, "--timeout"),
        (("run", "--timeout", "nan"), 2, "--timeout"),
        (("run", "--host", "no.such.host.invalid"), 1, "cannot serve at no.such.host.invalid"),
        (("run", "--port", "{taken}"), 1, "port {taken}: Address already in use; give another --p"),
    ],
)
def test_what_cannot_be_served_is_one_line(folder, arguments, status, said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        arguments = (x.format(taken=taken) for x in arguments)
        code, out, err = shapeshift(folder, "serve", *arguments)
    assert (code, out) == (status, "")
    assert said.format(taken=taken) in err
    assert "Traceback" not in err


def test_an_address_of_other_machines_is_announced(folder, monkeypatch):
    monkeypatch.setattr(Server, "serve_until_signal", lambda server: True)
    code, _, err = shapeshift(folder, "serve", "run", "--host", "0.0.0.0", "--port", "0")
    assert code == 0
    assert "no password" in err
