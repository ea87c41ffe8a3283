"""Serve runs that were never trained to good clients and to hostile ones: some seconds, or in the
soak test ten minutes.

Good clients compare each translation with that of `Run.translate`. Hostile ones send bytes that are
not HTTP or not JSON, bodies that are too long, too deep or cut short, too many sentences at once,
or they go away.
"""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from shapeshift.run.folder import Run

from ..unit.serve.untrained import write_run

ALLOWED = {None, 200, 400, 404, 405, 408, 413, 422, 429, 503}
INVARIANT = "decoding.batch_invariant=true"
"""Translations are compared bit by bit, whatever shares their batch."""
GROWTH = 1.05
"""Of memory, from the first quarter after the start to the last one."""


class Load:
    """Clients of a server.

    Args:
        url: of the server.
        expected: sentence → its translation by each run.
    """

    def __init__(self, url: str, expected: dict[str, list[str]]):
        self.url, self.expected = url, expected
        self.statuses: Counter[int | None] = Counter()
        self.num_translated = 0
        self.errors: list[str] = []
        self.over = threading.Event()

    def run(self, client, number: int) -> None:
        """Let a client send requests until it is over."""
        rng = random.Random(f"{client.__name__} {number}")
        with httpx2.Client(base_url=self.url, timeout=60) as http:
            while not self.over.is_set():
                try:
                    self.statuses[client(http, rng)] += 1
                except (httpx2.NetworkError, httpx2.RemoteProtocolError, OSError):
                    pass  # the server closes a connection while much is still being sent
                except Exception as error:
                    self.errors.append(repr(error))

    def good(self, http, rng: random.Random) -> int:
        """Ask for translations, or for attention, and check them."""
        if rng.random() < 0.1:
            body = {"sentence": rng.choice([x for x in self.expected if x.strip()])}
            return http.post("/attention", json=body).status_code
        sentences = rng.choices([*self.expected], k=rng.randint(1, 8))
        response = http.post("/translate", json={"sentences": sentences})
        if response.status_code == 200:
            for place, result in enumerate(response.json()):
                texts = [line["candidates"][0]["text"] for line in result["lines"]]
                assert texts == [self.expected[x][place] for x in sentences]
                self.num_translated += len(texts)
        elif response.status_code in (429, 503):
            assert response.headers["retry-after"]
            time.sleep(0.1)
        return response.status_code

    def hostile(self, http, rng: random.Random) -> int | None:
        """Send a request that is wrong, or none."""
        garbage = rng.randbytes(rng.choice((1, 100, 300_000)))
        body = rng.choice(
            (
                garbage,
                b"[" * rng.randint(1, 200_000),
                b'{"sentences": ["' + b"a b " * rng.randint(1, 2000) + b'"]}',
                json.dumps({"sentences": ["ab cd ef"] * 64}).encode(),
                json.dumps({"sentences": ["a"], "runs": [garbage.hex()[:999]]}).encode(),
            )
        )
        time.sleep(0.01)
        if rng.random() < 0.3:
            return self.raw(body, garbage, rng)
        headers = {"content-type": rng.choice(("application/json", "text/plain"))}
        return http.post("/translate", content=body, headers=headers).status_code

    def raw(self, body: bytes, garbage: bytes, rng: random.Random) -> int | None:
        """Send half a request, or none, and go away at some moment."""
        place = urlsplit(self.url)
        with socket.create_connection((place.hostname, place.port), 5) as connection:
            head = (
                "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {rng.choice((len(body), 10**9, -1))}\r\n\r\n"
            ).encode()
            sent = rng.choice((garbage, head, head[: rng.randint(1, 80)], head + body, head * 5))
            connection.sendall(sent)
            connection.settimeout(rng.choice((0.001, 0.05, 1.0)))
            with suppress(TimeoutError):
                match = re.match(rb"HTTP/1.1 (\d+)", connection.recv(100))
                return int(match[1]) if match else None
        return None


def gauges(url: str) -> tuple[float, float]:
    """Return the server's memory in MB and the number of its open files."""
    text = httpx2.get(f"{url}/metrics", timeout=60).text
    numbers = [
        float(re.search(rf"^process_{name} (.*)$", text, re.MULTILINE)[1])
        for name in ("resident_memory_bytes", "open_fds")
    ]
    return numbers[0] / 1e6, numbers[1]


@pytest.mark.parametrize("seconds", [5, pytest.param(600, marks=pytest.mark.soak)])
def test_nothing_that_clients_send_harms_the_server(tmp_path: Path, seconds: int) -> None:
    folders = [write_run(tmp_path / name, name) for name in ("ape", "rpe")]
    rng = random.Random(1)
    words = [a + b for a in "abcdef" for b in "abcdef."]
    sentences = [" ".join(rng.choices(words, k=rng.randint(0, 20))) for _ in range(100)]
    translations = [Run(x, [INVARIANT]).translate(sentences) for x in folders]
    expected = {x: [*each] for x, *each in zip(sentences, *translations, strict=True)}
    command = [sys.executable, "-m", "shapeshift", "serve", *map(str, folders), "--port", "0"]
    command += ["--set", INVARIANT]
    said_path = tmp_path / "stderr"
    with said_path.open("w") as said:
        server = subprocess.Popen(command, stderr=said, start_new_session=True)
    try:
        url = None
        while url is None:
            assert server.poll() is None, said_path.read_text()
            time.sleep(0.1)
            url = re.search(r"http://\S+", said_path.read_text())
        check_under_load(Load(url[0], expected), seconds)
        assert server.poll() is None, "it ended early"
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 143
    finally:
        server.kill()
        server.wait()
    assert said_path.read_text().splitlines()[1:] == ["stopped by SIGTERM"]


def check_under_load(load: Load, seconds: float) -> None:
    clients = [load.good] * 3 + [load.hostile] * 2
    threads = [
        threading.Thread(target=load.run, args=(client, number))
        for number, client in enumerate(clients)
    ]
    _, files_before = gauges(load.url)
    for thread in threads:
        thread.start()
    began, memory = time.monotonic(), []
    try:
        while time.monotonic() - began < seconds:
            time.sleep(0.5)
            memory.append(gauges(load.url)[0])
    finally:
        load.over.set()
        for thread in threads:
            thread.join(90)
    time.sleep(1)
    measured = memory[len(memory) // 4 :]  # after its start
    quarter = max(1, len(measured) // 4)
    early, late = (statistics.median(x) for x in (measured[:quarter], measured[-quarter:]))
    assert late <= GROWTH * early, "memory grew"
    assert gauges(load.url)[1] <= files_before + 5, "open files grew"
    assert load.statuses.keys() <= ALLOWED
    assert load.errors == []
    assert load.num_translated > 0
