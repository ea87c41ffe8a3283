"""One process at a time."""

from contextlib import suppress

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.locks import LockedError, is_locked, locked


def test_a_lock_lets_one_in_and_goes_with_an_error(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    with suppress(KeyError), locked(path):
        assert is_locked(path)
        with pytest.raises(LockedError, match="another process is at work here"), locked(path):
            pass
        raise KeyError
    assert not is_locked(path)
    with locked(path):
        pass


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def fail(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", fail)
    message = r"cannot be locked .*a file system with locks"
    with pytest.raises(ShapeshiftError, match=message), locked(tmp_path / "lock"):
        pass
    with locked(tmp_path / "lock", optional=True):
        pass
