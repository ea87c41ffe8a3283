"""The work on one run: every measure once, and what is changed by hand is noticed."""

import re
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import save
from shapeshift._system.locks import LockedError, locked
from shapeshift.config import parse_config
from shapeshift.positions import registry
from shapeshift.run.measures import Result, kept_lines
from shapeshift.run.record import RunFolder
from shapeshift.study import work as working
from shapeshift.study.grid import PlannedRun
from shapeshift.study.launchers import InProcess
from shapeshift.study.measured import Measured
from shapeshift.study.runner import run_all
from shapeshift.study.work import BUSY, STOPPED, attempt

from ..conftest import do_work, flip, make_order, snapshot
from .conftest import record_measure

BUCKETS = ["evaluation.length_buckets=[5]"]
STUB = """
import signal

from shapeshift.positions import Representation
from shapeshift.run.measures import Result

calls = []

def STUB(run, data, name="STUB"):
    calls.append(name)
    return [Result(metric="pairs", value=len(data.test), split="test")]

def OTHER(run, data):
    return STUB(run, data, "OTHER")

def stopped(run, data):
    signal.raise_signal(signal.SIGTERM)

def broken(run, data):
    raise RuntimeError("this measure is broken")

class Kind(Representation):
    places = ("self",)
"""


@pytest.fixture(autouse=True)
def stub(tmp_path_factory, monkeypatch):
    """The module of stub measures."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "stub_measures.py").write_text(STUB, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "stub_measures", raising=False)
    import stub_measures

    return stub_measures


@pytest.fixture(scope="module")
def trained(make_config, tmp_path_factory):
    """A run that is trained, and no more."""
    root = tmp_path_factory.mktemp("work")
    folder = RunFolder(root / "run")
    config = make_config("training.max_updates=15")
    do_work(folder, config, [], root / "prepared", command="make run")
    return SimpleNamespace(folder=folder, config=config, prepared=root / "prepared")


@pytest.fixture
def planned(trained, tmp_path):
    """A copy of it."""
    shutil.copytree(trained.folder.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def test_steps_are_done_once_and_a_new_one_is_done_alone(
    planned, trained, stub, monkeypatch, make_config
):
    monkeypatch.setattr(working, "train", None)  # calling it would fail
    config, first = trained.config, ["stub_measures:STUB"]
    do_work(planned, config, first, trained.prepared, command="first")
    do_work(planned, config, [*first, "stub_measures:OTHER"], trained.prepared, command="second")
    assert stub.calls == ["STUB", "OTHER"]
    records = {name: planned.record(f"stub_measures:{name}", config) for name in ("STUB", "OTHER")}
    assert [record.command for record in records.values()] == ["first", "second"]
    assert records["STUB"].results[0].value == 21
    do_work(planned, make_config("training.max_updates=15", *BUCKETS), first, trained.prepared)
    assert stub.calls == ["STUB", "OTHER", "STUB"]  # other buckets measure again
    train_record = planned.record("train", config)
    assert train_record.options["position.parts.0.base"] == 10_000
    assert train_record.command == "make run"
    assert train_record.checkpoint == records["STUB"].checkpoint
    assert len(train_record.checkpoint) == 64
    assert all("thread" in record.hardware for record in records.values())  # of a CPU


def attempt_here(planned, trained, measures):
    return attempt(make_order(planned, trained.config, measures, trained.prepared))


def test_a_failing_measure_leaves_its_traceback_and_keeps_what_was_done(planned, trained):
    measures = ["stub_measures:STUB", "stub_measures:broken", "stub_measures:OTHER"]
    assert attempt_here(planned, trained, measures) == 1
    assert planned.last_lines()[-1] == "RuntimeError: this measure is broken"
    assert planned.missing(measures, trained.config) == measures[1:]
    assert attempt_here(planned, trained, ["nothing"]) == 1
    [line] = planned.last_lines()  # what the user can fix
    assert line.startswith("error: unknown measure 'nothing'")


def test_a_process_that_is_stopped_while_it_measures_says_so(planned, trained, monkeypatch):
    order = make_order(planned, trained.config, ["stub_measures:stopped"], trained.prepared)
    monkeypatch.setattr(sys, "argv", ["work", order.model_dump_json()])
    monkeypatch.setattr(working, "end_with_parent", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            working.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == STOPPED
    assert planned.last_lines() == ["stopped by SIGTERM; the same command goes on"]


def test_a_cell_that_is_locked_is_left_alone(planned, trained):
    with locked(planned.lock):
        planned.output.write_text("of the process at work\n", encoding="utf-8")
        assert attempt_here(planned, trained, []) == BUSY
        with pytest.raises(LockedError):
            do_work(planned, trained.config, [], trained.prepared)
    assert planned.last_lines() == ["of the process at work"]


def test_other_text_is_not_measured(planned, trained, text, make_config, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(text, other)
    moved = make_config("training.max_updates=15", f"data.corpus.root={other}")
    do_work(planned, moved, ["stub_measures:STUB"], trained.prepared)  # the same text, elsewhere
    for name in ("test.low", "test.up"):
        path = other / name
        path.write_text(path.read_text("utf-8").replace("a", "b").replace("A", "B"), "utf-8")
    with pytest.raises(ShapeshiftError, match="trained on other text"):
        do_work(planned, moved, ["stub_measures:OTHER"], trained.prepared)


def test_a_run_is_of_no_use_once_its_start_has_other_weights(trained, make_config, tmp_path):
    start = shutil.copytree(trained.folder.run, tmp_path / "start")
    config = make_config("training.max_updates=15", f"training.init_from={start}")
    planned = PlannedRun("mine", "tiny", {}, 1, config, ("stub_measures:STUB",))
    folder, average = RunFolder(tmp_path / planned.key), start / "average.safetensors"
    do_work(folder, config, [], trained.prepared)
    before = average.read_bytes()
    average.write_bytes(before + b" ")
    said = "began from other weights than .*start now has; give each"
    with pytest.raises(ShapeshiftError, match=said):
        run_all([planned], tmp_path, InProcess(), prepared_root=trained.prepared)
    with pytest.raises(ShapeshiftError, match=said):
        do_work(folder, config, planned.measures, trained.prepared)
    average.write_bytes(before)
    do_work(folder, config, planned.measures, trained.prepared)
    average.unlink()  # nothing to compare with
    assert run_all([planned], tmp_path, InProcess(), prepared_root=trained.prepared) == []


def test_damaged_translations_are_made_again(planned, trained):
    path = planned.run / "results" / "test.average.txt"
    do_work(planned, trained.config, ["score-test"], trained.prepared)
    lines = kept_lines(planned.run, "test", "average")
    path.write_text(path.read_text("utf-8").swapcase(), "utf-8")
    with pytest.raises(ShapeshiftError, match=r"average\.txt: differs .*; remove the record") as x:
        kept_lines(planned.run, "test", "average")
    assert f"{planned.path / 'measures'}, and it is made again" in str(x.value)
    (record,) = (planned.path / "measures").glob("score-test.*.json")
    record.unlink()
    do_work(planned, trained.config, ["score-test"], trained.prepared)
    assert kept_lines(planned.run, "test", "average") == lines


SUBWORDS, AVERAGED = "subwords/joint.model", "average.safetensors"


@pytest.mark.parametrize(
    ("name", "damage"), [(SUBWORDS, flip), (AVERAGED, flip), (AVERAGED, Path.unlink)]
)
def test_what_a_new_measure_needs_of_a_trained_run_is_made_again(planned, trained, name, damage):
    damage(planned.run / name)
    do_work(planned, trained.config, ["score-test"], trained.prepared)
    assert (planned.run / name).read_bytes() == (trained.folder.run / name).read_bytes()
    assert planned.missing(["score-test"], trained.config) == []


def test_a_run_without_weights_is_left_as_it_is_and_can_be_made_again(planned, trained):
    shutil.rmtree(planned.run / "checkpoints")
    (planned.run / AVERAGED).unlink()
    before = snapshot(planned.run)
    with pytest.raises(ShapeshiftError, match="without weights; remove this folder") as error:
        do_work(planned, trained.config, ["score-test"], trained.prepared)
    assert snapshot(planned.run) == before
    shutil.rmtree(error.value.path)
    do_work(planned, trained.config, ["score-test"], trained.prepared)


OWN_KIND = 'position={name: mine, parts: [{kind: "stub_measures:Kind"}]}'


@pytest.mark.parametrize(
    ("overrides", "measures"), [([], ["stub_measures:STUB"]), ([OWN_KIND], [])]
)
def test_a_module_that_changes_while_runs_wait_is_not_taken_for_the_old_one(
    stub, make_config, tmp_path, monkeypatch, overrides, measures
):
    monkeypatch.setattr(registry, "_own", {})
    config = make_config("training.max_updates=15", *overrides)
    own_modules._source.cache_clear()
    order = make_order(RunFolder(tmp_path / "run"), config, measures, tmp_path)
    with Path(stub.__file__).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    own_modules._source.cache_clear()  # as in a new process
    with pytest.raises(ShapeshiftError, match="has changed since the command began"):
        working.work(order)
    own_modules._source.cache_clear()


def test_a_measure_is_not_done_before_its_examples_are_written(tmp_path, monkeypatch):
    config, saved = parse_config({}), []

    def save_two(path, content):
        if len(saved) == 2:
            raise ShapeshiftError("the disk is full")
        saved.append(path.name)
        save(path, content)

    monkeypatch.setattr("shapeshift._system.hashes.save", save_two)
    result = Result(metric="accuracy", value=0.5, split="test", examples=(0.0, 1.0))
    with pytest.raises(ShapeshiftError, match="full"):
        record_measure(tmp_path, config, "train", [result])
    assert saved == ["SHA256SUMS", "train.examples.json"]
    assert RunFolder(tmp_path).missing([], config) == ["train"]


def test_translations_that_another_study_has_detokenised_are_not_compared(
    trained, make_config, tmp_path
):
    pytest.importorskip("sacremoses")
    moses = make_config("training.max_updates=15", "evaluation.detokenize=moses")
    runs = [PlannedRun("mine", "tiny", {}, 1, config) for config in (trained.config, moses)]
    raw = runs[0]
    folder = RunFolder(tmp_path / raw.key)
    shutil.copytree(trained.folder.path, folder.path)
    for planned in runs:
        do_work(folder, planned.config, ["score-test"], trained.prepared)
    measured = Measured(runs, tmp_path, trained.prepared)
    kept = kept_lines(folder.run, "test", "average")
    assert measured.translations(runs[1], "test") == kept
    with pytest.raises(ShapeshiftError, match="detokenize=moses in place of none") as error:
        measured.translations(raw, "test")
    pattern = Path(re.search(r"remove (\S+) and", str(error.value))[1])  # what the message says
    for path in tmp_path.glob(str(pattern.relative_to(tmp_path))):
        path.unlink()
    do_work(folder, raw.config, ["score-test"], trained.prepared)
    assert len(measured.translations(raw, "test")) == len(kept)


def test_a_cell_is_not_changed_through_a_linked_folder(make_config, prepared, tmp_path):
    config, theirs = make_config("training.max_updates=3"), tmp_path / "theirs"
    for name in ("run", "run/run", "run/measures"):
        folder = RunFolder(tmp_path / name.replace("/", "-") / "run")
        link = folder.path.parent / name
        (theirs / name).mkdir(parents=True, exist_ok=True)
        (theirs / name / ".partial-mine").write_text("precious")
        link.parent.mkdir(parents=True)
        link.symlink_to(theirs / name)
        before = snapshot(theirs)
        with pytest.raises(ShapeshiftError, match="is a link to"):
            do_work(folder, config, [], prepared)
        assert snapshot(theirs) == before


def test_a_lack_of_memory_is_one_line_of_the_log(make_config, prepared, tmp_path, monkeypatch):
    def exhaust(*arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    monkeypatch.setattr(working, "work", exhaust)
    assert attempt(make_order(folder, make_config(), [], prepared)) == 1
    [line] = folder.last_lines()
    assert line.startswith("error: out of memory (DefaultCPUAllocator")
