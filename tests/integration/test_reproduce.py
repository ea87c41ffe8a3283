"""`shapeshift reproduce`: stopped by signals, and with runs that fail; kills are in
soak/test_kills.py."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "soak"))
from commands import Command, install_paper, write_grid

NUM_CELLS = 4


def start(folder, *arguments):
    return Command(folder, "reproduce", *arguments, prepare=((install_paper, folder),))


def num_updates(folder):
    logs = (folder / "reproduced").glob("cells/*/run/log.jsonl")
    return sum(path.read_bytes().count(b'"loss"') for path in logs)


@pytest.mark.parametrize(
    ("jobs", "number", "status"), [("2", signal.SIGINT, 130), ("0", signal.SIGTERM, 143)]
)
def test_signals_save_the_runs_and_say_how_to_go_on(tmp_path, jobs, number, status):
    write_grid(tmp_path, max_updates=100_000)
    command = start(tmp_path, "toy", "--jobs", jobs)
    command.wait_until(lambda: num_updates(tmp_path) >= 2)
    command.send(number)
    ended, out, err = command.finish()
    assert ended == status, err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith(f"stopped by {number.name}")
    assert "the same command goes on" in last
    assert out == ""
    assert list((tmp_path / "reproduced").glob("cells/*/run/checkpoints/update-*/state.json"))
    assert not list((tmp_path / "reproduced").glob("tiny/toy/*/item.json"))

    # What is there can be written, and goes on from there.
    status, out, err = start(tmp_path, "toy", "--no-run", "--directory", "reproduced").finish()
    assert status == 0, err
    [item] = (tmp_path / "reproduced").glob("tiny/toy/*/item.json")
    assert len(json.loads(item.read_bytes())["unfinished"]) == NUM_CELLS


def test_a_run_that_fails_is_reported_at_the_end_and_the_rest_is_written(tmp_path):
    write_grid(tmp_path, max_updates=4)
    settings = (tmp_path / "toy.yaml").read_text(encoding="utf-8")
    too_small = 'rules: [{when: {position: shape}, overrides: ["training.batch.max_tokens=4"]}]'
    (tmp_path / "toy.yaml").write_text(f"{settings}\n{too_small}\n", encoding="utf-8")
    status, out, err = start(tmp_path, "toy", "--jobs", "0").finish()
    assert status == 1
    assert "Traceback" not in err
    lines = err.splitlines()
    failed = [line for line in lines if re.fullmatch(r"shape/\d \(\w{16}\) failed:", line)]
    assert len(failed) == 2
    assert lines.index(failed[0]) > max(n for n, line in enumerate(lines) if "ape/2: f" in line)
    assert "ape" in out  # the table
    item = json.loads((tmp_path / "reproduced/tiny/toy/table/item.json").read_bytes())
    assert item["unfinished"] == ["shape/1", "shape/2"]
    assert (tmp_path / "reproduced/tiny/toy/table/results.csv").exists()
