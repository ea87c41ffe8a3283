"""A real server and a real client on this machine: answers, refusals, slow and hostile clients."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest

from shapeshift.export import ctranslate2
from shapeshift.export.folder import Trained
from shapeshift.run.folder import SUBWORDS, Run
from shapeshift.run.inspection import inspect_run
from shapeshift.serve.limits import Limits
from shapeshift.serve.service import ServedRun, Service

from .untrained import LINES, serving, write_run

JSON = {"content-type": "application/json"}


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(url):
    place = urlsplit(url)
    return closing(socket.create_connection((place.hostname, place.port), 10))


def send_head(connection, length, path="/translate"):
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n".encode()
    )


def status_of(connection):
    """Return the status of an answer, None where the connection is closed without one."""
    line = connection.makefile("rb").readline()
    return int(line.split()[1]) if line else None


def test_translations_are_those_of_translate(client, folders):
    lines = [*LINES, "\x01\u2028"]
    answer = client.post("/translate", json={"sentences": lines}).raise_for_status().json()
    assert [each["run"] for each in answer] == ["ape", "rpe"]
    for each, folder in zip(answer, folders, strict=True):
        texts = [line["candidates"][0]["text"] for line in each["lines"]]
        assert texts == Run(folder).translate(lines)


@pytest.mark.parametrize(
    "kind", ["cross-attention", "encoder self-attention", "decoder self-attention"]
)
def test_attention_is_that_of_inspect(client, folders, kind):
    body = {"sentence": "ab cd ef", "runs": ["rpe"], "kind": kind}
    (got,) = client.post("/attention", json=body).raise_for_status().json()
    inspection = inspect_run(Run(folders[1]), "ab cd ef")
    np.testing.assert_allclose(got["attention"], inspection.attention[kind], atol=1e-4)
    assert got["translation"]["text"] == inspection.translation
    rows = inspection.source if kind == "encoder self-attention" else inspection.target
    columns = inspection.target if kind == "decoder self-attention" else inspection.source
    assert (got["rows"], got["columns"]) == ([*rows], [*columns])


def test_runs_and_health(client):
    runs = client.get("/runs").json()
    assert [(run["name"], run["beam"]) for run in runs] == [("ape", 2), ("rpe", 2)]
    assert "Shaw" in runs[1]["position"] or "shaw" in runs[1]["position"]
    assert client.get("/health").json() == {"status": "ready"}
    assert client.head("/health").status_code == 200


def text(**body):
    return json.dumps(body).encode()


HOSTILE = [
    *((text(sentence=x), 422) for x in ("", " ", "a\nb", "a\0", "\0")),  # for attention
    (text(sentence="a b " * 33), 413),
    (text(sentences=["a"], runs=["none"]), 404),
    (text(sentences=["a"], runs=[]), 422),
    (text(sentences=["a\nb"]), 422),
    (text(sentences=["a\0b"]), 422),  # as `translate` refuses a file
    (text(sentences=["a"] * 65), 413),
    (text(sentences=["a" * 4001]), 413),
    (text(sentences=["a b " * 200]), 413),  # subwords
    (text(sentences=[1, None, {}]), 422),
    (text(sentences=["\ud800"]), 422),  # half a character
    (text(**{"sentences": ["a"], "\ud800" * 100: 1}), 422),
    (b'{"sentences": [NaN, 1e999]}', 422),
    (b'{"sentences": ["a"], "x": ' + b"9" * 5000 + b"}", 400),
    (b"[" * 200_000, 400),
    (b"\xff\xfe\x00", 400),
    (b'{"sentences": ["\xff"]}', 400),
    (b" " * 300_000, 413),
]


@pytest.mark.parametrize(("body", "status"), HOSTILE, ids=lambda x: repr(x)[:40])
def test_what_cannot_be_served_is_one_sentence(client, body, status):
    path = "/attention" if b'"sentence"' in body else "/translate"
    response = client.post(path, content=body, headers=JSON)
    assert response.status_code == status
    error = response.json()["error"]
    assert error
    assert "\n" not in error
    assert len(error) < 600
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (
            "/attention",
            text(sentence=" "),
            "sentence: expected one line of text, got an empty text",
        ),
        ("/attention", text(sentence="a\n"), "sentence: expected one line of text, without a NUL"),
        ("/translate", b"{", "the body is not JSON in UTF-8, or nested too deeply"),
        ("/translate", b'{"a": "\xff"}', "the body is not JSON in UTF-8, or nested too deeply"),
    ],
)
def test_it_says_what_is_wrong(client, path, body, error):
    assert client.post(path, content=body, headers=JSON).json() == {"error": error}


def test_other_sites_cannot_use_it(client):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "evil.example:80@127.0.0.1"):
        response = client.get("/runs", headers={"host": host})
        assert response.status_code == 400
    for host in ("LOCALHOST:1", "127.0.0.1", "[::1]:8000"):
        assert client.get("/runs", headers={"host": host}).status_code == 200
    # What a page of another origin may send without asking first is refused.
    plain = {"content-type": "text/plain", "origin": "https://evil.example"}
    response = client.post("/translate", content=text(sentences=["a"]), headers=plain)
    assert response.status_code == 422
    assert "Content-Type: application/json" in response.json()["error"]
    assert client.post("/translate", content=text(sentences=["a"])).status_code == 422
    assert client.options("/translate", headers=plain).status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_the_page_loads_from_here_alone(client):
    for path in ("/", "/page.js", "/page.css"):
        response = client.get(path)
        assert response.status_code == 200
        assert "http" not in response.text.replace("http-equiv", "")
        assert "default-src 'self'" in response.headers["content-security-policy"]


def test_unknown_paths_and_methods(client):
    assert client.get("/none").json() == {"error": "Not Found"}
    response = client.delete("/translate")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    client.get("/metrics")
    before = client.get("/metrics").text.count("\n")
    for n in range(20):  # paths are no labels
        client.get(f"/none/{n}")
    assert client.get("/metrics").text.count("\n") == before


class Held:
    """A server of one run whose translating waits for `go`."""

    def __init__(self, service, url, monkeypatch):
        self.service, self.url = service, url
        self.go, self.began = threading.Event(), threading.Event()
        self.translated, self.pool = [], ThreadPoolExecutor(4)
        run = service.runs["ape"]
        compute = run.compute

        def slowly(task, sentences):
            self.began.set()
            assert self.go.wait(20)
            self.translated += sentences
            return compute(task, sentences)

        monkeypatch.setattr(run, "compute", slowly)

    def ask(self, *sentences):
        """Send a request from a thread; return its response, which is to come."""
        body = {"sentences": sentences}
        return self.pool.submit(httpx2.post, f"{self.url}/translate", json=body, timeout=20)

    def ask_and_wait(self, *sentences):
        """As `ask`; return when the sentences are being translated."""
        response = self.ask(*sentences)
        assert self.began.wait(10)
        return response


@pytest.fixture
def held(request, folders, monkeypatch):
    limits = Limits(**getattr(request, "param", {}))
    with serving(folders[:1], limits) as (service, url):
        held = Held(service, url, monkeypatch)
        yield held
        held.go.set()


@pytest.mark.parametrize("held", [{"max_waiting": 4}], indirect=True)
def test_a_queue_without_room_for_all_is_429_and_what_waits_is_served(held):
    requests = [held.ask_and_wait("a"), held.ask("b", "c", "d")]
    wait_until(lambda: held.service.batcher.num_waiting() == 3)
    refused = held.ask("e", "f").result(20)
    assert (refused.status_code, int(refused.headers["retry-after"])) == (429, 1)
    held.go.set()
    assert [each.result(20).status_code for each in requests] == [200, 200]
    assert held.translated == ["a", "b", "c", "d"]


@pytest.mark.parametrize("held", [{"request_s": 1.5}], indirect=True)
def test_what_takes_too_long_is_503_and_what_has_not_begun_is_dropped(held):
    for response in [held.ask_and_wait("a"), held.ask("b")]:
        assert response.result(20).status_code == 503
        assert int(response.result().headers["retry-after"]) >= 1
    held.go.set()
    wait_until(held.service.batcher.is_idle)
    assert held.translated == ["a"]


@pytest.mark.parametrize("held", [{"max_waiting": 10}], indirect=True)
def test_the_work_of_a_client_that_goes_away_is_dropped_and_leaves_room(held):
    first = held.ask_and_wait("a")
    body = text(sentences=["b"] * 10)
    with connect(held.url) as connection:
        send_head(connection, len(body))
        connection.sendall(body)
        wait_until(lambda: held.service.batcher.num_waiting() == 10)
    wait_until(lambda: held.service.batcher.num_waiting() == 0)
    last = held.ask("c")
    wait_until(lambda: last.done() or held.service.batcher.num_waiting() == 1)
    held.go.set()
    assert [each.result(20).status_code for each in (first, last)] == [200, 200]
    assert held.translated == ["a", "c"]


def test_after_a_signal_the_queue_is_finished_and_new_work_refused(held):
    with httpx2.Client(base_url=held.url) as other:
        requests = [held.ask_and_wait("a"), held.ask("b")]
        wait_until(lambda: held.service.batcher.num_waiting() == 1)
        held.service.server.handle_exit(15, None)
        for refused in (other.get("/health"), other.post("/translate", json={"sentences": ["c"]})):
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
    held.go.set()
    assert [each.result(20).status_code for each in requests] == [200, 200]
    wait_until(lambda: not held.service.server.thread.is_alive())


@pytest.mark.parametrize("held", [{"request_s": 0.3}], indirect=True)
def test_a_batch_that_does_not_end_does_not_keep_the_server(held):
    response = held.ask_and_wait("a")
    held.service.server.handle_exit(15, None)
    assert response.result(20).status_code == 503
    wait_until(lambda: not held.service.server.thread.is_alive())
    assert not held.service.batcher.is_idle()


@pytest.fixture(scope="module")
def impatient(folders):
    with serving(folders[:1], Limits(arrival_s=0.3)) as (_, url):
        yield url


def test_a_body_that_does_not_come_is_408(impatient):
    with connect(impatient) as connection:
        send_head(connection, 100)
        connection.sendall(b"{")
        assert status_of(connection) == 408


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_head_that_does_not_come_closes_the_connection(impatient, before):
    got, deadline = b"", time.monotonic() + 5
    with connect(impatient) as connection, suppress(ConnectionError):
        connection.sendall(before)
        connection.settimeout(0.05)
        while time.monotonic() < deadline:
            connection.sendall(b"G")  # a byte now and then does not help
            with suppress(TimeoutError):
                if not (more := connection.recv(1000)):
                    break
                got += more
    assert time.monotonic() < deadline
    assert (b" 200 " in got) == bool(before)


def test_a_body_of_a_gigabyte_is_not_read(impatient):
    with connect(impatient) as connection:
        send_head(connection, 1 << 30)
        with suppress(ConnectionError):
            for _ in range(2000):
                connection.sendall(b" " * 10_000)
        with suppress(ConnectionError):
            assert status_of(connection) in (413, None)
    assert httpx2.get(f"{impatient}/health").status_code == 200


def test_a_client_that_does_not_read_is_left(folders):
    with serving(folders[:1], Limits(arrival_s=1)) as (service, url), connect(url) as connection:
        connection.settimeout(0.2)
        with suppress(TimeoutError, ConnectionError):
            for _ in range(20_000):
                connection.sendall(b"GET /look.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(lambda: not service.server.server_state.connections)


def test_no_more_connections_than_may_be(folders):
    with serving(folders[:1], Limits(max_connections=3)) as (_, url):
        several = [socket.create_connection(urlsplit(url).netloc.split(":"), 10) for _ in range(3)]
        with connect(url) as one_more:
            assert status_of(one_more) == 503
        refused = []
        for _ in range(20):  # clients that have sent a request when the answer comes
            response = httpx2.get(f"{url}/health")
            refused.append((response.status_code, "too many" in response.json()["error"]))
        assert refused == [(503, True)] * 20
        for connection in several:
            connection.close()
        wait_until(lambda: httpx2.get(f"{url}/health").status_code == 200)


def test_runs_of_one_name_have_their_paths_for_names(folders, tmp_path):
    other = write_run(tmp_path / "ape")
    service = Service([ServedRun(folders[0]), ServedRun(other)], Limits())
    assert [*service.runs] == [str(folders[0]), str(other)]


@pytest.mark.long
def test_an_exported_model_next_to_its_run(tmp_path):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    folder = write_run(tmp_path / "run", "rpe", decoding={"beam": 1, "max_length_b": 3})
    run = Run(folder)
    model, shape, position = run.model(), run.config.model, run.config.position
    trained = Trained(model, shape, position, run.subwords(), folder / SUBWORDS, (8, 8))
    ctranslate2.export(trained, folder / "ctranslate2")
    with serving([folder, folder / "ctranslate2"]) as (_, url):
        runs = httpx2.get(f"{url}/runs").json()
        expected = [("run", "torch"), ("run/ctranslate2", "ctranslate2")]
        assert [(each["name"], each["engine"]) for each in runs] == expected
        body = {"sentence": "ab cd ef"}
        ours, exported = httpx2.post(f"{url}/attention", json=body, timeout=20).json()
        assert ours["translation"]["text"] == exported["translation"]["text"]
        assert ours["attention"] is not None
        assert exported["attention"] is None


@pytest.mark.parametrize(
    ("position", "decoding", "most"),
    [
        ("ape", {}, 256),
        ("ape", {"max_source_length": 300}, 300),
        ({"parts": [{"kind": "learned", "num_positions": 20}]}, {}, 19),
    ],
)
def test_the_longest_sentence_is_that_of_the_run(tmp_path, position, decoding, most):
    run = ServedRun(write_run(tmp_path / "run", position, decoding={"beam": 1, **decoding}))
    service = Service([run], Limits())
    assert service.info()[0].max_subwords == most


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # without Host
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 200_000,
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01" + b"\0" * 5_000_000,  # TLS, and more than the server reads
    ],
    ids=lambda sent: repr(sent[:30]),
)
def test_what_is_not_http_is_refused_in_json(client, served, sent):
    with connect(served[1]) as connection:
        with suppress(ConnectionError, TimeoutError):
            connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        assert response.status == 400
        assert response.headers.get_content_type() == "application/json"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert json.loads(response.read())["error"]
    assert client.get("/health").status_code == 200
