"""The runner, with runs that are stubs."""

import json
import shutil
from dataclasses import replace

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.locks import locked
from shapeshift.config import parse_config
from shapeshift.run.folder import AVERAGE, Run
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun
from shapeshift.study.launchers import Job, RefusedError
from shapeshift.study.results import collect
from shapeshift.study.runner import State, run_all
from shapeshift.study.work import BUSY

from .conftest import record_measure

CONFIG = parse_config({"model": {"size": "tiny"}, "training": {"max_updates": 40}})


def plan_run(seed, grid="mine", measures=(), settings=()):
    config = parse_config(CONFIG.model_dump(), [*settings, f"training.seed={seed}"])
    return PlannedRun(grid, "tiny", {"position": "ape"}, seed, config, measures)


def finish(folder, measures, config=CONFIG):
    for measure in ("train", *measures):
        record_measure(folder.path, config, measure)


class Stub:
    """A launcher whose jobs take `rounds` looks; `statuses` gives what they exit with, in turn.
    It refuses more than `limit` jobs."""

    max_threads = None

    def __init__(self, num_slots=1, rounds=1, statuses=None, limit=99):
        self.num_slots, self.rounds, self.limit = num_slots, rounds, limit
        self.statuses = statuses or {}
        self.started, self.refused, self.interrupted, self.running = [], [], [], set()
        self.configs, self.missing = [], []

    def start(self, order, slot):
        assert slot not in self.running
        if len(self.running) >= self.limit:
            self.refused.append(order.folder.name)
            raise RefusedError("too many jobs")
        self.started.append((order.folder.name, slot))
        self.configs.append(order.config)
        self.missing.append(RunFolder(order.folder).missing(order.measures, order.config))
        self.running.add(slot)
        return StubJob(self, order, slot)


class StubJob(Job):
    def __init__(self, launcher, order, slot):
        self.launcher, self.order, self.slot, self.left = launcher, order, slot, launcher.rounds

    def poll(self):
        self.left -= 1
        if self.left >= 0:
            return None
        self.launcher.running.discard(self.slot)
        turns = self.launcher.statuses.get(self.order.folder.name, [])
        status = turns.pop(0) if turns else 0
        if status == 0:
            finish(RunFolder(self.order.folder), self.order.measures, self.order.config)
        return status

    def interrupt(self):
        self.launcher.interrupted.append(self.order.folder.name)

    def output(self):
        return ["it went", "wrong"]


class Recorder:
    """Keeps what it is told, and then calls `then` with the state."""

    def __init__(self, then=lambda state: None):
        self.states, self.then = {}, then

    def __call__(self, planned, state, measure, progress):
        self.measure, self.progress = measure, progress
        states = self.states.setdefault(planned.name, [])
        if not states or states[-1] != state:
            states.append(state)
        self.then(state)


def run(runs, root, launcher, changed=lambda *_: None):
    return run_all(runs, root, launcher, changed=changed, poll_s=0.0, command="x")


def test_every_cell_runs_once_with_the_measures_of_all_its_grids(tmp_path):
    grids = {"mine": ("score-test", "speed"), "other": ("similarity", "speed")}
    places = [(0, "mine"), (1, "mine"), (1, "other"), (2, "other")]
    runs = [plan_run(seed, grid, grids[grid]) for seed, grid in places]
    launcher, recorder = Stub(num_slots=2, rounds=2), Recorder()
    assert run(runs, tmp_path, launcher, recorder) == []
    assert {slot for _, slot in launcher.started} == {0, 1}
    assert [name for name, _ in launcher.started] == [runs[n].key for n in (0, 1, 3)]
    assert set(map(tuple, recorder.states.values())) == {("waiting", "running", "finished")}
    measures = [[*(tmp_path / key / "measures").glob("*.json")] for key, _ in launcher.started]
    assert [{path.name.split(".")[0] for path in own} for own in measures] == [
        {"train", "score-test", "speed"},
        {"train", "score-test", "speed", "similarity"},
        {"train", "speed", "similarity"},
    ]
    again = Stub()
    assert run(runs, tmp_path, again) == []
    assert again.started == []


def test_a_run_that_grids_score_in_different_ways_is_trained_once_and_scored_in_each(tmp_path):
    own = {"mine": "evaluation.length_buckets=[5]", "other": "training.keep_checkpoints=20"}
    runs = [plan_run(1, grid, ("score-test",), [own[grid]]) for grid in own]
    assert len({planned.key for planned in runs}) == 1
    launcher, recorder = Stub(num_slots=2, rounds=2), Recorder()
    assert run(runs, tmp_path, launcher, recorder) == []
    assert launcher.missing == [["train", "score-test"], ["score-test"]]
    assert {slot for _, slot in launcher.started} == {0}  # one after the other
    assert recorder.states == {"ape/1": ["waiting", "running"] * 2 + ["finished"]}
    assert all(RunFolder(tmp_path / x.key).record("score-test", x.config) for x in runs)
    assert {config.training.keep_checkpoints for config in launcher.configs} == {20}


def test_a_failed_cell_is_reported_and_does_not_stop_the_others(tmp_path, monkeypatch):
    runs = [plan_run(seed) for seed in range(3)]
    failed = run(runs, tmp_path, Stub(statuses={runs[1].key: [1]}))
    assert failed == [(runs[1], "it went\nwrong")]
    assert run(runs, tmp_path, Stub()) == []
    monkeypatch.setattr(f"{__name__}.finish", lambda *_: None)
    assert run([plan_run(9)], tmp_path, Stub())  # claims success without its measures


def test_a_run_that_could_not_say_why_it_failed_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(StubJob, "output", lambda self: [])
    runs = [plan_run(seed) for seed in range(3)]
    killed, _, full = folders = [RunFolder(tmp_path / planned.key) for planned in runs]
    for folder in folders:
        folder.path.mkdir()
    killed.output.write_text("a warning\n", encoding="utf-8")
    full.output.mkdir()  # so that nothing can be written there
    statuses = dict(zip((planned.key for planned in runs), ([-9], [1], [1]), strict=True))
    messages = [message for _, message in run(runs, tmp_path, Stub(statuses=statuses))]
    assert messages[0] == "a warning\nended by signal 9 (Killed)"
    assert messages[1] == "ended with status 1 and no message"
    assert messages[2].startswith(f"{full.output}: cannot be written: ")


def test_a_cell_that_turns_out_busy_is_tried_again_after_the_others(tmp_path):
    runs = [plan_run(seed) for seed in range(2)]
    launcher = Stub(statuses={runs[0].key: [BUSY, BUSY, 0]})
    assert run(runs, tmp_path, launcher) == []
    assert [runs[0].key, runs[1].key, runs[0].key, runs[0].key] == [
        name for name, _ in launcher.started
    ]


def test_a_cell_that_another_runner_finishes_is_waited_for_and_not_started(tmp_path):
    runs = [plan_run(1), plan_run(2)]
    folder = RunFolder(tmp_path / runs[0].key)
    folder.path.mkdir()
    launcher = Stub()

    def then(state):
        if state is State.ELSEWHERE:  # as the other runner would, later
            finish(folder, ())

    recorder = Recorder(then)
    with locked(folder.lock):
        assert run(runs, tmp_path, launcher, recorder) == []
    assert [name for name, _ in launcher.started] == [runs[1].key]
    assert recorder.states[runs[0].name] == ["waiting", "elsewhere", "finished"]


def test_as_many_run_at_a_time_as_the_launcher_takes(tmp_path):
    runs = [plan_run(seed) for seed in range(4)]
    launcher = Stub(num_slots=9, rounds=5, limit=2)
    assert run(runs, tmp_path, launcher) == []
    assert [name for name, _ in launcher.started] == [planned.key for planned in runs]
    assert (launcher.refused, launcher.interrupted) == ([runs[2].key], [])
    with pytest.raises(RefusedError, match="too many jobs"):  # while none is running
        run([plan_run(10)], tmp_path, Stub(limit=0))


def test_ctrl_c_stops_the_jobs_and_says_so(tmp_path):
    runs = [plan_run(1), plan_run(2)]
    keys = [planned.key for planned in runs]

    def then(state):
        if state is State.STOPPING:
            assert launcher.interrupted == keys
        elif state is State.RUNNING and len(launcher.started) == 2:
            raise KeyboardInterrupt

    launcher, recorder = Stub(num_slots=2, rounds=9), Recorder(then)
    with pytest.raises(KeyboardInterrupt):
        run(runs, tmp_path, launcher, recorder)
    assert launcher.interrupted == keys
    ends = {name: states[-1] for name, states in recorder.states.items()}
    assert ends == {"ape/1": "stopping", "ape/2": "stopping"}


@pytest.mark.parametrize("setting", ["model.dropout=0.3", "training.max_updates=20"])
def test_a_run_of_a_version_with_other_defaults_is_not_taken_for_this_one(tmp_path, setting):
    """Its folder has the same name, which leaves out defaults."""
    planned = plan_run(1)
    folder = RunFolder(tmp_path / planned.key)
    run = Run.create(folder.run, parse_config(planned.config.model_dump(), [setting]))
    finish(folder, [], planned.config)
    (run.directory / AVERAGE).touch()
    launcher = Stub()
    told = rf"another {setting.partition('=')[0]}, made by a version with other defaults; .*--dir"
    for read in (
        lambda: run_all([planned], tmp_path, launcher),
        lambda: collect([planned], tmp_path),
    ):
        with pytest.raises(ShapeshiftError, match=told):
            read()
    assert launcher.started == []
    shutil.rmtree(run.directory)
    Run.create(folder.run, planned.config)
    (run.directory / AVERAGE).touch()
    assert run_all([planned], tmp_path, launcher) == []


def test_a_default_of_an_option_of_a_kind_is_compared_as_well(tmp_path):
    """A configuration leaves it out."""
    planned = plan_run(1, settings=["position=rope"])
    folder = RunFolder(tmp_path / planned.key)
    (Run.create(folder.run, planned.config).directory / AVERAGE).touch()
    finish(folder, [], planned.config)
    record = folder.record("train", planned.config)
    for base, told in ((10_000.0, None), (500.0, r"with another position\.parts\.0\.base, made")):
        options = {"position.parts.0.base": base, "position.parts.0.of_old": 1}
        folder.write_record(record.model_copy(update={"options": options}), planned.config)
        if told is None:
            assert run_all([planned], tmp_path, Stub()) == []
        else:
            with pytest.raises(ShapeshiftError, match=told):
                run_all([planned], tmp_path, Stub())


def test_a_finished_cell_of_other_text_is_refused_but_without_text_it_is_trusted(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    corpus = {"corpus": "files", "source": "en", "target": "de"}
    corpus |= {split: ["a"] for split in ("train", "valid", "test")}

    def planned_on(root):
        document = {"model": {"size": "tiny"}, "data": {"corpus": corpus | {"root": str(root)}}}
        return PlannedRun("mine", "tiny", {"position": "ape"}, 1, parse_config(document))

    planned = planned_on(tmp_path)
    folder = RunFolder(tmp_path / "runs" / planned.key)
    finish(folder, ())
    for measures in ((), ("score-test",)):  # all is done, or it is trained and not yet measured
        launcher = Stub()
        with pytest.raises(ShapeshiftError, match="trained on other text"):
            run([replace(planned, measures=measures)], tmp_path / "runs", launcher)
        assert launcher.started == []
    assert run([planned_on("no")], tmp_path / "runs", Stub()) == []


def test_a_status_is_read_from_the_cell_s_folder(tmp_path):
    planned = plan_run(1, measures=("score-test",))
    folder, report = RunFolder(tmp_path / planned.key), Recorder()
    Run.create(folder.run, planned.config)
    progress = {"update": 20, "loss": 2.5, "tokens_per_s": 7.0}
    for written, expected in (
        ("", {}),
        ('{"update": 2', {}),
        (json.dumps(progress) + '\n{"update": 20, "valid_loss": 3.0}\n{"upd', progress),
    ):
        (folder.run / "log.jsonl").write_text(written, encoding="utf-8")
        run([planned], tmp_path, Stub(statuses={planned.key: [1]}), report)
        assert (report.measure, report.progress) == ("train", expected)
    finish(folder, ())
    run([planned], tmp_path, Stub(statuses={planned.key: [1]}), report)
    assert report.measure == "score-test"
