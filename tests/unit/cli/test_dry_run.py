"""`--dry-run`: what it prints, and that it needs no data."""

import re
from contextlib import nullcontext
from io import StringIO
from pathlib import Path

import pytest
import typer

from shapeshift.cli import dry_run, run_plan, train
from shapeshift.cli.dry_run import show_estimate, show_plan
from shapeshift.config import load_config, parse_config
from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.launchers import InProcess
from shapeshift.papers.catalogue import find_items
from shapeshift.papers.planning import plan_items
from shapeshift.training import estimate
from shapeshift.training.estimate import Measured

from .running import shapeshift

CONFIGS = Path(__file__).parents[3] / "configs"
SMALL = ["model.size=tiny"]
SECONDS = Measured(2.0, 33, 31, is_whole=True, peak_bytes=2_500_000_000)


@pytest.fixture
def measured(monkeypatch):
    """The runs that were asked about; none is measured."""
    asked = []

    def measure(*run):
        asked.append(run)
        return SECONDS

    monkeypatch.setattr(estimate, "measure", measure)
    return asked


def files_corpus(root):
    names = {split: [split] for split in ("train", "valid", "test")}
    return {"corpus": "files", "root": str(root), "source": "en", "target": "de", **names}


def cells(text):
    rows = [re.split(" {2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_the_papers_model_in_a_pipe(capsys, monkeypatch, tmp_path, measured):
    monkeypatch.chdir(tmp_path)
    show_estimate(load_config(CONFIGS / "shape-extrapolate-shape.yaml"))
    out, _ = capsys.readouterr()
    rows = cells(out)
    assert 60e6 < int(rows["parameters"][0].replace(",", "")) < 63e6
    assert rows["tokens an update, a side"] == ["112,000 at most, padding included"]
    assert rows["updates"] == ["200,000"]
    assert rows["an update, measured"] == ["2 s"]
    assert rows["all updates"] == ["about 111.1 h"]
    assert rows["peak memory, measured"] == ["2.5 GB"]
    assert "33 x (31 + 31) tokens of random text" in out
    [source] = rows["corpora/wmt16_en_de/wmt16_en_de.tar.gz"]
    assert source.startswith("will be fetched from https://drive")
    assert list(tmp_path.iterdir()) == []


def test_a_step_is_really_measured(capsys):
    batch = ["training.batch.max_tokens=62", "training.device=cpu"]
    show_estimate(parse_config({}, [*SMALL, *batch]))
    out, _ = capsys.readouterr()
    assert 0 < float(re.search(r"an update, measured +(\S+) s", out)[1]) < 10
    assert cells(out)["the built-in grammar"] == ["on this machine"]


def test_files_that_are_missing_are_listed_and_gzipped_ones_are_not(tmp_path, capsys, measured):
    for name in ("train.en", "train.de.gz", "valid.en", "test.en", "test.de"):
        (tmp_path / name).touch()
    show_estimate(parse_config({"data": {"corpus": files_corpus(tmp_path)}}, SMALL))
    out, _ = capsys.readouterr()
    missing = [line.split() for line in out.splitlines() if "missing" in line]
    assert missing[0] == [str(tmp_path / "valid.de"), "missing"]
    assert "set data.corpus.root" in out


@pytest.mark.parametrize(("root", "said"), [(".", "this folder"), ("text", "the folder text")])
def test_text_that_is_there_is_said_to_be_there(
    tmp_path, capsys, monkeypatch, measured, root, said
):
    monkeypatch.chdir(tmp_path)
    Path(root).mkdir(exist_ok=True)
    for name in ("train", "valid", "test"):
        for ending in ("en", "de"):
            Path(root, f"{name}.{ending}").touch()
    show_estimate(parse_config({"data": {"corpus": files_corpus(root)}}, SMALL))
    assert cells(capsys.readouterr().out)[f"all files, in {said}"] == ["on this machine"]


@pytest.mark.parametrize(("load", "is_busy"), [(0.2, False), (3.0, True)])
def test_a_busy_machine_is_named_next_to_the_time(capsys, monkeypatch, measured, load, is_busy):
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(dry_run, "num_cores", lambda: 2)
    settings = parse_config({}, SMALL)
    show_estimate(settings)
    train.ask(settings, yes=True)
    out, err = capsys.readouterr()
    assert ("another program" in out, "another program" in err) == (is_busy, is_busy)


def test_all_runs_of_a_paper_each_model_measured_once(capsys, monkeypatch, tmp_path, measured):
    monkeypatch.chdir(tmp_path)
    paper, items = find_items("shape:table2")
    plan = plan_items(paper, items, "paper", [*SMALL, "training.max_updates=1800"])
    show_plan(plan, Path("prepared"))
    out, _ = capsys.readouterr()
    rows = cells(out)
    assert rows["shape-table2 vanilla/ape"][0] == "5"  # seeds
    assert rows["shape-table2 extrapolate/shape-40"][0] == "1"
    assert rows["shape-table2 vanilla/ape"][3:5] == ["2 s", "1.0 h"]
    of_grid = [row for key, row in rows.items() if key.startswith("shape-table2")]
    number = sum(int(row[0]) for row in of_grid)
    assert rows["all"][:2] == [str(number), f"{number}.0 h"]
    assert len(measured) <= len(of_grid)
    assert out.count("wmt16_en_de.tar.gz") == 1
    assert rows["test set wmt14/full en-de"] == ["will be fetched from sacreBLEU's servers"]
    assert list(tmp_path.iterdir()) == []


def test_it_shows_the_scheme_and_a_warm_up_that_does_not_end(measured, tmp_path):
    arguments = ("train", "demo", "--dry-run", "position=less-feeding")
    status, out, err = shapeshift(tmp_path, *arguments, "training.max_updates=301")
    assert (status, "warmup_updates" in err) == (0, False)
    assert "sinusoidal at self (first 1 layer, add_to=qk)" in out
    assert cells(out)["position ids"] == ["absolute"]
    _, _, err = shapeshift(tmp_path, *arguments, "training.max_updates=200")
    assert "warmup_updates=200 is not below training.max_updates=200" in err


def test_random_text_fits_a_model_with_few_positions(capsys):
    """Of real text, which may be short, nothing is known yet."""
    few = ["position=learned", "position.parts.0.num_positions=20"]
    show_estimate(parse_config({}, [*SMALL, *few, "training.batch.max_tokens=62"]))
    assert "(20 + 20) tokens of random text" in capsys.readouterr().out


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "trains"), [("y\n", True), ("n\n", False)])
def test_a_run_of_more_than_a_day_is_asked_about(monkeypatch, measured, capsys, answer, trains):
    settings = parse_config({"training": {"max_updates": 10**9}})
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    with nullcontext() if trains else pytest.raises(typer.Abort):
        train.ask(settings, yes=False)
    assert "1,000,000,000 updates" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal(""))
    train.ask(settings, yes=True)
    train.ask(parse_config({"training": {"max_updates": 2}}), yes=False)


def test_runs_of_a_paper_say_how_long_they_take_and_what_is_trained_counts_no_more(
    monkeypatch, measured, capsys, tmp_path
):
    paper, items = find_items("shape:table2")
    plan = plan_items(paper, items, "paper", [*SMALL, "training.max_updates=18000"])
    cells = {cell.key: cell for cell in plan.runs}
    launcher = InProcess()
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    with pytest.raises(typer.Abort):
        run_plan.confirm(plan.runs, tmp_path, launcher, 1, yes=False)
    assert f"{len(cells)} runs, 1 at a time" in capsys.readouterr().err
    run_plan.confirm(plan.runs, tmp_path, launcher, 1, yes=True)
    assert f": {10 * len(cells)}.0 h, until" in capsys.readouterr().err
    first, *others = (CellFolder(tmp_path / "cells" / key) for key in cells)
    for folder in others:
        folder.path.mkdir(parents=True)
        folder.update.write_text("18000", encoding="ascii")
    run_plan.confirm(plan.runs, tmp_path, launcher, 1, yes=False)
    assert "1 run, training alone (measured): 10.0 h, until" in capsys.readouterr().err
    first.path.mkdir()
    first.update.write_text("18000", encoding="ascii")
    run_plan.confirm(plan.runs, tmp_path, launcher, 1, yes=False)
    assert capsys.readouterr().err == ""
