"""What a run does about damaged files and leftovers of a stop. Its settings, checkpoints, final
model and results always belong together."""

import shutil
from functools import partial
from pathlib import Path

import pytest
import sentencepiece
from safetensors import safe_open

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.progress import Display, TrainingDisplay
from shapeshift.config import load_config
from shapeshift.run.folder import AVERAGE, Run
from shapeshift.run.measures import translate_and_score
from shapeshift.run.train import train
from shapeshift.training.log import read_log
from shapeshift.training.manifest import MODEL
from shapeshift.training.observer import Observer
from shapeshift.training.trainer import Trainer

from ..conftest import flip, snapshot


def test_a_damaged_checkpoint_is_announced_and_made_again(finished, again, copied, capsys):
    path = Run(copied).checkpoints.path(6) / MODEL
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    told = []
    again(copied, on_resume=told.append)
    (resumed,) = told
    assert resumed.progress.update == 4
    assert path.read_bytes() == whole
    aside = path.parent.with_name(f"damaged-{path.parent.name}")
    assert (aside / MODEL).read_bytes() == whole[:-1]
    assert (copied / "average.safetensors").read_bytes() == finished.weights().read_bytes()

    TrainingDisplay(Display(), "mine", 6).resumed(resumed)
    warned, resuming, _ = capsys.readouterr().err.split("\n")
    assert warned.startswith("warning: checkpoint of update 6 is damaged (model.safetensors: ")
    assert warned.endswith(f"kept as {aside}")
    assert resuming.endswith(f"after update 4, from {path.parent.with_name('update-00000004')}")

    told.clear()  # there is nothing left to do, and nothing to tell
    again(copied, on_resume=told.append)
    assert told == []


def test_a_stop_while_the_folder_was_made_does_no_harm(make_config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".partial-config.yaml").write_text("model: {di", encoding="utf-8")
    run = Run.create(tmp_path / "run", make_config())
    assert run.config == make_config()


def test_what_a_killed_process_left_is_removed_by_the_next_training(finished, again, copied):
    for folder in ("", "subwords", "results", "checkpoints"):
        left = copied / folder / ".partial-123-test.average.json"
        left.parent.mkdir(exist_ok=True)
        left.write_text("half")
    again(copied)
    assert list(copied.rglob(".*")) == []
    assert snapshot(copied) == snapshot(finished.directory)


RECORDED = ("config.yaml", "data.json", "subwords/joint.model")


@pytest.mark.parametrize(
    ("name", "damage"), [*((name, flip) for name in RECORDED), (RECORDED[0], Path.unlink)]
)
def test_the_training_command_restores_what_is_damaged(finished, again, copied, name, damage):
    damage(copied / name)
    if name != "data.json":  # which translating does not read
        with pytest.raises(ShapeshiftError, match="run the same training command again") as caught:
            Run(copied).model()
        assert caught.value.path == copied / name
    again(copied)
    assert snapshot(copied) == snapshot(finished.directory)


def test_edited_settings_are_not_those_of_the_run(copied):
    path = copied / "config.yaml"
    path.write_text(path.read_text().replace("num_heads: 2", "num_heads: 4"))
    edited = load_config(path)
    for opening in (lambda: Run(copied), lambda: Run.create(copied, edited)):
        with pytest.raises(ShapeshiftError, match=r"config\.yaml: differs from what was written"):
            opening()
    (copied / "SHA256SUMS").unlink()
    assert Run(copied).config.model.num_heads == 4


def test_damaged_hashes_are_reported_and_may_be_removed(finished, again, copied):
    (copied / "SHA256SUMS").write_bytes(b"")
    for opening in (Run, again):
        with pytest.raises(ShapeshiftError, match=r"SHA256SUMS: differs .*; remove it to use"):
            opening(copied)
    (copied / "SHA256SUMS").unlink()
    (copied / "data.json").unlink()
    again(copied)
    restored, whole = snapshot(copied), snapshot(finished.directory)
    assert restored.pop("SHA256SUMS") != whole.pop("SHA256SUMS")  # the model was not made again
    assert restored == whole


def test_other_text_or_subword_models_are_not_mixed_with_the_run_s(
    finished, copied, text, tmp_path, monkeypatch
):
    other = shutil.copytree(text, tmp_path / "other")
    for path in other.glob("train.*"):
        path.write_text(path.read_text().replace("a", "b").replace("A", "B"))
    trained = sentencepiece.SentencePieceTrainer.train
    for root, option in ((other, {}), (text, {"split_digits": True})):  # as another version has it
        config = Run(copied, [f"data.corpus.root={root}"]).config
        version = partial(trained, **option)
        monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", version)
        with pytest.raises(ShapeshiftError, match="on other text or with other subword models"):
            train(config, copied, Observer(), prepared_root=tmp_path / root.name)
    assert snapshot(copied) == snapshot(finished.directory)


@pytest.mark.parametrize("name", ["checkpoints", "subwords", "results", "tensorboard"])
def test_nothing_is_written_or_deleted_through_a_linked_folder_of_a_run(again, copied, name):
    """Whatever the folder holds: here it would be continued, and tidied."""
    (copied / name).mkdir(exist_ok=True)
    theirs = (copied / name).rename(copied.parent / "elsewhere")
    (theirs / ".partial-mine").write_text("precious")
    (copied / name).symlink_to(theirs)
    before = snapshot(copied), snapshot(theirs)
    with pytest.raises(ShapeshiftError, match=f"{name}: is a link to .*put the folder itself here"):
        again(copied, "training.max_updates=8")
    assert (snapshot(copied), snapshot(theirs)) == before
    (theirs / ".partial-mine").unlink()
    (copied / name).unlink()
    theirs.rename(copied / name)  # the advice
    again(copied, "training.max_updates=8")


def test_the_folder_that_the_user_names_may_be_a_link(again, copied):
    (copied.parent / "link").symlink_to(copied)
    again(copied.parent / "link", "training.max_updates=8")
    assert Run(copied).checkpoints.updates()[-1] == 8


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
