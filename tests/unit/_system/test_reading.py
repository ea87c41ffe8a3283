"""Files that are read whole: regular ones of a bounded size, whatever stands in their place."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import random
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import shapeshift
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read, refuse_irregular
from shapeshift._system.hashes import SUMS, read_sums, verify
from shapeshift._system.locks import is_locked, locked
from shapeshift.config.files import read_document
from shapeshift.data.prepared import Report
from shapeshift.data.sources.files import read_parallel
from shapeshift.data.store import TokenStore, write_store
from shapeshift.data.subwords import Subwords
from shapeshift.evaluation.scores import Scores
from shapeshift.export.folder import read_report
from shapeshift.export.running import open_export
from shapeshift.run.record import tail
from shapeshift.study.document import StudyDocument
from shapeshift.training.manifest import read_manifest
from shapeshift.training.weights import is_average_of, read_weights


@pytest.fixture
def clock():
    """A reader that blocks fails after ten seconds."""

    def fail(number, frame):
        raise AssertionError("it blocks")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def extending(path):
    top = path.with_name("top.yaml")
    top.write_text(f"extends: {path.name}\n")
    read_document(top)


READERS = {
    "a.yaml": read_document,
    "base.yaml": extending,
    SUMS: lambda path: read_sums(path.parent),
    "state.json": lambda path: read_manifest(path.parent),
    "model.safetensors": read_weights,
    "average.safetensors": read_weights,
    "joint.model": lambda path: Subwords.load(path.parent),
    "prepared.json": lambda path: Report.read(path, "prepare again"),
    "store.json": lambda path: TokenStore(path.parent),
    "export.json": lambda path: read_report(path.parent),
    "scores.json": Scores.load,
    "study.json": StudyDocument.load,
    "config.json": lambda path: refuse_irregular(path.parent),
    "text.en": lambda path: next(read_parallel(path, path)),
}


@pytest.mark.parametrize("kind", ["pipe", "link to a pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_what_may_block_or_never_end_is_refused_in_one_line(clock, tmp_path, name, kind):
    path = tmp_path / name
    if kind == "device":
        path.symlink_to(os.devnull)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    with pytest.raises(ShapeshiftError) as caught:
        READERS[name](path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"config.json", "text.en"}))
def test_what_is_far_too_large_is_refused_in_one_line(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 31 if "safetensors" not in name else 1 << 20)  # a hole, which is zeros
    with pytest.raises(ShapeshiftError) as caught:
        READERS[name](tmp_path / name)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
@pytest.mark.parametrize("name", ["state.json", "store.json", "joint.model", SUMS])
def test_a_limit_of_open_files_is_not_taken_for_damage(tmp_path, name):
    import resource

    (tmp_path / name).write_bytes(b"{}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(ShapeshiftError, match="Too many open files") as caught:
            READERS[name](tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not re.search("damaged|remove|bring", str(caught.value))


def test_what_only_looks_does_not_wait_for_a_pipe(clock, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not is_locked(tmp_path / "pipe")
    assert tail(tmp_path / "pipe") == ""
    assert not is_average_of(tmp_path / "pipe", [])


@pytest.mark.skipif(sys.platform == "win32", reason="locks cannot be shared there")
def test_checks_of_a_lock_do_not_see_each_other_but_its_holder(tmp_path):
    import fcntl

    path = tmp_path / "lock"
    with locked(path):
        assert is_locked(path)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # as a check does
        assert not is_locked(path)


def test_a_file_of_the_largest_size_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"four")
    assert read(path, 4) == b"four"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read(path, 3)


def test_nothing_else_reads_a_file_whole():
    """But what comes with the package, modules that are imported and programs that are started, and
    what Linux says about itself."""
    root = Path(shapeshift.__file__).parent
    own = {"_system/threads.py", "training/precision.py", "study/report/page.py", "data/config.py"}
    own |= {f"kernels/{name}.py" for name in ("__init__", "library", "processor")}
    own |= {"run/toolkits/fairseq.py", "_system/own_modules.py"}
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("read_bytes", "read_text")
    }
    assert found - own == set()


def sums(body: bytes) -> bytes:
    """Return a list with the hash of itself."""
    return body + b"# " + hashlib.sha256(body).hexdigest().encode() + b"\n"


HASH = b"0" * 64
MALFORMED = [
    b"no hash\n",
    HASH + b"\n",
    HASH + b" name\n",
    HASH[1:] + b"  name\n",
    HASH.replace(b"0", b"G") + b"  name\n",
    HASH + b"  \n",
    HASH + b"  a\0b\n",
    HASH + b"  ../../outside\n",
    HASH + b"  /etc/hostname\n",
    HASH + b"  \xff\xfe\n" + b"\xff\n",
]


@pytest.mark.parametrize("body", MALFORMED)
def test_a_malformed_list_of_hashes_is_refused_with_its_line(tmp_path, body):
    (tmp_path / SUMS).write_bytes(sums(HASH + b"  a\n" + body))
    with pytest.raises(ShapeshiftError, match=rf"{SUMS}:[23]: not a hash and the name") as caught:
        read_sums(tmp_path)
    assert "remove it" in str(caught.value)
    (tmp_path / SUMS).unlink()
    verify(tmp_path, remedy="")  # the advice works


def test_a_name_may_have_any_character_of_a_line(tmp_path):
    (tmp_path / SUMS).write_bytes(sums(HASH + "  a b\u2028\u0085ü\n".encode()))
    assert read_sums(tmp_path) == {"a b\u2028\u0085ü": HASH.decode()}


def test_what_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / SUMS).write_bytes(sums(hashlib.sha256(b"a").hexdigest().encode() + b"  a\n"))
    real = os.open

    def refuse(path, *arguments, **options):
        if os.fspath(path) == str(tmp_path / "a"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(ShapeshiftError, match="may not be read; fix its permissions"):
        verify(tmp_path, remedy="run the training command again")
    assert (tmp_path / "a").exists()


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return a file with a few bytes changed, left out, or put in."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data) + 1)
        how = rng.randrange(4)
        if how == 0:
            data[place : place + 1] = rng.randbytes(1)
        elif how == 1:
            del data[place : place + rng.randint(1, 30)]
        elif how == 2:
            data[place:place] = rng.choice([b"\n", b"  ", b"\0", b"{", b"]", b"-1", b"1e999", b'"'])
        else:
            data[place : place + 8] = data[rng.randrange(len(data) + 1) :][:8]
    return bytes(data)


@pytest.mark.parametrize("num_cases", [300, pytest.param(5_000, marks=pytest.mark.soak)])
def test_no_list_of_hashes_ends_in_a_traceback(tmp_path, num_cases):
    rng, body = random.Random(0), HASH + b"  subwords/joint.model\n" + HASH + b"  config.yaml\n"
    refused = 0
    for _ in range(num_cases):
        (tmp_path / SUMS).write_bytes(sums(mutated(body, rng)))
        try:
            verify(tmp_path, remedy="")
        except ShapeshiftError:  # whose message is one line
            refused += 1
    assert refused > num_cases / 2


@pytest.mark.parametrize("num_cases", [100, pytest.param(3_000, marks=pytest.mark.soak)])
def test_no_prepared_text_ends_in_a_traceback_or_points_outside(tmp_path, num_cases):
    rng, pairs = random.Random(1), [([5, 6, 7], [8]), ([9], [5, 5])]
    write_store(tmp_path / "s", pairs, source_size=10, target_size=10)
    files = {path: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    for _ in range(num_cases):
        path = rng.choice([*files])
        path.write_bytes(mutated(files[path], rng))
        with suppress(ShapeshiftError):
            for source, target in (store := TokenStore(tmp_path / "s")):
                assert (source < store.source_size).all()
                assert (target < store.target_size).all()
        path.write_bytes(files[path])


@pytest.fixture
def export(tmp_path):
    """A folder that looks like a verified export of CTranslate2."""
    parity = {"lengths": [[4, 4]], "log_prob": 0.0, "alone": 0.0, "beam_score": 0.0}
    parity |= {"effects": {}, "num_tokens": 1, "num_mismatches": 0}
    report = {"engine": "ctranslate2", "opened_by": "", "positions": "exact"}
    (tmp_path / "export.json").write_text(
        json.dumps(report | {"capacity": [None, 9], "parity": parity})
    )
    return tmp_path


def test_the_report_of_an_export_is_read_with_its_types(export):
    assert read_report(export).capacity == (None, 9)
    text = (export / "export.json").read_text()
    (export / "export.json").write_text(text.replace("9", '"nine"'))
    with pytest.raises(ShapeshiftError, match="holds no model that"):
        read_report(export)


def test_a_pipe_in_an_export_is_refused_before_the_engine_reads_it(clock, export):
    os.mkfifo(export / "model.bin")
    with pytest.raises(ShapeshiftError, match=r"model\.bin: not a regular file"):
        open_export(export, None, None, None)
