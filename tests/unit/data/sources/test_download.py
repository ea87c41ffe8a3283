"""Downloads from a server on this machine that misbehaves as a test asks for."""

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shapeshift.data.sources import download as downloads
from shapeshift.data.sources.download import download
from shapeshift.errors import ShapeshiftError

BODY = bytes(range(256)) * 400
SHA = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `body`; breaks off after `cuts[n]` bytes of the n-th answer, or answers with the
    status and headers `refusals[n]`; `headers` take the place of those of 200 and 206."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.tag, self.ranges = BODY, '"one"', True
        self.kind, self.cuts, self.asked = "application/gzip", [], []
        self.refusals, self.headers = [], {}

    def url(self, name="x.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.refusals:
            status, headers = server.refusals.pop(0)
            self.send_response(status)
            for name, value in {"Content-Length": "0", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            return
        begin = 0
        same = self.headers.get("If-Range") == server.tag
        if wanted and server.ranges and same:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
        part = server.body[begin:]
        self.send_response(206 if begin else 200)
        end = len(server.body)
        headers = {
            "Content-Type": server.kind,
            "Content-Length": str(len(part)),
            "ETag": server.tag,
            "Content-Range": f"bytes {begin}-{end - 1}/{end}" if begin else None,
        } | server.headers
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        cut = server.cuts.pop(0) if server.cuts else None
        self.wfile.write(part[:cut])
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


def break_off(server, path):
    """Fetch the first 10,000 bytes."""
    server.cuts = [10_000]
    with pytest.raises(ShapeshiftError, match=r"the next try continues after 10,000 bytes"):
        get(server, path, attempts=1)


def test_a_file_arrives_whole(server, tmp_path):
    seen = []
    path = get(server, tmp_path / "new" / "x.bin", on_progress=lambda *x: seen.append(x))
    assert path.read_bytes() == BODY
    assert seen[-1] == ("download x.bin", len(BODY), len(BODY))
    assert not list(path.parent.glob(".*partial*"))
    get(server, path)
    assert server.asked == [None]  # what is there is not fetched again


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [10_000, 5_000]
    path = get(server, tmp_path / "x.bin", SHA)
    assert path.read_bytes() == BODY
    assert server.asked == [None, "bytes=10000-", "bytes=15000-"]


def test_a_server_without_ranges_begins_anew(server, tmp_path):
    server.ranges, server.cuts = False, [10_000]
    assert get(server, tmp_path / "x.bin", SHA).read_bytes() == BODY


def test_a_file_that_changed_meanwhile_is_not_put_together_of_two(server, tmp_path):
    break_off(server, tmp_path / "x.bin")
    server.body, server.tag = BODY[::-1], '"two"'
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY[::-1]


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
    assert server.asked == []


def test_a_missing_file_is_reported_at_once(server, tmp_path):
    server.refusals = [(404, {})]
    with pytest.raises(ShapeshiftError, match=r"answered 404 Not Found; put the file at .*x\.bin"):
        get(server, tmp_path / "x.bin")
    assert len(server.asked) == 1


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


@pytest.mark.parametrize(
    ("cut", "name", "value"),
    [(0, "Content-Length", "200000")]
    + [
        (10_000, "Content-Range", value)
        for value in ("bytes x-y/z", "bytes 5-9/10", "bytes 10001-102399/102400", None)
    ],
)
def test_a_header_that_cannot_be_true_is_one_sentence(cut, name, value, server, tmp_path):
    if cut:
        break_off(server, tmp_path / "x.bin")
    server.headers = {name: value}
    with pytest.raises(ShapeshiftError, match=r"the server sent another part|bytes came\)"):
        get(server, tmp_path / "x.bin", attempts=1)
    server.headers = {}
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY


def test_a_part_of_another_version_is_not_appended(server, tmp_path):
    break_off(server, tmp_path / "x.bin")
    server.headers, server.body = {"ETag": '"two"'}, BODY[::-1]  # although it was asked for "one"
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY[::-1]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirect_to_another_scheme_is_refused(target, server, tmp_path):
    server.refusals = [(302, {"Location": target})]
    with pytest.raises(ShapeshiftError, match=r"[Rr]edirect"):
        get(server, tmp_path / "x.bin")
    assert len(server.asked) == 1
    assert not (tmp_path / "x.bin").exists()


def test_https_is_not_left_for_http():
    request = downloads.urllib.request.Request("https://example.org/x")
    with pytest.raises(ShapeshiftError, match="is not followed: expected https"):
        downloads._Redirects().redirect_request(request, None, 302, "", {}, "http://example.org/x")


def test_redirects_within_the_scheme_are_followed_but_not_forever(server, tmp_path):
    server.refusals = [(302, {"Location": "/y"}), (307, {"Location": server.url("z")})]
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY
    server.refusals = [(302, {"Location": "/y"})] * 50
    with pytest.raises(ShapeshiftError, match=r"answered 302.*infinite loop") as error:
        get(server, tmp_path / "y.bin")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [".x.bin.partial", ".x.bin.partial.tag"])
def test_links_in_the_place_of_our_files_are_not_followed(name, server, tmp_path):
    (tmp_path / "precious").write_text("as it was")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "precious")
    get(server, folder / "x.bin")
    assert (tmp_path / "precious").read_text() == "as it was"


def test_what_cannot_be_written_is_one_sentence(server, tmp_path):
    (tmp_path / "x.bin").mkdir()
    with pytest.raises(ShapeshiftError, match="cannot be written: Is a directory"):
        get(server, tmp_path / "x.bin")
    (tmp_path / "file").write_text("")
    with pytest.raises(ShapeshiftError, match="cannot be written"):
        get(server, tmp_path / "file" / "x.bin")
