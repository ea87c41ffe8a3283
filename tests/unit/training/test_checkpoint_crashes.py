"""Checkpoints when the process, the machine or the disk stops in the middle.

A save is recorded. What it had done until a stop is done again in a copy of the folder, without
what a power cut loses: bytes of files, and names in directories, that were not flushed.
"""

import errno
import math
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from safetensors.torch import load_file

from shapeshift._system import files as disk
from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.manifest import MODEL, OPTIMIZER, Progress

from .models import linear, same, state

KEEP, BEST = 2, 2
SAVES = (1, 2, 3, 4, 5)
"""Updates in the order in which they are saved."""


class Recorder:
    """A disk that remembers its operations, and fails at number `at` (and from then on)."""

    def __init__(self, root, at=math.inf, error=0, *, lasting=False):
        self.root, self.at, self.error, self.lasting = root, at, error, lasting
        self.operations = []

    def __getattr__(self, name):
        def operation(target, *rest):
            given = target if isinstance(target, Path) else target.name, *rest
            seen = (x.relative_to(self.root) if isinstance(x, Path) else bytes(x) for x in given)
            number = len(self.operations)
            self.operations.append((name, *seen))
            if number == self.at or (self.lasting and number > self.at):
                raise OSError(self.error, os.strerror(self.error))
            return getattr(disk.Disk(), name)(target, *rest)

        return operation


def replay(operations, root, loses, rng):
    """Do recorded operations again. A power cut has lost names that were not flushed in the
    directories that `loses` says, and bytes; None is no power cut."""
    for number, (name, path, *rest) in enumerate(operations):
        later, here = operations[number + 1 :], root / path
        if name == "sync":
            continue
        if name == "write":
            (data,) = rest
            if loses and ("sync", path) not in later:
                data = data[: rng.randint(0, len(data))]
        elif loses and loses(path.parent) and ("sync", path.parent) not in later:
            continue
        with suppress(FileNotFoundError):  # its name, or its directory's, is lost
            if name == "write":
                with here.open("r+b") as file:
                    file.seek(0, os.SEEK_END)
                    file.write(data)
            elif name == "create":
                here.touch(exist_ok=False)
            else:
                getattr(disk.Disk(), name)(here, *(root / x for x in rest))


EXPECTED = [state(*linear(number)) for number in range(len(SAVES))]


def progress(update, validated=False):
    best = BEST if update >= BEST + (not validated) else None
    return Progress(update, best_update=best, validated_update=update if validated else None)


def save(folder, numbers, recorder=None):
    """Save in order, and record a validation after each."""
    checkpoints = Checkpoints(folder, KEEP)
    with pytest.MonkeyPatch.context() as patch:
        if recorder is not None:
            patch.setattr(disk, "DISK", recorder)
        for number in numbers:
            checkpoints.save(*linear(number), progress(SAVES[number]))
            checkpoints.record(progress(SAVES[number], validated=True))


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
    save(memory / "before", range(request.param))
    (memory / "before").mkdir(exist_ok=True)
    count = iter(range(10_000))
    return request.param, lambda: shutil.copytree(memory / "before", memory / str(next(count)))


def operations_of(number, folder):
    """Return what a disk is asked to do for a save."""
    recorder = Recorder(folder)
    save(folder, [number], recorder)
    return recorder.operations


ROOT = Path()
LOSSES = {
    "killed": None,
    "all": lambda directory: True,
    "names of checkpoints": lambda directory: directory == ROOT,
    "names of files": lambda directory: directory != ROOT,
}
"""What a power cut may lose of that which was not flushed; a killed process loses nothing."""


@pytest.mark.parametrize("loss", LOSSES)
def test_after_a_stop_anywhere_the_newest_complete_checkpoint_is_found(interrupted, loss):
    number, make_folder = interrupted
    operations = operations_of(number, make_folder())
    stops = [operations[:at] for at in range(len(operations) + 1)]
    for at, (name, path, *rest) in enumerate(operations):  # in the middle
        if name == "write":
            stops.append([*operations[:at], (name, path, rest[0][: len(rest[0]) // 2])])
        elif name == "rmtree":
            stops.append([*operations[:at], ("unlink", path / MODEL)])
    assert len(stops) > 15
    rng = random.Random(1)
    outcomes = set()
    for done in stops:
        folder, returned = make_folder(), done == operations
        replay(done, folder, LOSSES[loss], rng)
        found, recovered = recover(folder, number)
        # A save that had not returned may have come far enough.
        possible = {number} if returned else {number, number - 1 if number else None}
        assert found in possible, done[-1:]
        if recovered is not None:
            assert recovered.validated_update or not returned
            outcomes.add((found, recovered.validated_update))
    assert {(number, None), (number, SAVES[number])} <= outcomes
    assert len(outcomes) == (3 if number else 2)


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_costs_one_line_and_no_checkpoint(interrupted, error, lasting):
    number, make_folder = interrupted
    whole, one = make_folder(), Path(f"update-{SAVES[number]:08d}")
    operations = operations_of(number, whole)
    files = [load_file(whole / one / file) for file in (MODEL, OPTIMIZER)]
    num_bytes = sum(x.nbytes for file in files for x in file.values())
    commit = operations.index(("rename", Path(f".partial-{one}"), one)) + 1
    assert operations[commit] == ("sync", ROOT)
    recording = operations.index(("create", one / f".partial-{os.getpid()}-state.json"))
    for at in range(len(operations)):
        root = make_folder()
        before = {x: x.read_bytes() for x in root.rglob("*") if x.is_file()}
        with pytest.raises(ShapeshiftError) as caught:
            save(root, [number], Recorder(root, at, error, lasting=lasting))
        message = str(caught.value)
        assert "\n" not in message
        assert os.strerror(error) in message

        committed = "is complete" in message
        assert committed == (at >= recording or (number == 4 and at > commit))
        if not committed:
            assert message.startswith(f"{root / one}: ")
            assert f"needs {num_bytes} bytes" in message
            assert all(path.read_bytes() == content for path, content in before.items())
            assert lasting or not list(root.rglob(".*"))
        found, _ = recover(root, number)
        assert found in ({number} if committed else {number, number - 1 if number else None})
