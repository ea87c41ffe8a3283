"""Checkpoints when the process, the machine or the disk stops in the middle.

A simulated disk forgets on a power cut whatever was not flushed: the bytes of files, and names in
directories. It sits on a real folder, so that the code under test notices nothing.
"""

import errno
import os
import random
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from shapeshift import disk as disk_module
from shapeshift.disk import Disk
from shapeshift.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, OPTIMIZER, Progress

from .models import linear, same, state

KEEP, BEST = 2, 2
SAVES = (1, 2, 3, 4, 5)
"""Updates in the order in which they are saved."""


class Crash(BaseException):
    """The process ends here: nothing may catch it."""


class Simulated(Disk):
    """A disk whose operation number `at` is not reached: it stops there, or fails.

    With `half` an operation that writes does the first half of it before that.
    """

    def __init__(self, grave: Path, at=None, *, half=False, error=None, lasting=False):
        self.grave, self.at, self.half = grave, at, half
        self.error, self.lasting = error, lasting
        self.operations: list[tuple[str, Path]] = []
        self._dirty: dict[Path, int] = {}  # file → a handle that outlives renames
        self._names: list[tuple[int, object]] = []  # (handle of the directory, how to undo)

    def _count(self, name, path):
        number = len(self.operations)
        self.operations.append((name, path))
        if number == self.at or (self.lasting and self.at is not None and number > self.at):
            if self.error is None:
                raise Crash
            raise OSError(self.error, os.strerror(self.error))

    def _remember(self, directory, undo):
        handle = os.open(directory, os.O_RDONLY)
        self._names.append((handle, lambda: undo(handle)))

    def create(self, path):
        self._count("create", path)
        assert not path.exists()
        file = super().create(path)
        self._dirty[path] = os.dup(file.fileno())
        self._remember(path.parent, lambda handle: os.unlink(path.name, dir_fd=handle))
        return file

    def write(self, file, data):
        if self.half and len(self.operations) == self.at:
            file.write(data[: len(data) // 2])
        self._count("write", Path(file.name))
        return file.write(data)

    def sync_file(self, file):
        self._count("sync_file", Path(file.name))
        os.close(self._dirty.pop(file.name))

    def sync_directory(self, path):
        self._count("sync_directory", path)
        self._forget(lambda inode: inode == path.stat().st_ino)

    def _forget(self, which):
        for entry in list(self._names):
            if which(os.fstat(entry[0]).st_ino):
                os.close(entry[0])
                self._names.remove(entry)

    def _bury(self, path):
        buried = self.grave / str(len(self.operations))
        path.rename(buried)
        self._remember(path.parent, lambda h: os.rename(buried, path.name, dst_dir_fd=h))

    def mkdir(self, path):
        self._count("mkdir", path)
        super().mkdir(path)
        self._remember(path.parent, lambda handle: shutil.rmtree(path.name, dir_fd=handle))

    def rename(self, source, target):
        self._count("rename", target)
        assert source.parent == target.parent
        if target.exists():
            self._bury(target)
        super().rename(source, target)
        names = (target.name, source.name)
        self._remember(source.parent, lambda h: os.rename(*names, src_dir_fd=h, dst_dir_fd=h))

    def unlink(self, path):
        self._count("unlink", path)
        self._bury(path)

    def rmtree(self, path):
        if self.half and len(self.operations) == self.at:
            super().unlink(next(path.iterdir()))
        self._count("rmtree", path)
        self._bury(path)

    def cut(self, loses, rng):
        """Forget what was not flushed: cut files short, take back names in the directories that
        `loses` says of an inode."""
        for handle in self._dirty.values():
            os.ftruncate(handle, rng.randint(0, os.fstat(handle).st_size))
        for handle, undo in reversed(self._names):
            if loses(os.fstat(handle).st_ino):
                undo()

    def close(self):
        """Give the handles back."""
        self._forget(lambda inode: True)
        for handle in self._dirty.values():
            os.close(handle)


EXPECTED = [state(*linear(number)) for number in range(len(SAVES))]


def progress(update, validated=False):
    best = BEST if update >= BEST + (not validated) else None
    return Progress(update, best_update=best, validated_update=update if validated else None)


def save(folder, numbers, disk=None):
    """Save in order and record a validation after each; return False if the disk stopped."""
    checkpoints = Checkpoints(folder, KEEP)
    with pytest.MonkeyPatch.context() as patch:
        if disk is not None:
            patch.setattr(disk_module, "DISK", disk)
        for number in numbers:
            try:
                checkpoints.save(*linear(number), progress(SAVES[number]))
                checkpoints.record(progress(SAVES[number], validated=True))
            except Crash:
                return False
    return True


def recover(folder, number):
    """Resume, and do what training does next: repeat the save `number`, or only its validation.
    Return the number of the save that was found, None if there is none, and its progress."""
    checkpoints = Checkpoints(folder, KEEP)
    model, optimizer = linear(99)
    resumed = checkpoints.resume(model, optimizer)
    assert not list(folder.rglob(".*"))
    newest = None
    if resumed is not None:
        loaded = state(model, optimizer)
        newest = next(each for each, expected in enumerate(EXPECTED) if same(loaded, expected))
        validated = resumed.progress.validated_update
        assert resumed.progress == progress(SAVES[newest], validated)
        assert (resumed.path, resumed.skipped) == (checkpoints.path(SAVES[newest]), ())
        assert SAVES[newest] < BEST or BEST in checkpoints.updates()
    if newest == number:
        checkpoints.record(progress(SAVES[number], validated=True))
    else:
        save(folder, [number])
    assert checkpoints.updates() == KEPT[number]
    return newest, resumed and resumed.progress


KEPT = {0: [1], 1: [1, 2], 4: [2, 4, 5]}
"""Saves that are interrupted, by their numbers in `SAVES` → the checkpoints after them."""


@pytest.fixture(params=KEPT, ids=["the first", "the best", "one that deletes"])
def interrupted(request, memory):
    """A save to interrupt: its number, and a function that makes a folder as it was before."""
    number = request.param
    save(memory / "before", range(number))
    (memory / "before").mkdir(exist_ok=True)
    count = iter(range(10_000))

    def folder():
        path = memory / str(next(count))
        (path / "grave").mkdir(parents=True)
        shutil.copytree(memory / "before", path / "c")
        return path

    return number, folder


def operations_of(number, folder):
    """Return what a disk is asked to do for a save."""
    disk = Simulated(folder / "grave")
    save(folder / "c", [number], disk)
    disk.close()
    return disk.operations


LOSSES = {
    "killed": None,
    "all": lambda root: lambda inode: True,
    "names of checkpoints": lambda root: lambda inode: inode == root,
    "names of files": lambda root: lambda inode: inode != root,
}
"""What a power cut may lose of that which was not flushed; a killed process loses nothing."""


@pytest.mark.parametrize("loss", LOSSES)
def test_after_a_stop_anywhere_the_newest_complete_checkpoint_is_found(interrupted, loss):
    number, make_folder = interrupted
    operations = operations_of(number, make_folder())
    points = [(at, False) for at in range(len(operations) + 1)]
    points += [(at, True) for at, (name, _) in enumerate(operations) if name in ("write", "rmtree")]
    assert len(points) > 20
    rng = random.Random(1)
    outcomes = set()
    for at, half in points:
        folder = make_folder()
        disk = Simulated(folder / "grave", at, half=half)
        returned = save(folder / "c", [number], disk)
        assert returned == (at == len(operations))
        if LOSSES[loss] is not None:
            disk.cut(LOSSES[loss]((folder / "c").stat().st_ino), rng)
        disk.close()

        found, recovered = recover(folder / "c", number)
        # A save that had not returned may have come far enough.
        possible = {number} if returned else {number, number - 1 if number else None}
        assert found in possible, (at, half)
        if recovered is not None:
            assert recovered.validated_update or not returned
            outcomes.add((found, recovered.validated_update))
    assert {(number, None), (number, SAVES[number])} <= outcomes
    assert len(outcomes) == (3 if number else 2)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_costs_one_line_and_no_checkpoint(interrupted, error, lasting):
    number, make_folder = interrupted
    whole = make_folder()
    operations = operations_of(number, whole)
    one = Checkpoints(whole / "c", KEEP).path(SAVES[number])
    num_bytes = sum(x.nbytes for file in (MODEL, OPTIMIZER) for x in load_file(one / file).values())
    commit = operations.index(("rename", one)) + 1
    assert operations[commit] == ("sync_directory", whole / "c")
    recording = operations.index(("create", one / f".partial-{os.getpid()}-state.json"))
    for at in range(len(operations)):
        folder = make_folder()
        root = folder / "c"
        before = {x: x.read_bytes() for x in root.rglob("*") if x.is_file()}
        disk = Simulated(folder / "grave", at, error=error, lasting=lasting)
        with pytest.raises(ShapeshiftError) as caught:
            save(root, [number], disk)
        disk.close()
        message = str(caught.value)
        assert "\n" not in message
        assert os.strerror(error) in message

        committed = "is complete" in message
        assert committed == (at >= recording or (number == 4 and at > commit))
        if not committed:
            assert message.startswith(f"{root / one.name}: ")
            assert f"needs {num_bytes} bytes" in message
            assert all(path.read_bytes() == content for path, content in before.items())
            assert lasting or not list(root.rglob(".*"))
        found, _ = recover(root, number)
        assert found in ({number} if committed else {number, number - 1 if number else None})
