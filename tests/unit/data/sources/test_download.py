"""Downloads from a server on this machine that misbehaves as a test asks for."""

import hashlib
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shapeshift.data.sources import download as downloads
from shapeshift.data.sources.download import download
from shapeshift.errors import ShapeshiftError

BODY = bytes(range(256)) * 400
SHA = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `BODY`; breaks off after `cuts[n]` bytes of the n-th answer, or answers with the
    status and headers `refusals[n]`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.kind, self.cuts, self.refusals, self.num_asked = "application/gzip", [], [], 0

    def url(self, name="x.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server = self.server
        server.num_asked += 1
        status, headers, body = 200, {"Content-Type": server.kind}, BODY
        if server.refusals:
            status, headers = server.refusals.pop(0)
            body = b""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0) if server.cuts else None])
        self.close_connection = True

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(server, path, sha256=None, **options):
    return download(server.url(), path, sha256, wait_s=0, **options)


def test_a_file_arrives_whole(server, tmp_path):
    seen = []
    path = get(server, tmp_path / "new" / "x.bin", on_progress=lambda *x: seen.append(x))
    assert path.read_bytes() == BODY
    assert seen[-1] == ("download x.bin", len(BODY), len(BODY))
    assert not list(path.parent.glob(".*partial*"))
    get(server, path)
    assert server.num_asked == 1  # what is there is not fetched again


def test_a_cut_connection_begins_anew(server, tmp_path):
    server.cuts = [10_000, 5_000]
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY
    assert server.num_asked == 3
    server.cuts = [10_000]
    with pytest.raises(ShapeshiftError, match=r"10,000 of 102,400 bytes came"):
        get(server, tmp_path / "y.bin", attempts=1)
    assert not (tmp_path / "y.bin").exists()


@pytest.mark.parametrize(
    ("hashes", "message"),
    [
        ({"sha256": "0" * 64}, f"the SHA-256 is {SHA}, expected 0000"),
        ({"md5": "0" * 32}, f"the MD5 is {hashlib.md5(BODY).hexdigest()}, expected 0000"),
    ],
)
def test_a_wrong_hash_leaves_no_file(hashes, message, server, tmp_path):
    with pytest.raises(ShapeshiftError, match=message):
        get(server, tmp_path / "x.bin", **hashes)
    assert [path.name for path in tmp_path.iterdir()] == [".x.bin.lock"]


def test_a_file_that_is_there_is_compared_and_left_alone(server, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"by hand")
    with pytest.raises(ShapeshiftError, match=r"x\.bin: the SHA-256 is"):
        get(server, tmp_path / "x.bin", SHA)
    assert (tmp_path / "x.bin").read_bytes() == b"by hand"
    assert server.num_asked == 0


def test_a_missing_file_is_reported_at_once(server, tmp_path):
    server.refusals = [(404, {})]
    with pytest.raises(ShapeshiftError, match=r"answered 404 Not Found; put the file at .*x\.bin"):
        get(server, tmp_path / "x.bin")
    assert server.num_asked == 1


def test_a_web_page_is_not_taken_for_the_file(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(ShapeshiftError, match="answered with a web page instead of the file"):
        get(server, tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("url", "message"),
    [(url, "expected an http or https URL") for url in ("file:///x", "ftp://example.org/x", "x")]
    + [(f"http://{x}", "cannot fetch") for x in ("127.0.0.1:x/y", "[::1/y", "127.0.0.1/\u00e4")],
)
def test_only_what_is_on_the_web_is_fetched(url, message, tmp_path):
    with pytest.raises(ShapeshiftError, match=message):
        download(url, tmp_path / "x", attempts=1)


@pytest.fixture
def waits(monkeypatch):
    """How long it waited, without waiting."""
    waits = []
    monkeypatch.setattr(downloads.time, "sleep", waits.append)
    return waits


def test_a_busy_server_is_asked_again(server, tmp_path, waits):
    server.refusals = [(503, {}), (429, {}), (502, {})]
    assert download(server.url(), tmp_path / "x.bin", SHA).read_bytes() == BODY
    assert waits == [2, 4, 8]


def test_a_server_that_stays_busy_is_given_up(server, tmp_path, waits):
    server.refusals = [(503, {})] * 4
    with pytest.raises(
        ShapeshiftError, match=r"\(answered 503 Service Unavailable\); run it again"
    ):
        download(server.url(), tmp_path / "x.bin")
    assert waits == [2, 4, 8]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "data:,x"])
def test_a_redirect_to_another_scheme_is_refused(target, server, tmp_path):
    server.refusals = [(302, {"Location": target})]
    with pytest.raises(ShapeshiftError, match=r"[Rr]edirect"):
        get(server, tmp_path / "x.bin")
    assert server.num_asked == 1
    assert not (tmp_path / "x.bin").exists()


def test_https_is_not_left_for_http(server, tmp_path, monkeypatch):
    urlopen = urllib.request.urlopen
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: urlopen(server.url()))
    with pytest.raises(ShapeshiftError, match=r"redirects to 'http://.*expected https"):
        download("https://example.org/x", tmp_path / "x.bin")
    assert not (tmp_path / "x.bin").exists()


def test_redirects_within_the_scheme_are_followed_but_not_forever(server, tmp_path):
    server.refusals = [(302, {"Location": "/y"}), (307, {"Location": server.url("z")})]
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY
    server.refusals = [(302, {"Location": "/y"})] * 50
    with pytest.raises(ShapeshiftError, match=r"answered 302.*infinite loop") as error:
        get(server, tmp_path / "y.bin")
    assert "\n" not in str(error.value)


def test_what_cannot_be_written_is_one_sentence(server, tmp_path):
    (tmp_path / "x.bin").mkdir()
    with pytest.raises(ShapeshiftError, match="cannot be written: Is a directory"):
        get(server, tmp_path / "x.bin")
    (tmp_path / "file").write_text("")
    with pytest.raises(ShapeshiftError, match="cannot be written"):
        get(server, tmp_path / "file" / "x.bin")
