"""Settings, checkpoints, final model and results of a run always belong together."""

import json
import shutil
from types import SimpleNamespace

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.final import AVERAGE
from shapeshift.lab.run import Run
from shapeshift.lab.score import translate_and_score
from shapeshift.lab.train import train
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL
from shapeshift.training.trainer import Silent, Trainer

SIX = ("training.max_updates=6", "training.checkpoint_every=2", "training.log_every=1")


@pytest.fixture(scope="module")
def lab(make_config, tmp_path_factory):
    """A finished run of six updates, and a function that trains on the same prepared data."""
    folder = tmp_path_factory.mktemp("lab")

    def go_on(directory, *overrides, **options):
        config = make_config(*SIX, *overrides)
        return train(config, directory, Silent(), prepared_root=folder / "prepared", **options)

    return SimpleNamespace(
        finished=go_on(folder / "run").directory, go_on=go_on, prepared=folder / "prepared"
    )


@pytest.fixture
def copied(lab, tmp_path):
    return shutil.copytree(lab.finished, tmp_path / "run")


def averaged(directory):
    with safe_open(directory / AVERAGE, "pt") as file:
        return json.loads(file.metadata()["shapeshift"])["average_of"]


def damage(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def make_best(patch, best):
    """Let the validation after one update have the lowest loss."""
    patch.setattr(Trainer, "_valid_loss", lambda self: 1.0 + (self.progress.update != best))


def test_fewer_updates_than_were_done_are_refused(lab, copied, interrupting, snapshot):
    with interrupting(9):
        lab.go_on(copied, "training.max_updates=12")
    before = snapshot(copied)
    ways = r"8 updates.*max_updates=6; name a new folder, or .* training\.max_updates=12$"
    with pytest.raises(ShapeshiftError, match=ways):
        lab.go_on(copied)  # the original command
    assert snapshot(copied) == before
    lab.go_on(copied, "training.max_updates=12")
    with pytest.raises(ShapeshiftError, match="12 updates"):
        lab.go_on(copied)
    new = lab.go_on(copied.with_name("new"))
    assert new.weights().read_bytes() == (lab.finished / AVERAGE).read_bytes()


def test_a_run_may_end_where_it_was_stopped(lab, tmp_path, interrupting):
    folder = tmp_path / "run"
    with interrupting(7):
        lab.go_on(folder, "training.max_updates=12", "training.validate_every=12")
    lab.go_on(folder, "training.validate_every=12")
    assert averaged(folder) == ["update-00000004", "update-00000006"]
    assert (folder / AVERAGE).read_bytes() == (lab.finished / AVERAGE).read_bytes()
    log = read_log(folder / "log.jsonl")
    assert [line["update"] for line in log if "valid_loss" in line] == [6]


@pytest.mark.parametrize(
    "override",
    [
        "decoding.beam=2",
        "training.average_checkpoints=1",
        "training.final_weights=best",
        "training.max_updates=8",
    ],
)
def test_results_of_older_settings_are_deleted(lab, copied, override):
    translate_and_score(Run(copied), prepared_root=lab.prepared)
    for overrides in ((), ("decoding.buffer_size=10", "training.log_every=5")):
        lab.go_on(copied, *overrides)
        assert (copied / "results" / "test.average.json").exists()
    lab.go_on(copied, override)
    assert not (copied / "results").exists()


@pytest.mark.parametrize("lost", [damage, lambda path: shutil.rmtree(path.parent)])
def test_a_checkpoint_that_the_average_needs_is_missed_at_once(
    lab, tmp_path, monkeypatch, interrupting, snapshot, lost
):
    run = tmp_path / "run"
    three = ("training.average_checkpoints=3", "training.max_updates=8")
    with interrupting(7):
        lab.go_on(run, *three)
    lost(Run(run).checkpoints.path(4) / MODEL)
    before = snapshot(run)
    monkeypatch.setattr(Trainer, "fit", None)
    for _ in range(2):
        with pytest.raises(ShapeshiftError, match=r"update-00000004: .*with training\.(.*=2),"):
            lab.go_on(run, *three)
    assert snapshot(run) == before
    monkeypatch.undo()

    done = lab.go_on(run, *three, "training.average_checkpoints=2")
    assert done.config.training.average_checkpoints == 2
    assert averaged(run) == ["update-00000006", "update-00000008"]


def test_more_checkpoints_than_are_kept_are_not_averaged(lab, tmp_path, snapshot):
    """Of those that were deleted, or are not regular, none is replaced by another."""
    one = ("training.average_checkpoints=1", "training.keep_checkpoints=1")
    lab.go_on(tmp_path / "run", *one)
    before = snapshot(tmp_path / "run")
    with pytest.raises(ShapeshiftError, match=r"update-00000004: .*average_checkpoints=1"):
        lab.go_on(tmp_path / "run")
    assert snapshot(tmp_path / "run") == before


def test_the_best_checkpoint_is_averaged_only_where_it_is_regular(lab, tmp_path, monkeypatch):
    make_best(monkeypatch, 5)
    run = lab.go_on(tmp_path / "run", "training.validate_every=5")
    assert run.checkpoints.progress(6).best_update == 5
    assert run.checkpoints.updates() == [2, 4, 5, 6]
    assert averaged(run.directory) == ["update-00000004", "update-00000006"]


def test_a_damaged_best_checkpoint_is_not_replaced_by_another(lab, tmp_path, monkeypatch):
    make_best(monkeypatch, 2)
    run = lab.go_on(tmp_path / "run", "training.final_weights=best")
    assert averaged(run.directory) == ["update-00000002"]
    damage(run.weights("best"))
    (run.directory / AVERAGE).unlink()
    with pytest.raises(ShapeshiftError, match=r"training\.final_weights=average"):
        lab.go_on(run.directory, "training.final_weights=best")
    lab.go_on(run.directory, "training.final_weights=average")
    assert averaged(run.directory) == ["update-00000004", "update-00000006"]


def test_a_finished_run_needs_no_checkpoint_but_the_newest(lab, copied):
    average = (copied / AVERAGE).read_bytes()
    damage(Run(copied).checkpoints.path(4) / MODEL)
    lab.go_on(copied)
    assert (copied / AVERAGE).read_bytes() == average
    damage(copied / AVERAGE)
    with pytest.raises(ShapeshiftError, match=r"average_checkpoints=1"):
        lab.go_on(copied)


def test_a_damaged_average_is_made_again(lab, copied):
    whole = load_file(copied / AVERAGE)
    damage(copied / AVERAGE)
    with pytest.raises(ShapeshiftError, match="run the training command again"):
        Run(copied).model()
    lab.go_on(copied)
    assert load_file(copied / AVERAGE).keys() == whole.keys()
    assert (copied / AVERAGE).read_bytes() == (lab.finished / AVERAGE).read_bytes()
