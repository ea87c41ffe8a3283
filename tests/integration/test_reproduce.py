"""`shapeshift reproduce`: stopped by signals, and with runs that fail; kills are in
soak/test_kills.py."""

import json
import re
import signal

import pytest

from ..soak.commands import Command, write_study

STUDY = "reproduced/full/studies/toy"


def num_updates(folder):
    logs = (folder / "reproduced").glob("runs/*/run/log.jsonl")
    return sum(path.read_bytes().count(b'"loss"') for path in logs)


@pytest.mark.parametrize(
    ("jobs", "number", "status"), [("2", signal.SIGINT, 130), ("0", signal.SIGTERM, 143)]
)
def test_signals_save_the_runs_and_say_how_to_go_on(tmp_path, jobs, number, status):
    write_study(tmp_path, max_updates=100_000)
    command = Command(tmp_path, "reproduce", "toy.yaml", "--jobs", jobs)
    command.wait_until(lambda: num_updates(tmp_path) >= 2)
    command.send(number)
    ended, out, err = command.finish()
    assert ended == status, err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith(f"stopped by {number.name}")
    assert "the same command goes on" in last
    assert out == ""
    assert list((tmp_path / "reproduced").glob("runs/*/run/checkpoints/update-*/state.json"))
    assert not (tmp_path / STUDY / "study.json").exists()

    # What is there can be written.
    status, out, err = Command(tmp_path, "reproduce", "toy.yaml", "--no-run").finish()
    assert status == 0, err
    assert len(json.loads((tmp_path / STUDY / "study.json").read_bytes())["unfinished"]) == 4


def test_a_run_that_fails_is_reported_at_the_end_and_the_rest_is_written(tmp_path):
    too_small = {"when": {"position": "shape"}, "overrides": ["training.batch.max_tokens=4"]}
    write_study(tmp_path, max_updates=4, rules=[too_small])
    status, out, err = Command(tmp_path, "reproduce", "toy.yaml", "--jobs", "0").finish()
    assert status == 1
    assert "Traceback" not in err
    lines = err.splitlines()
    failed = [line for line in lines if re.fullmatch(r"shape/\d \(\w{16}\) failed:", line)]
    assert len(failed) == 2
    assert lines.index(failed[0]) > max(n for n, line in enumerate(lines) if "ape/2: f" in line)
    assert "ape" in out  # the table
    assert json.loads((tmp_path / STUDY / "study.json").read_bytes())["unfinished"] == [
        "shape/1",
        "shape/2",
    ]
    assert (tmp_path / STUDY / "results.csv").exists()
