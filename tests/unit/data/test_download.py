"""Downloads from a server on this machine that can be told to misbehave; archives that are unpacked
or refused."""

import hashlib
import io
import re
import tarfile
import threading
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shapeshift.data import download as downloads
from shapeshift.data.download import download, is_archive, unpack
from shapeshift.errors import ShapeshiftError

BODY = bytes(range(256)) * 400
SHA = hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `body`; breaks off after `cuts[n]` bytes of the n-th answer."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.tag, self.ranges, self.status = BODY, '"one"', True, 200
        self.kind, self.cuts, self.asked = "application/gzip", [], []

    def url(self, name="x.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        begin = 0
        same = self.headers.get("If-Range") == server.tag
        if wanted and server.ranges and same:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
        part = server.body[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Type", server.kind)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", server.tag)
        if begin:
            end = len(server.body)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{end}")
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


def test_a_file_arrives_whole_and_its_hash_is_pinned(server, tmp_path):
    seen = []
    path = get(server, tmp_path / "new" / "x.bin", on_progress=lambda *x: seen.append(x))
    assert path.read_bytes() == BODY
    assert (tmp_path / "new" / "x.bin.sha256").read_text() == f"{SHA}  x.bin\n"
    assert seen[-1] == ("download x.bin", len(BODY), len(BODY))
    assert not list(path.parent.glob(".*partial*"))
    get(server, path)
    assert server.asked == [None]  # what is there is not fetched again


def test_a_cut_connection_is_taken_up_where_it_broke(server, tmp_path):
    server.cuts = [10_000, 5_000]
    path = get(server, tmp_path / "x.bin", SHA)
    assert path.read_bytes() == BODY
    assert server.asked == [None, "bytes=10000-", "bytes=15000-"]


def test_a_later_call_goes_on_after_one_that_gave_up(server, tmp_path):
    server.cuts = [10_000]
    with pytest.raises(ShapeshiftError, match=r"10,000 bytes are kept and taken up again"):
        get(server, tmp_path / "x.bin", attempts=1)
    assert not (tmp_path / "x.bin").exists()
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY
    assert server.asked == [None, "bytes=10000-"]


def test_a_server_without_ranges_begins_anew(server, tmp_path):
    server.ranges, server.cuts = False, [10_000]
    assert get(server, tmp_path / "x.bin", SHA).read_bytes() == BODY


def test_a_file_that_changed_meanwhile_is_not_put_together_of_two(server, tmp_path):
    server.cuts = [10_000]
    with pytest.raises(ShapeshiftError, match="taken up again"):
        get(server, tmp_path / "x.bin", attempts=1)
    server.body, server.tag = BODY[::-1], '"two"'
    assert get(server, tmp_path / "x.bin").read_bytes() == BODY[::-1]


def test_a_server_that_always_breaks_off_is_given_up(server, tmp_path):
    server.cuts = [0] * 10
    with pytest.raises(ShapeshiftError, match=r"cannot fetch http.*0 of 102,400 bytes came"):
        get(server, tmp_path / "x.bin", attempts=3)
    assert len(server.asked) == 3


def test_a_wrong_hash_leaves_no_file(server, tmp_path):
    with pytest.raises(ShapeshiftError, match=f"the SHA-256 is {SHA}, expected 0000"):
        get(server, tmp_path / "x.bin", "0" * 64)
    assert [path.name for path in tmp_path.iterdir()] == [".x.bin.lock"]


def test_the_first_download_binds_later_ones(server, tmp_path):
    get(server, tmp_path / "x.bin").unlink()
    server.body = b"other"
    with pytest.raises(ShapeshiftError, match=f"expected {SHA}"):
        get(server, tmp_path / "x.bin")


def test_a_file_that_was_put_there_is_checked(server, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"by hand")
    with pytest.raises(ShapeshiftError, match=r"x\.bin: the SHA-256 is"):
        get(server, tmp_path / "x.bin", SHA)
    assert (tmp_path / "x.bin").read_bytes() == b"by hand"
    assert server.asked == []


def test_what_is_not_there_is_told_at_once(server, tmp_path):
    server.status = 404
    with pytest.raises(ShapeshiftError, match=r"answered 404 Not Found; put the file at .*x\.bin"):
        get(server, tmp_path / "x.bin")
    assert len(server.asked) == 1


def test_a_web_page_is_not_taken_for_the_file(server, tmp_path):
    server.kind = "text/html; charset=utf-8"
    with pytest.raises(ShapeshiftError, match="answered with a web page instead of the file"):
        get(server, tmp_path / "x.bin")


def test_without_a_network_the_remedy_is_named(server, tmp_path):
    url = server.url()
    server.server_close()
    with pytest.raises(ShapeshiftError, match=r"cannot fetch http.*when the network is there"):
        download(url, tmp_path / "x.bin", attempts=2, wait_s=0)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/x", "x.tar"])
def test_only_the_web_is_asked(url, tmp_path):
    with pytest.raises(ShapeshiftError, match="expected an http or https URL"):
        download(url, tmp_path / "x")


def test_a_full_disk_is_told_before_it_is_full(server, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")(50_000_000)
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ShapeshiftError, match=r"x\.bin needs 0\.00 GB more, but 0\.05 GB are free"):
        get(server, tmp_path / "x.bin")


def archive(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.type, member.linkname = tarfile.SYMTYPE, content
                tar.addfile(member)
    return path


def test_an_archive_is_unpacked_beside_what_is_there(tmp_path):
    path = archive(tmp_path / "x.tar.gz", {"a.en": b"one\n", "sub/b.en": b"two\n"})
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "old").write_text("old")
    assert is_archive(path)
    assert unpack(path, tmp_path) == [tmp_path / "a.en", tmp_path / "sub" / "b.en"]
    assert (tmp_path / "sub" / "b.en").read_bytes() == b"two\n"
    assert (tmp_path / "sub" / "old").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "content"),
    [("../evil", b"x"), ("/tmp/evil", b"x"), ("a/../../evil", b"x"), ("link", "/etc/passwd")],
)
def test_a_member_that_leads_out_of_the_folder_is_refused(name, content, tmp_path):
    path = archive(tmp_path / "x.tar", {"good": b"x", name: content}, "w")
    with pytest.raises(ShapeshiftError, match="is not a plain file inside of the folder"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_a_damaged_archive_leaves_nothing(tmp_path):
    path = archive(tmp_path / "x.tar.gz", {"a": bytes(1 << 16), "b": b"x"})
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ShapeshiftError, match=r"x\.tar\.gz: not a tar archive, or a damaged one"):
        unpack(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
