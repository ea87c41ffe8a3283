"""Settings, checkpoints, final model and results of a run always belong together."""

import shutil

import pytest
from safetensors import safe_open

from shapeshift._system.errors import ShapeshiftError
from shapeshift.run.folder import AVERAGE, Run
from shapeshift.run.measures import translate_and_score
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL
from shapeshift.training.trainer import Trainer

from ..conftest import flip, snapshot


def averaged(directory):
    with safe_open(directory / AVERAGE, "pt") as file:
        return file.metadata()["average_of"].split()


def make_best(patch, best):
    """Let the validation after one update have the lowest loss."""
    patch.setattr(Trainer, "_valid_loss", lambda self: 1.0 + (self.progress.update != best))


def test_fewer_updates_than_were_done_are_refused(finished, again, copied):
    with pytest.raises(KeyboardInterrupt):
        again(copied, "training.max_updates=12", stop_at=9)
    before = snapshot(copied)
    ways = r"8 updates.*max_updates=6; name a new folder, or .* training\.max_updates=12$"
    with pytest.raises(ShapeshiftError, match=ways):
        again(copied)  # the original command
    assert snapshot(copied) == before
    again(copied, "training.max_updates=12")
    with pytest.raises(ShapeshiftError, match="12 updates"):
        again(copied)
    new = again(copied.with_name("new"))
    assert new.weights().read_bytes() == finished.weights().read_bytes()


def test_a_run_may_end_where_it_was_stopped(finished, again, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        again(folder, "training.max_updates=12", "training.validate_every=12", stop_at=7)
    again(folder, "training.validate_every=12")
    assert averaged(folder) == ["update-00000004", "update-00000006"]
    assert (folder / AVERAGE).read_bytes() == finished.weights().read_bytes()
    log = read_log(folder / "log.jsonl")
    assert [line["update"] for line in log if "valid_loss" in line] == [6]


@pytest.mark.parametrize("override", ["decoding.beam=2", "training.max_updates=8"])
def test_results_of_older_settings_are_deleted(again, copied, override):
    translate_and_score(Run(copied), prepared_root=again.prepared)
    for overrides in ((), ("decoding.buffer_size=10", "training.log_every=5")):
        again(copied, *overrides)
        assert (copied / "results" / "test.average.json").exists()
    again(copied, override)
    assert not (copied / "results").exists()


@pytest.mark.parametrize("lost", [flip, lambda path: shutil.rmtree(path.parent)])
def test_a_checkpoint_that_the_average_needs_is_missed_at_once(again, tmp_path, monkeypatch, lost):
    run = tmp_path / "run"
    three = ("training.average_checkpoints=3", "training.max_updates=8")
    with pytest.raises(KeyboardInterrupt):
        again(run, *three, stop_at=7)
    lost(Run(run).checkpoints.path(4) / MODEL)
    before = snapshot(run)
    monkeypatch.setattr(Trainer, "fit", None)
    for _ in range(2):
        with pytest.raises(ShapeshiftError, match=r"update-00000004: .*with training\.(.*=2),"):
            again(run, *three)
    assert snapshot(run) == before
    monkeypatch.undo()

    done = again(run, *three, "training.average_checkpoints=2")
    assert done.config.training.average_checkpoints == 2
    assert averaged(run) == ["update-00000006", "update-00000008"]


def test_the_best_checkpoint_is_averaged_only_where_it_is_regular(again, tmp_path, monkeypatch):
    make_best(monkeypatch, 5)
    run = again(tmp_path / "run", "training.validate_every=5")
    assert run.checkpoints.progress(6).best_update == 5
    assert run.checkpoints.updates() == [2, 4, 5, 6]
    assert averaged(run.directory) == ["update-00000004", "update-00000006"]


def test_a_damaged_best_checkpoint_is_not_replaced_by_another(again, tmp_path, monkeypatch):
    make_best(monkeypatch, 2)
    run = again(tmp_path / "run", "training.final_weights=best")
    assert averaged(run.directory) == ["update-00000002"]
    flip(run.weights("best"))
    (run.directory / AVERAGE).unlink()
    with pytest.raises(ShapeshiftError, match=r"training\.final_weights=average"):
        again(run.directory, "training.final_weights=best")
    again(run.directory, "training.final_weights=average")
    assert averaged(run.directory) == ["update-00000004", "update-00000006"]


def test_a_damaged_average_is_made_again_and_else_a_finished_run_is_left_alone(
    finished, again, copied
):
    before = snapshot(copied)
    again(copied)
    assert snapshot(copied) == before
    flip(copied / AVERAGE)
    with pytest.raises(ShapeshiftError, match="run the training command again"):
        Run(copied).model()
    again(copied)
    assert (copied / AVERAGE).read_bytes() == finished.weights().read_bytes()
    flip(Run(copied).checkpoints.path(4) / MODEL)
    again(copied)  # which needs no checkpoint but the newest, as long as the average is there
    flip(copied / AVERAGE)
    with pytest.raises(ShapeshiftError, match=r"average_checkpoints=1"):
        again(copied)
