"""From text to scores through the command line."""

import subprocess
import sys
import time

import pytest

from shapeshift import load_run
from shapeshift.evaluation.scores import Scores
from shapeshift.training.log import read_log

from ..soak.commands import write_run
from ..unit.cli.running import ENVIRONMENT
from ..unit.cli.running import shapeshift as run_command

MAX_UPDATES = 120


def shapeshift(folder, *arguments, stdin=""):
    status, out, err = run_command(folder, *map(str, arguments), stdin=stdin.encode())
    assert status == 0, err
    return out, err


LINES = ["abc de f", "", "fed", "   ", "zzz", "ünknown 丂"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a run, whose data were prepared before."""
    folder = tmp_path_factory.mktemp("project")
    write_run(folder, MAX_UPDATES, checkpoint_every=20)
    out, _ = shapeshift(folder, "prepare", "toy.yaml")
    assert (folder / out.split("\n")[-2] / "prepared.json").is_file()
    before = {x.name for x in (folder / "prepared").iterdir()}
    out, err = shapeshift(folder, "train", "toy.yaml", "--run", "run")
    assert {x.name for x in (folder / "prepared").iterdir()} == before
    scores = Scores.load(folder / "run" / "results" / "test.average.json")
    assert f"{scores.scores[0].value:.2f}" in out
    assert f"update {MAX_UPDATES} · valid loss" in err
    return folder


def test_a_run_learns_and_what_it_translates_has_its_scores(folder):
    losses = [x["loss"] for x in read_log(folder / "run" / "log.jsonl") if "loss" in x]
    assert losses[-1] < 0.8 * losses[0]
    out, _ = shapeshift(folder, "translate", "run", stdin="".join(x + "\n" for x in LINES))
    *lines, last = out.split("\n")
    assert (len(lines), lines[1], lines[3], last) == (len(LINES), "", "", "")
    run = load_run(folder / "run")
    assert run.translate(LINES) == lines
    with pytest.raises(TypeError, match="a list of lines"):
        run.translate("abc")
    shapeshift(folder, "translate", "run", "text/test.low", "-o", "hypotheses.txt")
    expected = (folder / "run" / "results" / "test.average.txt").read_bytes()
    assert (folder / "hypotheses.txt").read_bytes() == expected
    shapeshift(folder, "score", "hypotheses.txt", "text/test.up", "--json", "scores.json")
    found = Scores.load(folder / "scores.json").scores[0]
    inside = Scores.load(folder / "run" / "results" / "test.average.json").scores[0]
    assert (found.value, found.signature) == (inside.value, inside.signature)


def test_sigterm_leaves_no_partial_file(folder):
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
