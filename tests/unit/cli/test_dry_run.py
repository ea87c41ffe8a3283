"""`--dry-run` and the question before long training: what they print; no data are needed."""

import re
from contextlib import nullcontext
from io import StringIO
from pathlib import Path

import pytest
import typer

from shapeshift.cli import run_plan, train
from shapeshift.cli.dry_run import show_estimates
from shapeshift.config import load_config, parse_config
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell
from shapeshift.lab.launchers import InProcess
from shapeshift.papers.catalogue import find_items
from shapeshift.papers.planning import plan_items
from shapeshift.training import estimate

from .running import shapeshift

CONFIGS = Path(__file__).parents[3] / "configs"
SMALL = ["model.size=tiny"]
SECONDS = 2.0


@pytest.fixture
def measured(monkeypatch):
    """The runs that were asked about; none is measured."""
    asked = []

    def measure(*run):
        asked.append(run)
        return SECONDS

    monkeypatch.setattr(estimate, "measure", measure)
    return asked


@pytest.fixture
def shown(capsys):
    """Returns a function: what is printed of runs, by the first column."""

    def show(*configs):
        show_estimates([Cell("mine", "", {"position": "ape"}, 1, config) for config in configs])
        return cells(capsys.readouterr().out)

    return show


def cells(text):
    rows = [re.split(" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_papers_model_in_a_pipe(shown, monkeypatch, tmp_path, measured):
    monkeypatch.chdir(tmp_path)
    rows = shown(load_config(CONFIGS / "shape-extrapolate-shape.yaml"))
    number, parameters, updates, seconds, time, disk = rows["mine ape"]
    assert 60e6 < int(parameters.replace(",", "")) < 63e6
    assert (number, updates, seconds, time) == ("1", "200,000", "2 s", "111.1 h")
    assert disk.endswith("GB")
    assert list(tmp_path.iterdir()) == []


def test_a_step_is_really_measured_with_few_positions(shown):
    """Random text fits the model; of real text, which may be short, nothing is known yet."""
    few = ["position=learned", "position.parts.0.num_positions=20"]
    batch = ["training.batch.max_tokens=62", "training.device=cpu"]
    rows = shown(parse_config({}, [*SMALL, *few, *batch]))
    assert 0 < float(rows["mine ape"][3].removesuffix(" s")) < 10


def test_all_runs_of_a_paper_each_model_measured_once(capsys, monkeypatch, tmp_path, measured):
    monkeypatch.chdir(tmp_path)
    paper, items = find_items("shape:table2")
    plan = plan_items(paper, items, "paper", [*SMALL, "training.max_updates=1800"])
    show_estimates(plan.runs)
    out, _ = capsys.readouterr()
    rows = cells(out)
    assert rows["shape-table2 vanilla/ape"][0] == "5"  # seeds
    assert rows["shape-table2 extrapolate/shape-40"][0] == "1"
    assert rows["shape-table2 vanilla/ape"][3:5] == ["2 s", "1.0 h"]
    of_grid = [row for key, row in rows.items() if key.startswith("shape-table2")]
    number = sum(int(row[0]) for row in of_grid)
    assert rows["all"][:2] == [str(number), f"{number}.0 h"]
    assert len(measured) <= len(of_grid)
    assert list(tmp_path.iterdir()) == []


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "trains"), [("y\n", True), ("n\n", False)])
def test_a_run_of_more_than_a_day_is_asked_about(monkeypatch, measured, capsys, answer, trains):
    settings = parse_config({"training": {"max_updates": 10**9}})
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with nullcontext() if trains else pytest.raises(typer.Abort):
        train.announce(settings, yes=False)
    assert "1,000,000,000 updates" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal(""))
    train.announce(settings, yes=True)
    train.announce(parse_config({"training": {"max_updates": 2}}), yes=False)


def test_what_is_trained_does_not_count(monkeypatch, measured, capsys, tmp_path):
    paper, items = find_items("shape:table2")
    plan = plan_items(paper, items, "paper", [*SMALL, "training.max_updates=18000"])
    keys = [*{cell.key for cell in plan.runs}]
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(typer.Abort):
        run_plan.confirm(plan.runs, tmp_path, InProcess(), yes=False)
    assert f"{len(keys)} runs, 1 at a time" in capsys.readouterr().err
    for left in (1, 0):
        for key in keys[left:]:
            folder = CellFolder(tmp_path / "cells" / key)
            folder.path.mkdir(parents=True, exist_ok=True)
            folder.update.write_text("18000", encoding="ascii")
        run_plan.confirm(plan.runs, tmp_path, InProcess(), yes=False)
        said = capsys.readouterr().err
        assert (
            ("1 run, training alone (measured): 10.0 h, until" in said) == bool(said) == bool(left)
        )


def test_a_warm_up_that_does_not_end_is_noted(measured, tmp_path):
    for updates, noted in ((201, False), (200, True)):
        setting = f"training.max_updates={updates}"
        status, _, err = shapeshift(tmp_path, "train", "demo", "--dry-run", setting)
        message = f"warmup_updates=200 is not below training.max_updates={updates}"
        assert (status, message in " ".join(err.split())) == (0, noted)
