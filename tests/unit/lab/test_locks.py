"""One process at a time."""

import os
import resource
import subprocess
import sys
from contextlib import suppress

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.locks import LockedError, is_locked, locked


def test_a_lock_says_who_holds_it_and_goes_with_an_error(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    holder = f"process {os.getpid()} on .* is at work"
    with suppress(KeyError), locked(path):
        assert is_locked(path)
        with pytest.raises(LockedError, match=holder), locked(path):
            pass
        raise KeyError
    assert not is_locked(path)
    with locked(path):
        pass


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path\n"
        "from shapeshift.lab.locks import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"process {holder.pid} on"), locked(path):
            pass
        holder.kill()
    assert "process" in path.read_text(encoding="utf-8")  # which is for people alone
    with locked(path):
        assert path.read_text(encoding="utf-8").count("process") == 1


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def fail(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", fail)
    message = r"cannot be locked .*a file system with locks"
    with pytest.raises(ShapeshiftError, match=message), locked(tmp_path / "lock"):
        pass


def test_a_disk_without_room_does_not_keep_anybody_from_a_lock(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file may grow
    try:
        with locked(tmp_path / "lock"):
            assert is_locked(tmp_path / "lock")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
