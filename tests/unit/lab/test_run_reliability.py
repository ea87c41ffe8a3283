"""What a run does about damaged files, a full disk, and leftovers of a stop."""

import shutil

import pytest
import sentencepiece

from shapeshift import disk
from shapeshift.cli.progress import show_resumed
from shapeshift.config import load_config
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.run import Run
from shapeshift.lab.train import train
from shapeshift.training.manifest import MODEL
from shapeshift.training.trainer import Silent


@pytest.fixture(scope="module")
def finished(make_config, tmp_path_factory):
    """A short run, and a function that trains again on the same prepared data."""
    folder = tmp_path_factory.mktemp("finished")

    def again(directory, *overrides, **options):
        config = make_config("training.max_updates=6", "training.checkpoint_every=2", *overrides)
        return train(config, directory, Silent(), prepared_root=folder / "prepared", **options)

    return again(folder / "run"), again


def test_a_damaged_checkpoint_is_announced_and_made_again(finished, tmp_path, capsys):
    run, again = finished
    shutil.copytree(run.directory, tmp_path / "run")
    path = Run(tmp_path / "run").checkpoints.path(6) / MODEL
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    told = []
    again(tmp_path / "run", on_resume=told.append)
    (resumed,) = told
    assert resumed.progress.update == 4
    assert path.read_bytes() == whole
    aside = path.parent.with_name(f"damaged-{path.parent.name}")
    assert (aside / MODEL).read_bytes() == whole[:-1]
    assert (tmp_path / "run" / "average.safetensors").read_bytes() == run.weights().read_bytes()

    show_resumed(resumed)
    assert capsys.readouterr().err.split("\n") == [
        f"warning: checkpoint of update 6 is damaged (model.safetensors: differs from what"
        f" was saved (SHA-256)); kept as {aside}",
        f"going on after update 4, from {path.parent.with_name('update-00000004')}",
        "",
    ]

    told.clear()  # there is nothing left to do, and nothing to tell
    again(tmp_path / "run", on_resume=told.append)
    assert told == []


def test_translating_refuses_a_damaged_checkpoint(finished, tmp_path):
    run, _ = finished
    shutil.copytree(run.directory, tmp_path / "run")
    copied = Run(tmp_path / "run")
    for which in ("last", "average"):
        path = copied.weights(which)
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        with pytest.raises(ShapeshiftError, match="differs from what was saved") as caught:
            copied.model(which)
        assert "\n" not in str(caught.value)


def test_a_disk_that_is_too_small_ends_the_run_before_it_begins(finished, tmp_path, monkeypatch):
    _, again = finished

    class Usage:
        free = 100_000

    with monkeypatch.context() as patch:
        patch.setattr(disk.shutil, "disk_usage", lambda path: Usage)
        with pytest.raises(
            ShapeshiftError, match=r"needs up to .* 100,000 are free; .*keep_checkpoints"
        ) as caught:
            again(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "log.jsonl").exists()
    assert again(tmp_path / "run").checkpoints.updates() == [2, 4, 6]


def test_a_stop_while_the_folder_was_made_does_no_harm(make_config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".partial-config.yaml").write_text("model: {di", encoding="utf-8")
    run = Run.create(tmp_path / "run", make_config())
    assert run.config == make_config()
    assert sorted(x.name for x in run.directory.iterdir()) == ["SHA256SUMS", "config.yaml"]


RECORDED = ("config.yaml", "data.json", "subwords/joint.model")


def flip(path):
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def files(directory):
    paths = [x for x in directory.rglob("*") if x.is_file() and "tensorboard" not in x.parts]
    return {x.relative_to(directory).as_posix(): x.read_bytes() for x in paths}


@pytest.mark.parametrize("damage", [flip, lambda path: path.unlink()], ids=["flipped", "missing"])
@pytest.mark.parametrize("name", RECORDED)
def test_the_training_command_restores_what_is_damaged(finished, tmp_path, name, damage):
    run, again = finished
    shutil.copytree(run.directory, tmp_path / "run")
    damage(tmp_path / "run" / name)
    if name != "data.json":  # which translating does not read
        with pytest.raises(ShapeshiftError, match="run the same training command again") as caught:
            Run(tmp_path / "run").model()
        assert caught.value.path == tmp_path / "run" / name
    again(tmp_path / "run")
    assert files(tmp_path / "run") == files(run.directory)


def test_edited_settings_are_not_those_of_the_run(finished, tmp_path):
    run, _ = finished
    shutil.copytree(run.directory, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text().replace("num_heads: 2", "num_heads: 4"))
    edited = load_config(path)
    for opening in (lambda: Run(tmp_path / "run"), lambda: Run.create(tmp_path / "run", edited)):
        with pytest.raises(ShapeshiftError, match=r"config\.yaml: differs from what was written"):
            opening()
    (tmp_path / "run" / "SHA256SUMS").unlink()
    assert Run(tmp_path / "run").config.model.num_heads == 4


def test_damaged_hashes_are_not_taken_for_a_run_of_an_earlier_version(finished, tmp_path):
    run, again = finished
    shutil.copytree(run.directory, tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").write_bytes(b"")
    for opening in (Run, again):
        with pytest.raises(ShapeshiftError, match=r"SHA256SUMS: differs .*; remove it to use"):
            opening(tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").unlink()
    Run(tmp_path / "run").model()  # as a run of an earlier version
    again(tmp_path / "run")
    assert files(tmp_path / "run") == files(run.directory)


def test_a_damaged_account_of_a_run_without_hashes_ends_in_one_line(finished, tmp_path):
    run, again = finished
    shutil.copytree(run.directory, tmp_path / "run")
    (tmp_path / "run" / "SHA256SUMS").unlink()
    (tmp_path / "run" / "data.json").write_bytes(b"{")
    with pytest.raises(ShapeshiftError, match=r"data\.json: is damaged, .*; remove it") as caught:
        again(tmp_path / "run")
    assert "\n" not in str(caught.value)
    (tmp_path / "run" / "data.json").unlink()
    again(tmp_path / "run")
    assert files(tmp_path / "run") == files(run.directory)


def test_subword_models_that_were_trained_anew_are_not_mixed_with_the_run_s(
    finished, tmp_path, monkeypatch
):
    run, _ = finished
    shutil.copytree(run.directory, tmp_path / "run")
    trained = sentencepiece.SentencePieceTrainer.train

    def other_version(**settings):
        trained(**settings | {"split_digits": True})

    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", other_version)
    config = Run(tmp_path / "run").config
    with pytest.raises(ShapeshiftError, match="was trained with other subword models than those"):
        train(config, tmp_path / "run", Silent(), prepared_root=tmp_path / "prepared")
    assert files(tmp_path / "run") == files(run.directory)
