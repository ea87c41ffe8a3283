"""Every writer against a disk that is full, read-only or closed to us, and against links and
pipes in the places of its files: one line, nothing half-written, nothing changed elsewhere."""

from __future__ import annotations

import errno
import os
import resource
import stat
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import replacing, save
from shapeshift._system.locks import locked
from shapeshift.config import parse_config
from shapeshift.data.config import DataConfig, GrammarCorpus, SubwordsConfig
from shapeshift.data.prepare import prepare
from shapeshift.run.folder import Run
from shapeshift.run.record import MeasureRecord, RunFolder
from shapeshift.run.toolkits.baseline import run_commands
from shapeshift.study.figures import save as save_figure
from shapeshift.training.checkpoints import Checkpoints
from shapeshift.training.log import Log
from shapeshift.training.manifest import Progress
from shapeshift.training.weights import average

CONFIG = parse_config({"data": {"corpus": {"corpus": "grammar"}}})
DATA = DataConfig(
    corpus=GrammarCorpus(num_train=200, num_valid=5, num_test=5, max_words=8),
    subwords=SubwordsConfig(vocab_size=150),
)


def write_log(folder):
    log = Log(folder, 0)
    try:
        log.write(1, loss=2.0)
        log.sync()
    finally:
        log.close()


def write_checkpoint(folder):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    checkpoints = Checkpoints(folder / "checkpoints", 2)
    path = checkpoints.save(model, optimizer, Progress(update=1, epoch=0, batch=1))
    average([path / "model.safetensors"], folder / "average.safetensors")


def write_record(folder):
    planned = RunFolder(folder)
    fields = dict.fromkeys(("command", "version", "time", "checkpoint", "text"), "")
    planned.write_record(MeasureRecord(measure="m", elapsed_s=0.0, results=(), **fields), CONFIG)


def hold_lock(folder):
    with locked(folder / "lock"):
        pass


def write_output(folder):
    with replacing(folder / "out") as stream:
        stream.write("text\n" * 1000)


WRITERS = {
    "configuration": lambda folder: Run.create(folder / "run", CONFIG),
    "preparation": lambda folder: prepare(DATA, folder / "prepared" / "data"),
    "log": write_log,
    "checkpoint": write_checkpoint,
    "figure": lambda folder: save_figure(Figure(), folder / "figure"),
    "record": write_record,
    "lock": hold_lock,
    "commands": lambda folder: run_commands({"echo": ["echo", "a"]}, folder),
    "output": write_output,
    "save": lambda folder: save(folder / "out", b"text" * 1000),
}
IN_PLACE = {"log", "lock", "commands"}
"""What they write appears line by line."""

refusing: tuple[Path, int] | None = None
"""The folder that the disk refuses to change, and the error's number."""


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if refusing is None or event not in ("open", "os.mkdir", "os.rename"):
        return
    path, folder = arguments[0], refusing[0]
    changes = event != "open" or (
        isinstance(arguments[2], int)
        and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        and isinstance(path, str | bytes | os.PathLike)
    )
    if changes and Path(os.fsdecode(path)).is_relative_to(folder):  # type: ignore[arg-type]
        raise OSError(refusing[1], os.strerror(refusing[1]), str(path))


@pytest.fixture(scope="module", autouse=True)
def audit():
    sys.addaudithook(refuse)  # for the rest of the process, without effect from then on


@contextmanager
def refused(folder, number):
    """A disk that opens nothing for writing, and makes no folder, below `folder`."""
    global refusing
    refusing = (folder, number)
    try:
        yield
    finally:
        refusing = None


@contextmanager
def full():
    """A disk that has no room for a byte."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def shown(folder):
    """The files with names that a reader looks for."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not any(x.startswith(".") for x in path.relative_to(folder).parts)
    }


ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EFBIG)
NO_ROOM = {("lock", errno.EFBIG), ("commands", errno.EFBIG)}
"""Those need none."""
REFUSALS = sorted({(name, error) for name in WRITERS for error in ERRORS} - NO_ROOM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(("name", "number"), REFUSALS)
def test_a_refusal_of_the_disk_is_one_line_and_leaves_files_complete_or_not_at_all(
    tmp_path, name, number
):
    disk = full() if number == errno.EFBIG else refused(tmp_path, number)
    with pytest.raises(ShapeshiftError) as caught, disk:
        WRITERS[name](tmp_path)
    message = str(caught.value)
    assert message.startswith(str(tmp_path))
    assert "\n" not in message
    assert os.strerror(number) in message
    written = shown(tmp_path)
    assert not any(written.values()) if name in IN_PLACE else written == {}


OWN = sorted(set(WRITERS) - {"preparation", "output"})
"""Those that write into folders of ours; a preparation begins with a new folder."""


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", OWN)
def test_links_and_pipes_are_replaced_in_folders_of_ours(tmp_path, name, kind):
    clean, hostile, precious = (tmp_path / x for x in ("clean", "hostile", "precious"))
    clean.mkdir()
    hostile.mkdir()
    precious.write_text("precious")
    WRITERS[name](clean)
    files = [path.relative_to(clean) for path in clean.rglob("*") if path.is_file()]
    files = [x for x in files if "tensorboard" not in x.parts and x.parts[0] != "checkpoints"]
    # Settings that are there are read, and not written.
    files = [x for x in files if not x.name.startswith("config") and x.name != "SHA256SUMS"]
    for file in files:
        (hostile / file).parent.mkdir(parents=True, exist_ok=True)
        for before in ("", ".partial-", f".partial-{os.getpid()}-"):
            place = hostile / file.with_name(before + file.name)
            place.symlink_to(precious) if kind == "link" else os.mkfifo(place)
    WRITERS[name](hostile)
    assert precious.read_text() == "precious"
    for file in files:
        assert stat.S_ISREG((hostile / file).lstat().st_mode)
