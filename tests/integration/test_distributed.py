"""Several processes train as one does, and end together.

`ranks.py` runs them all in one go, forked from one process; the tests read what they have seen.
"""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from shapeshift.training.log import read_log

from ..unit.cli.running import python

RANKS = Path(__file__).with_name("ranks.py")
ACCUMULATION = 4


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder of what all processes have seen."""
    folder = tmp_path_factory.mktemp("ranks")
    done = python(RANKS, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "stderr.txt").write_text(done.stderr, encoding="utf-8")
    return folder


def seen(folder, run, rank):
    return json.loads((folder / run / f"{rank}.json").read_text(encoding="utf-8"))


def ends(folder, run):
    return json.loads((folder / "ends.json").read_text(encoding="utf-8"))[run]


def saved(folder, run, file="model"):
    return load_file(folder / run / "checkpoints" / "update-00000006" / f"{file}.safetensors")


def training_lines(folder, run):
    return [line for line in read_log(folder / run / "log.jsonl") if "loss" in line]


def in_turn(parts):
    """Put together what processes have done in turn: theirs[0][0], theirs[1][0], theirs[0][1], …"""
    return [one for together in zip(*parts, strict=True) for one in together]


@pytest.mark.parametrize("world", [2, 4])
def test_several_processes_have_the_data_draws_and_gradient_of_one(ranks, world):
    folder, run = ranks, f"ddp-{world}"
    alone, parts = seen(folder, "ddp-1", 0), [seen(folder, run, rank) for rank in range(world)]
    assert len(alone["pairs"]) == 6 * ACCUMULATION
    assert in_turn(part["pairs"] for part in parts) == alone["pairs"]
    # The offset of each sentence, and which units were dropped.
    assert in_turn(part["draws"] for part in parts) == alone["draws"]
    assert len({json.dumps(draw) for draw in alone["draws"]}) == len(alone["draws"])
    gradients = load_file(folder / run / "gradients.safetensors")
    assert {name.partition(".")[0] for name in gradients} == {"1", "2"}
    assert_close(
        gradients, load_file(folder / "ddp-1" / "gradients.safetensors"), rtol=0, atol=1e-6
    )
    losses = [[line["loss"] for line in training_lines(folder, x)] for x in (run, "ddp-1")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert len(losses[0]) == 6
    for file in ("model", "optimizer"):
        assert_close(saved(folder, run, file), saved(folder, "ddp-1", file), rtol=0, atol=1e-5)


def test_every_update_is_logged_and_saved_once(ranks):
    assert [line["update"] for line in training_lines(ranks, "ddp-2")] == [1, 2, 3, 4, 5, 6]
    folders = sorted(path.name for path in (ranks / "ddp-2" / "checkpoints").iterdir())
    assert folders == ["update-00000004", "update-00000006"]


def test_a_loss_that_is_not_finite_in_one_process_ends_all_before_the_step(ranks):
    reports = [seen(ranks, "nonfinite", rank) for rank in range(2)]
    for report in reports:
        assert report["kind"] == "ShapeshiftError"
        assert "the loss of update 3 is not finite" in report["error"]
        assert report["steps"] == [1, 2]
        assert (report["updates"], report["finite"]) == (2, True)
        assert report["checkpoints"] == [2]


def test_when_one_process_is_killed_the_other_ends_within_a_minute(ranks):
    (status, took_s), (killed, _) = ends(ranks, "killed")[0]
    assert (status, killed) == (1, -9)
    assert took_s < 50
    assert "killed, rank 0: lost another process" in (ranks / "stderr.txt").read_text("utf-8")


def test_a_checkpoint_is_continued_by_another_number_of_processes(ranks):
    report = seen(ranks, "killed", 0)
    assert (report["resumed"], report["began"], report["updates"]) == (2, 2, 6)
    assert_close(saved(ranks, "killed"), saved(ranks, "ddp-1"), rtol=0, atol=1e-5)
    losses = [training_lines(ranks, x)[-1]["loss"] for x in ("killed", "ddp-1")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_signal_that_reaches_one_process_ends_all_after_the_update(ranks):
    for rank in range(2):
        report = seen(ranks, "stopped", f"first-{rank}")
        assert report["kind"] == "StoppedError"
        assert report["error"].startswith("stopped by SIGTERM after update 3, saved in ")
        assert report["updates"] == 3
        assert report["checkpoints"] == [2, 3]
    assert [status for status, _ in ends(ranks, "stopped")[0]] == [0, 0]


def test_after_a_stop_two_processes_end_exactly_as_without(ranks):
    assert_close(saved(ranks, "stopped"), saved(ranks, "ddp-2"), rtol=0, atol=0)
    folders = sorted(path.name for path in (ranks / "stopped" / "checkpoints").iterdir())
    assert folders == ["update-00000004", "update-00000006"]
