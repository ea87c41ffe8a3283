"""`--dry-run`, and what `train` says before it trains: no data are needed."""

import re
from pathlib import Path

import pytest

from shapeshift._system import threads
from shapeshift.cli import compare, dry_run, train
from shapeshift.training import estimate

from .running import shapeshift

CONFIGS = Path(__file__).parents[3] / "src" / "shapeshift" / "config" / "shipped"


@pytest.fixture
def measured(monkeypatch):
    """The runs that were asked about; none is measured."""
    asked = []

    def measure(*run):
        asked.append(run)
        return estimate.UpdateTime(2.0, 2.0)

    monkeypatch.setattr(estimate, "measure", measure)
    return asked


@pytest.fixture
def shown(tmp_path):
    """Returns a function: what a command prints of runs, by the first column."""

    def show(*command):
        status, out, err = shapeshift(tmp_path, *map(str, command), "--dry-run")
        assert (status, [*tmp_path.iterdir()]) == (0, []), err
        rows = [re.split(" {2,}", line.strip()) for line in out.splitlines()]
        return {row[0]: row[1:] for row in rows}

    return show


def test_the_papers_model(shown, measured):
    rows = shown("train", "shape-paper", "data.recipe=extrapolate", "position=shape")
    [(parameters, updates, seconds, time, disk)] = [x for x in rows.values() if len(x) == 5][1:]
    assert 60e6 < int(parameters.replace(",", "")) < 63e6
    assert (updates, seconds, time) == ("200,000", "2 s", "111.1 h")
    assert disk.endswith("GB")


def test_measuring_many_models_says_how_far_it_is(tmp_path, measured, monkeypatch):
    """In a pipe, where no status is drawn. Of 24 runs eight differ in more than the seed."""
    monkeypatch.setattr(dry_run, "_PATIENCE_S", 0)
    status, _, said = shapeshift(tmp_path, "reproduce", "nhk:table2", "--dry-run")
    assert (status, len(measured)) == (0, 8)
    first, *lines = [line for line in said.splitlines() if "measur" in line]
    assert first == "measuring a few updates of each of 8 models"
    assert [line.split(",")[0] for line in lines] == [f"{n} of 8 measured" for n in range(1, 8)]


@pytest.mark.parametrize(
    ("updates", "typed", "options", "trains"),
    [
        (50_000, b"y\n", [], True),
        (50_000, b"n\n", [], False),
        (50_000, b"", ["--yes"], True),
        (50_000, None, [], True),  # no terminal: no one is asked
        (40_000, b"", [], True),  # less than a day
        (10**12, b"n\n", [], False),  # after the last date that Python has
    ],
)
def test_more_than_a_day_is_asked_about(
    tmp_path, measured, monkeypatch, updates, typed, options, trains
):
    trained = []
    monkeypatch.setattr(train, "_train", lambda *_: trained.append(1))
    command = ("train", "demo", f"training.max_updates={updates}", *options)
    is_terminal = typed is not None
    status, _, said = shapeshift(tmp_path, *command, stdin=typed or b"", terminal=is_terminal)
    assert (status, bool(trained)) == (not trains, trains), said
    assert f"{updates:,} updates of about 2 s (measured): {updates / 1800:,.1f} h, until" in said
    assert ("more than a day on this machine" in said) == bool(typed)


def test_other_programs_make_an_estimate_a_range(tmp_path, monkeypatch):
    busy = estimate.UpdateTime(0.1, 1.5, others=1.25)
    monkeypatch.setattr(estimate, "measure", lambda *_: busy)
    monkeypatch.setattr(train, "_train", lambda *_: None)
    monkeypatch.setattr(threads, "num_cores", lambda: 2)
    said = shapeshift(tmp_path, "train", "demo", "training.max_updates=1200")[2]
    assert "of about 0.1 s (measured while other programs used 1.2 of 2 cores)" in said
    assert "): 2 min to 30 min, until" in said
    assert "at the latest" in said
    out = shapeshift(tmp_path, "train", "demo", "training.max_updates=1200", "--dry-run")[1]
    assert "2 min to 30 min" in out
    assert "other programs used 1.2 of 2 cores" in out


@pytest.mark.parametrize("command", ["train multi30k", "compare multi30k --position ape,rope"])
def test_text_that_is_missing_is_named_once_and_refused_before_a_step_is_measured(
    tmp_path, measured, command
):
    given = [*command.split(), "data.corpus.root=no"]
    status, out, said = shapeshift(tmp_path, *given, "--dry-run")
    assert (status, "multi30k ape" in out) == (0, True)
    assert said.count("needed before the runs can start: no/train.en: no such file") == 1
    measured.clear()
    status, _, said = shapeshift(tmp_path, *given)
    assert (status, measured) == (1, [])
    assert "no/train.en: no such file" in said


def test_a_step_is_really_measured_with_few_positions(shown):
    """Random text fits the model; of real text, which may be short, nothing is known yet."""
    few = ["position=learned", "position.parts.0.num_positions=20"]
    batch = ["training.batch.max_tokens=62", "training.device=cpu"]
    rows = shown("train", "demo", "model.size=tiny", *few, *batch)
    [(_, _, seconds, *_)] = [x for x in rows.values() if len(x) == 5][1:]
    assert 0 < float(seconds.removesuffix(" s")) < 10


def test_all_runs_of_a_paper_each_model_measured_once(shown, measured):
    settings = ["--profile", "paper", "model.size=tiny", "training.max_updates=1800"]
    rows = shown("reproduce", "shape:table2", *settings)
    assert rows["shape:table2 vanilla/ape/1"][2:4] == ["2 s", "1.0 h"]
    number = sum(name.startswith("shape:table2 ") for name in rows)
    assert number == 22
    assert rows["all"][0] == f"{number}.0 h"
    assert len(measured) < number


def test_the_demo_says_what_its_short_runs_can_show(monkeypatch, capsys):
    monkeypatch.setattr(compare, "compare", lambda *_, **__: None)
    compare.demo()
    assert "compare them at lengths of training" in capsys.readouterr().err
