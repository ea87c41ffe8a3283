"""`shapeshift train --dry-run`: what it prints, and that it needs no data."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from shapeshift.cli.dry_run import show_estimate, show_plan
from shapeshift.config import load_config, parse_config
from shapeshift.data.config import DataConfig
from shapeshift.errors import ShapeshiftError
from shapeshift.papers.catalogue import find_items
from shapeshift.papers.planning import plan_items
from shapeshift.training import estimate as training_estimate
from shapeshift.training.estimate import assumed_length

CONFIGS = Path(__file__).parents[3] / "configs"


SMALL = ["model.size=tiny"]


def files_corpus(root):
    names = {split: [split] for split in ("train", "valid", "test")}
    return {"corpus": "files", "root": str(root), "source": "en", "target": "de", **names}


def cells(text):
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_the_papers_model_in_a_pipe(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    show_estimate(load_config(CONFIGS / "shape-extrapolate-shape.yaml"))
    out, err = capsys.readouterr()
    rows = cells(out)
    assert 60e6 < int(rows["total"][0].replace(",", "")) < 62e6
    assert rows["output"][0] == "–"  # tied
    assert rows["tokens an update, a side"] == ["112,000"]
    assert rows["updates"] == ["200,000"]
    assert "451 x (31 + 31) tokens a batch" in out
    assert "training fetches it" in err
    assert "corpora/wmt16_en_de/wmt16_en_de.tar.gz from https://drive" in err
    assert list(tmp_path.iterdir()) == []


def test_a_table_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_estimate(parse_config({"model": {"size": "tiny"}}))
    out, err = capsys.readouterr()
    assert "parameters" in out
    assert "| ---" not in out
    assert err == ""  # the grammar needs no files


def test_files_that_are_missing_are_listed_and_gzipped_ones_are_not(tmp_path, capsys):
    for name in ("train.en", "train.de.gz", "valid.en", "test.en", "test.de"):
        (tmp_path / name).touch()
    show_estimate(parse_config({"data": {"corpus": files_corpus(tmp_path)}}, SMALL))
    _, err = capsys.readouterr()
    assert "warning: 1 files of text are not there yet" in err
    assert err.splitlines()[1:] == [f"  {tmp_path / 'valid.de'}"]


def test_time_on_a_named_gpu_is_shared_by_several(capsys):
    config = parse_config({}, [*SMALL, "training.accumulation=8", "training.max_updates=100000000"])

    def hours(gpu, count):
        show_estimate(config, gpu, count)
        rows = cells(capsys.readouterr().out)
        (time,) = next(value for key, value in rows.items() if key.startswith(f"time on {count} x"))
        number, unit = time.split()
        return float(number.replace(",", "")) / {"h": 1, "min": 60, "s": 3600}[unit]

    assert hours("a100", 1) == pytest.approx(8 * hours("a100", 8), rel=0.1)
    assert hours("v100", 1) > 5 * hours("a100", 1)  # which has no bf16


def test_a_gpu_without_bf16_computes_in_fp32(capsys):
    config = parse_config({}, SMALL)
    show_estimate(config, "p100")
    out = capsys.readouterr().out
    assert "memory: total (cuda, fp32)" in out
    assert "P100 SXM2 at 50% of its 10.6 TFLOP/s in fp32, assumed" in out


@pytest.mark.parametrize(
    ("gpu", "count", "message"),
    [
        ("a10", 1, r"unknown GPU 'a10'; did you mean 'a100'\?"),
        ("a100", 3, r"accumulation=8 batches of an update cannot be shared among 3 processes"),
        ("here", 2, r"--gpu here measures one process"),
    ],
)
def test_a_gpu_that_cannot_be_is_refused(gpu, count, message):
    with pytest.raises(ShapeshiftError, match=message):
        show_estimate(parse_config({}, [*SMALL, "training.accumulation=8"]), gpu, count)


def test_time_on_this_machine_is_measured(capsys, monkeypatch):
    ticks = iter([0.0, 9.0, 9.0, 11.0, 11.0, 12.0, 12.0, 17.0])  # batches of 9, 2, 1 and 5 seconds
    monkeypatch.setattr(training_estimate.time, "perf_counter", lambda: next(ticks))
    batch = ["training.batch.max_tokens=62", "training.accumulation=3"]
    config = parse_config({}, [*SMALL, *batch, "training.max_updates=1800"])
    show_estimate(config, "here")
    rows = cells(capsys.readouterr().out)
    assert rows["time here"] == ["3.0 h"]  # 1,800 updates of 3 batches of 2 seconds
    assert next(ticks, None) is None


def test_each_model_of_a_paper_is_measured_once(capsys, monkeypatch):
    asked = []

    def measure(*run_and_estimate):
        asked.append(run_and_estimate)
        return 0.001 * len(asked)

    monkeypatch.setattr("shapeshift.papers.dry_run.measure_speed", measure)
    name, paper, items = find_items("shape:table2")
    show_plan(plan_items(name, paper, items, "tiny", SMALL), Path("prepared"), "here")
    out, _ = capsys.readouterr()
    rows = {key: row for key, row in cells(out).items() if key.startswith("shape-table2")}
    assert len(asked) == len(rows) > 3
    assert "time: measured on three batches here" in out
    assert not any(row[5].endswith("!") for row in rows.values())


def test_all_runs_of_a_paper(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    name, paper, items = find_items("shape:table2")
    plan = plan_items(name, paper, items, "paper", [*SMALL, "training.max_updates=1000"])
    show_plan(plan, Path("prepared"), "h100", 8)
    out, _ = capsys.readouterr()
    rows = cells(out)
    assert rows["shape-table2 vanilla/ape"][0] == "5"  # seeds
    assert rows["shape-table2 extrapolate/shape-40"][0] == "1"
    number = rows["all"][0]
    of_grid = [row for key, row in rows.items() if key.startswith("shape-table2")]
    assert int(number) == sum(int(row[0]) for row in of_grid)
    assert out.count("wmt16_en_de.tar.gz") == 1
    assert rows["test set wmt14/full en-de"] == ["from sacreBLEU's servers"]
    assert "on 8 GPUs, 1 for each run: " in out
    assert list(tmp_path.iterdir()) == []
    show_plan(plan, Path("prepared"), "h100", 1)
    assert cells(capsys.readouterr().out)["all"] == rows["all"]


def test_runs_that_do_not_fit_are_marked(capsys):
    name, paper, items = find_items("shape:table2")
    wide = ["training.batch.max_tokens=1000000", "model.dim=1024", "model.num_heads=16"]
    show_plan(
        plan_items(name, paper, items, "paper", [*SMALL, *wide], [1]), Path("prepared"), "k40"
    )
    out, _ = capsys.readouterr()
    assert cells(out)["shape-table2 vanilla/ape"][5].endswith(" !")
    assert "! more than the 12 GB of the GPU" in out


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ({"name": "vanilla"}, 31),
        ({"name": "extrapolate", "max_length": 50}, 31),
        ({"name": "extrapolate", "max_length": 20}, 21),
        ({"name": "interpolate", "num_joined": 3}, 3 * 30 + 2 + 1),
        ({"name": "length_slice", "min_length": 40}, 41),
        ({"name": "length_slice", "max_length": 20}, 20),
    ],
)
def test_the_assumed_length_keeps_to_the_datasets_limits(dataset, expected):
    assert assumed_length(DataConfig.model_validate({"dataset": dataset})) == expected


def test_a_batch_too_small_for_the_assumed_length_still_has_an_estimate(capsys):
    show_estimate(parse_config({"model": {"size": "tiny"}}, ["training.batch.max_tokens=12"]))
    assert "1 x (12 + 12) tokens a batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("updates", "expected"), [(1, r"\d+ s"), (300_000, r"\d+ min"), (100_000_000, r"\d+\.\d h")]
)
def test_time_is_given_in_the_unit_that_shows_it(updates, expected, capsys):
    show_estimate(parse_config({"model": {"size": "tiny"}}, [f"training.max_updates={updates}"]))
    (time,) = cells(capsys.readouterr().out)["time at 100 TFLOP/s"]
    assert re.fullmatch(expected, time)


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "shape:table2", "--gpu", "h100"],
        ["reproduce", "shape:table2", "--num-gpus", "8"],
        ["train", "demo.yaml", "--gpu", "h100"],
        ["train", "demo.yaml", "--dry-run", "--num-gpus", "8"],
    ],
)
def test_an_estimate_that_nobody_asked_for_is_wrong_usage(arguments, tmp_path):
    (tmp_path / "demo.yaml").write_text("model: {size: tiny}\n")
    done = subprocess.run(
        [sys.executable, "-m", "shapeshift.cli", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["demo.yaml"]
