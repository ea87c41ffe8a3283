"""From text to scores through the command line."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from shapeshift import load_run
from shapeshift.evaluation.scores import Scores
from shapeshift.training.log import read_log

from ..unit.cli.running import ENVIRONMENT
from ..unit.cli.running import shapeshift as run_command

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))
from commands import write_run

MAX_UPDATES = 120


def shapeshift(folder, *arguments, stdin=""):
    status, out, err = run_command(folder, *map(str, arguments), stdin=stdin.encode())
    assert status == 0, err
    return out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text, a configuration, prepared data."""
    folder = tmp_path_factory.mktemp("project")
    write_run(folder, MAX_UPDATES, checkpoint_every=20)
    out, _ = shapeshift(folder, "prepare", "toy.yaml")
    prepared = folder / out.split("\n")[-2]
    assert (prepared / "prepared.json").is_file()
    return folder


@pytest.fixture(scope="module")
def trained(folder):
    """What `train` prints, with the data prepared before."""
    before = {x.name for x in (folder / "prepared").iterdir()}
    printed = shapeshift(folder, "train", "toy.yaml", "--run", "run")
    assert {x.name for x in (folder / "prepared").iterdir()} == before
    return printed


def test_training_learns_and_shows_the_scores(folder, trained):
    losses = [x["loss"] for x in read_log(folder / "run" / "log.jsonl") if "loss" in x]
    assert losses[-1] < 0.8 * losses[0]
    scores = Scores.load(folder / "run" / "results" / "test.average.json")
    assert scores.num_segments == 21
    out, err = trained
    assert f"{scores.scores[0].value:.2f}" in out
    assert f"update {MAX_UPDATES} · valid loss" in err


LINES = ["abc de f", "", "fed", "   ", "zzz", "ünknown 丂"]


def test_translate_keeps_lines_and_score_reads_them(folder, trained):
    out, _ = shapeshift(folder, "translate", "run", stdin="".join(x + "\n" for x in LINES))
    lines = out.split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(LINES)
    assert lines[1] == lines[3] == ""
    assert any(lines)
    run = load_run(folder / "run")
    assert run.translate(LINES) == lines
    with pytest.raises(TypeError, match="a list of lines"):
        run.translate("abc")

    shapeshift(folder, "translate", "run", "text/test.low", "-o", "hypotheses.txt")
    expected = (folder / "run" / "results" / "test.average.txt").read_bytes()
    assert (folder / "hypotheses.txt").read_bytes() == expected

    out, _ = shapeshift(folder, "score", "hypotheses.txt", "text/test.up", "--json", "scores.json")
    found = Scores.load(folder / "scores.json").scores[0]
    inside = Scores.load(folder / "run" / "results" / "test.average.json").scores[0]
    assert (found.value, found.signature) == (inside.value, inside.signature)
    assert out.startswith(f"BLEU {found.value:.2f} (")


def test_sigterm_leaves_no_partial_file(folder, trained):
    process = subprocess.Popen(
        [sys.executable, "-m", "shapeshift", "translate", "run", "-o", "stopped.txt"],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob(".partial-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.terminate()
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (143, "stopped by SIGTERM\n")
    assert list(folder.glob("*stopped.txt")) == list(folder.glob(".partial-*")) == []
