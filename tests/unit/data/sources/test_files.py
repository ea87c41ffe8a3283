"""Lines and parallel lines: what ends a line, what is refused, and where the error points."""

import gzip
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.sources import files
from shapeshift.data.sources.files import read_lines, read_parallel


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        ("a\u2028b\u0085c\x0cd\x1ce\x0bf\n".encode(), ["a\u2028b\u0085c\x0cd\x1ce\x0bf"]),
        (b"a\r\nb\rc\r\n", ["a\r", "b\rc\r"]),
        (b"one\r", ["one\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
    ],
)
def test_only_a_newline_ends_a_line(tmp_path, name, data, lines):
    assert list(read_lines(write(tmp_path / name, data))) == lines


@pytest.mark.parametrize("name", ["", ".", "..", "/"])
def test_a_folder_is_no_file(name):
    with pytest.raises(ShapeshiftError, match="is a folder; expected a file of text"):
        next(read_lines(name))


def test_a_missing_file_is_looked_for_with_gz(tmp_path):
    write(tmp_path / "text.en.gz", b"packed\n")
    assert list(read_lines(tmp_path / "text.en")) == ["packed"]
    with pytest.raises(ShapeshiftError, match=r"text\.de and .*text\.de\.gz"):
        list(read_lines(tmp_path / "text.de"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"caf\xe9", "not UTF-8: byte 0xe9 at byte 4"),
        (b"a\0b", "NUL"),
        (b"\xed\xa0\x80", "not UTF-8"),
    ],
)
def test_bad_bytes_are_reported_with_file_and_line(tmp_path, bad, reason):
    path = write(tmp_path / "text.en", b"good\nalso good\n" + bad + b"\nrest\n")
    with pytest.raises(ShapeshiftError, match=reason) as caught:
        list(read_lines(path))
    assert (caught.value.path, caught.value.line) == (path, 3)


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize("data", [b"one\rtwo\rthree\r", b"one\rtwo"])
def test_text_whose_lines_end_in_a_carriage_return_alone_is_refused(tmp_path, name, data):
    lines = read_lines(write(tmp_path / name, data))
    with pytest.raises(ShapeshiftError, match=r"ends its lines with \\r alone.*tr '\\r' '\\n'"):
        next(lines)


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda data: b"plain text\n"])
def test_damaged_gzip_is_an_error_of_the_users(tmp_path, damage):
    path = tmp_path / "text.en.gz"
    path.write_bytes(damage(gzip.compress(b"a line\n" * 1000)))
    with pytest.raises(ShapeshiftError, match="damaged gzip"):
        list(read_lines(path))


def test_lines_come_in_parallel(tmp_path):
    source = write(tmp_path / "a.en", b"one\ntwo\x0c\n")
    target = write(tmp_path / "a.de.gz", b"eins\nzwei")
    assert list(read_parallel(source, target)) == [("one", "eins"), ("two\x0c", "zwei")]
    assert next(read_parallel(source, target, source)) == ("one", "eins", "one")


@pytest.mark.parametrize("counts", [(5, 3), (3, 5), (0, 2), (4, 3), (2, 2, 3)])
def test_unequal_counts_name_all_counts_and_files(tmp_path, counts):
    paths = [write(tmp_path / f"a.{n}", b"x\n" * count) for n, count in enumerate(counts)]
    expected = " but ".join(f"{path} has {n} lines" for path, n in zip(paths, counts, strict=True))
    with pytest.raises(ShapeshiftError, match=f"^{expected};"):
        list(read_parallel(*paths))


def test_an_endless_line_ends_under_a_memory_limit():
    code = (
        "import resource\nfrom shapeshift.data.sources.files import read_lines\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "list(read_lines('/dev/zero'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ShapeshiftError: /dev/zero:1: longer than" in done.stderr


def test_a_text_that_does_not_end_is_not_held(monkeypatch):
    monkeypatch.setattr(files, "_MAX_HELD", 10_000)
    assert files.hold(iter(["a", "b"]), "text") == ["a", "b"]
    with pytest.raises(ShapeshiftError, match=r"text:154: the lines up to here are too many"):
        files.hold(itertools.repeat("a"), "text")


def test_a_pipe_is_not_read_in_parallel(tmp_path):
    os.mkfifo(tmp_path / "a.en")
    write(tmp_path / "a.de", b"a")
    with pytest.raises(ShapeshiftError, match=r"a\.en: cannot be read: not a regular file"):
        next(read_parallel(tmp_path / "a.en", tmp_path / "a.de"))
