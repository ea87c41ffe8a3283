"""Writing and deleting: complete or not at all, and never through a link into another folder."""

import fcntl
import os
import signal
import subprocess
import sys
import threading

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import partial_directory, remove, replacing, save


def test_a_file_is_replaced_when_all_of_it_is_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    with replacing(path) as stream:
        stream.write("new\u2028\n")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_bytes() == "new\u2028\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("old", [None, "old"])
def test_a_file_that_is_not_finished_never_appears(tmp_path, old):
    path = tmp_path / "out"
    if old:
        path.write_text(old)

    def write():
        with replacing(path) as stream:
            stream.write("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert [x.read_text() for x in tmp_path.iterdir()] == ([old] if old else [])


def interrupted_at(line, action):
    """Run `action` with a KeyboardInterrupt at its line with this number, of all that Python runs
    until `action` returns; return whether there are as many."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        if lines == line and event == "line":
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines >= line


@pytest.mark.parametrize("kind", ["replaced", "saved"])
def test_an_interrupt_at_any_point_of_the_beginning_leaves_nothing(tmp_path, kind):
    path, begun = tmp_path / "out", []

    def write():
        if kind == "saved":
            save(path, "all")
        else:
            with replacing(path):
                begun.append(True)

    def ended():
        """Writing is over, and only cleaning up was interrupted."""
        return begun or path.exists()

    points = 0
    while interrupted_at(points + 1, write) and not ended():
        points += 1
        assert not os.listdir(tmp_path)
    assert points > 20
    assert ended()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_goes_with_the_next(tmp_path, kind):
    writing = {"file": replacing, "folder": partial_directory}[kind]
    child = os.fork()
    if not child:
        with writing(tmp_path / "out"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    [left] = tmp_path.iterdir()
    with writing(tmp_path / "out"):
        assert not left.exists()


@pytest.mark.parametrize("when", ["opened", "locked", "deleted"])
def test_a_folder_that_another_process_took_for_left_is_made_again(tmp_path, monkeypatch, when):
    """It has no lock yet; the other process is there before it is `opened`, or after that."""
    real_open, real_lock, found = os.open, fcntl.flock, []

    def remove_first():
        if not found:
            found.extend(tmp_path.iterdir())
            found[0].rmdir()

    def open_late(path, *arguments, **options):
        if when == "opened":
            remove_first()
        return real_open(path, *arguments, **options)

    def lock_late(handle, operation):
        if when == "deleted" and not found:
            remove_first()
            raise BlockingIOError
        if when == "locked":
            remove_first()
        real_lock(handle, operation)

    monkeypatch.setattr("os.open", open_late)
    monkeypatch.setattr("fcntl.flock", lock_late)
    with partial_directory(tmp_path / "out") as folder:
        assert folder.is_dir()
        assert folder not in found
    assert found
    assert not any(tmp_path.iterdir())


def test_what_another_process_is_writing_stays(tmp_path):
    with replacing(tmp_path / "out") as stream:
        stream.write("first")
        child = os.fork()
        if not child:
            with replacing(tmp_path / "out") as second:
                second.write("second")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (tmp_path / "out").read_text() == "second"
    assert (tmp_path / "out").read_text() == "first"
    assert os.listdir(tmp_path) == ["out"]


def test_deleting_a_folder_deletes_the_links_in_it_alone(tmp_path):
    precious, doomed = tmp_path / "precious", tmp_path / "doomed"
    (doomed / "deep").mkdir(parents=True)
    precious.mkdir()
    (precious / "file").write_text("precious")
    targets = (precious, precious / "file", "missing")
    for number, target in enumerate(targets):
        (doomed / "deep" / str(number)).symlink_to(target)
        (tmp_path / str(number)).symlink_to(target)
        remove(tmp_path / str(number))
    remove(doomed)
    assert [path.name for path in tmp_path.rglob("*")] == ["precious", "file"]


def test_the_link_of_a_user_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "link").symlink_to("folder/real")
    for content in ("old", "new"):
        with replacing(tmp_path / "link") as stream:
            stream.write(content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "folder" / "real").read_text() == content


def test_a_pipe_is_written_into(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    with replacing(pipe) as stream:
        stream.write("text")
    reader.join(10)
    assert received == ["text"]
    assert pipe.is_fifo()


def test_a_full_device_is_an_error_of_the_user_and_stays_a_device(tmp_path):
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(ShapeshiftError, match="full: cannot be written: No space"):  # noqa: SIM117
        with replacing(tmp_path / "full") as stream:
            stream.write("text")
    assert (tmp_path / "full").is_char_device()


def test_an_error_of_another_file_is_not_taken_for_one_of_the_output(tmp_path):
    with pytest.raises(OSError, match="another"), replacing(tmp_path / "out"):
        raise OSError(28, "another")
    assert not os.listdir(tmp_path)


def test_standard_output_in_a_file_is_written_in_order(tmp_path):
    code = (
        "from shapeshift._system.files import replacing\nprint('before')\n"
        "with replacing('/dev/stdout') as s: s.write('text\\n')\nprint('after')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "before\ntext\nafter\n"
