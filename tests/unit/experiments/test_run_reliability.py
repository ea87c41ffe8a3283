"""What a run does about damaged checkpoints, a full disk, and leftovers of a stop."""

import shutil

import pytest

from shapeshift import disk
from shapeshift.cli.progress import show_resumed
from shapeshift.errors import ShapeshiftError
from shapeshift.experiments.run import Run, train
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
        f"warning: checkpoint of update 6 is damaged (model.safetensors: has {len(whole) - 1:,}"
        f" bytes, {len(whole):,} were saved); kept as {aside}",
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
            ShapeshiftError, match=r"3 more checkpoints.* 100,000 are free"
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
    assert [x.name for x in run.directory.iterdir()] == ["config.yaml"]
