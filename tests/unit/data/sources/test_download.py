"""Archives: downloads from a server on this machine, and unpacking of what is wanted and whole."""

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import random
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shapeshift._system import files as disk
from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.config import Archive
from shapeshift.data.sources import download as downloads
from shapeshift.data.sources.download import download, unpack

BODY = bytes(range(256)) * 400
SHA = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Answers with the next of the server's `answers`: a status, and how much of `BODY` comes."""

    def do_GET(self):
        status, size = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:size])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(downloads.time, "sleep", lambda seconds: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.answers = [(200, None)]
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(server, folder, expected=SHA, **options):
    url = f"http://127.0.0.1:{server.server_port}/get"
    return download(Archive(url=url, file="x.bin", hash=expected), folder, **options)


def test_a_file_arrives_whole_and_once(server, tmp_path):
    seen = []
    path = get(server, tmp_path / "new", on_progress=lambda *x: seen.append(x))
    assert path.read_bytes() == BODY
    assert seen[-1] == ("download x.bin", len(BODY), len(BODY))
    assert get(server, tmp_path / "new") == path
    assert {x.name for x in path.parent.iterdir()} == {"x.bin", ".x.bin.lock"}


def test_a_cut_connection_and_a_busy_server_are_tried_again(server, tmp_path):
    server.answers = [(200, 10_000), (503, 0), (200, None)]
    assert get(server, tmp_path).read_bytes() == BODY
    assert server.answers == []


def test_what_does_not_come_is_named_with_a_remedy(server, tmp_path):
    server.answers = [(200, 10_000)] * 3 + [(404, 0)]
    with pytest.raises(ShapeshiftError, match=r"404: Not Found.*put the file at .*x\.bin yourself"):
        get(server, tmp_path)
    assert not (tmp_path / "x.bin").exists()


def test_a_full_disk_is_said_at_once(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk.DISK, "write", full)
    server.answers = [(200, None)] * 4
    with pytest.raises(ShapeshiftError, match=r"x\.bin: cannot be written: No space left"):
        get(server, tmp_path)
    assert len(server.answers) == 3


def test_a_wrong_hash_leaves_no_file_and_a_file_of_the_users_alone(server, tmp_path):
    with pytest.raises(ShapeshiftError, match=rf"the hash is {SHA}, expected sha256:0000"):
        get(server, tmp_path, f"sha256:{'0' * 64}")
    assert [path.name for path in tmp_path.iterdir()] == [".x.bin.lock"]
    (tmp_path / "x.bin").write_bytes(b"by hand")
    with pytest.raises(ShapeshiftError, match=r"x\.bin: the hash is sha256:"):
        get(server, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == b"by hand"
    known = f"md5:{hashlib.md5(b'by hand').hexdigest()}"
    assert get(server, tmp_path, known).read_bytes() == b"by hand"


TEXT = b"".join(b"sentence %d\n" % number for number in range(2_000))
FILES = {"a.en": TEXT, "sub/b.en": b"two\n", "other/c": b"three\n"}
WANTED = {"a.en", "sub/b.en", "not/there"}.__contains__


def tar(files, link="not/there"):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as file:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo(link)
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(member)
    return content.getvalue()


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return content.getvalue()


PACK = {
    "tar": tar,
    "tar.gz": lambda files: gzip.compress(tar(files)),
    "tar.bz2": lambda files: bz2.compress(tar(files)),
    "tar.xz": lambda files: lzma.compress(tar(files)),
    "zip": zipped,
}


def unpacked(folder, content, wanted=WANTED):
    """Unpack an archive into a folder; return what is in it afterwards."""
    archive = folder.with_name("archive")
    archive.write_bytes(content)
    files = unpack(archive, folder, wanted)
    here = {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}
    assert here.pop(".archive.lock") == b""
    assert {folder / name for name in here} == {*files}
    return here


@pytest.mark.parametrize("ending", PACK)
def test_only_the_wanted_files_are_unpacked(ending, tmp_path):
    content = PACK[ending](FILES | {"../up.en": b"out", str(tmp_path / "up.en"): b"out"})
    wanted = lambda name: WANTED(name) or name.endswith("up.en")  # noqa: E731
    here = unpacked(tmp_path / "in", content, wanted)
    assert here == {"a.en": TEXT, "sub/b.en": b"two\n"}
    assert {x.name for x in tmp_path.iterdir()} == {"in", "archive"}


@pytest.mark.parametrize("ending", [x for x in PACK if x != "tar"])  # which has no checksum
def test_damaged_archives_are_refused_or_their_files_are_right(ending, tmp_path):
    draw, whole, refused = random.Random(1), PACK[ending](FILES), 0
    for number in range(60):
        content = bytearray(whole)
        place = draw.randrange(len(content))
        if number % 2:
            content[place] ^= 1 << draw.randrange(8)
        else:
            del content[place : place + draw.randrange(1, 600)]
        folder = tmp_path / str(number)
        try:
            for name, data in unpacked(folder, bytes(content)).items():
                assert data == FILES[name]
        except ShapeshiftError:
            refused += 1
            assert {x.name for x in folder.iterdir()} <= {".archive.lock"}
    assert refused > 30


@pytest.mark.parametrize(
    ("ending", "name"), [("zip", "a.en"), ("tar.xz", "a.en"), ("tar.xz", "not wanted")]
)
def test_an_archive_that_unpacks_to_far_more_than_it_holds_is_refused(
    tmp_path, ending, name, monkeypatch
):
    path = tmp_path / "a.archive"
    path.write_bytes(PACK[ending]({name: b"\0" * (4 << 20)}))
    unpack(path, tmp_path / "fine", lambda name: name == "a.en")
    monkeypatch.setattr(downloads, "_MOST_UNPACKED", 1 << 20)
    with pytest.raises(ShapeshiftError, match=r"unpacks to more than 1,048,576 bytes"):
        unpack(path, tmp_path / "new", lambda name: name == "a.en")
    assert not [x for x in (tmp_path / "new").rglob("*") if x.is_file() and x.stat().st_size]


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "A.TGZ"])
def test_a_truncated_archive_is_not_taken_for_the_name_of_text(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(zipped(FILES)[:1_000])
    with pytest.raises(ShapeshiftError, match=f"{name}: is no archive or damaged; fetch it again"):
        downloads.find_prefixes(path, ("en", "de"), tmp_path)
