"""`shapeshift train --dry-run`: what it prints, and that it needs no data."""

import re
from pathlib import Path

import pytest

from shapeshift.cli.dry_run import assumed_length, missing_files, show_estimate
from shapeshift.config import load_config, parse_config
from shapeshift.data.config import DataConfig

CONFIGS = Path(__file__).parents[3] / "configs"


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
    assert "16 files of text are not there yet" in err
    assert "newstest2014.de" in err
    assert list(tmp_path.iterdir()) == []


def test_a_table_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show_estimate(parse_config({"model": {"size": "tiny"}}))
    out, err = capsys.readouterr()
    assert "parameters" in out
    assert "| ---" not in out
    assert err == ""  # the grammar needs no files


def test_files_that_are_missing_are_listed_and_gzipped_ones_are_not(tmp_path):
    data = DataConfig.model_validate({"corpus": files_corpus(tmp_path)})
    for name in ("train.en", "train.de.gz", "valid.en", "test.en", "test.de"):
        (tmp_path / name).touch()
    assert missing_files(data) == [tmp_path / "valid.de"]


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
