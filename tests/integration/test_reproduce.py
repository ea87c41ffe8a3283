"""`shapeshift reproduce`: killed, stopped by signals, twice at once, with runs that fail.

`make soak` kills it more often.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[1] / "soak"
NUM_CELLS = 4
sys.path.insert(0, str(SOAK))

import toy_paper  # noqa: E402  (a program beside the soak tests)


def start(folder, *arguments):
    """Begin `shapeshift reproduce toy` in a folder, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, str(SOAK / "toy_paper.py"), str(folder), "reproduce", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder, *arguments):
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def num_updates(folder):
    logs = (folder / "reproduced").glob("cells/*/run/log.jsonl")
    return sum(path.read_bytes().count(b'"loss"') for path in logs)


def wait_for(condition):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kills_change_nothing_and_two_commands_share_the_work():
    done = subprocess.run(
        [
            *(sys.executable, str(SOAK / "kill_and_reproduce.py")),
            *("--kills", "4", "--seed", "5", "--updates", "4"),
        ],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["num_kills"] == 4
    assert report["recorded_twice"] == []
    assert all(each == report["alone"] for each in report["killed"])
    assert report["alone"] == report["shared"]["result"]
    logs = [found for name, found in report["alone"].items() if name.endswith("/log")]
    assert [found[:2] for found in logs] == [[4, 4]] * NUM_CELLS  # each update once
    trained = [cell for each in report["shared"]["trained"] for cell in each]
    assert len(trained) == len(set(trained)) == NUM_CELLS


@pytest.mark.parametrize(
    ("jobs", "number", "status"), [("2", signal.SIGINT, 130), ("0", signal.SIGTERM, 143)]
)
def test_signals_save_the_runs_and_say_how_to_go_on(tmp_path, jobs, number, status):
    toy_paper.write_project(tmp_path, max_updates=100_000)
    process = start(tmp_path, "toy", "--jobs", jobs)
    wait_for(lambda: num_updates(tmp_path) >= 2)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == status, err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith(f"stopped by {number.name}")
    assert "the same command goes on" in last
    assert out == ""
    saved = list((tmp_path / "reproduced").glob("cells/*/run/checkpoints/update-*/state.json"))
    assert saved
    assert not list((tmp_path / "reproduced").glob("tiny/toy/*/item.json"))

    # What is there can be written, and goes on from there.
    status, out, err = run(tmp_path, "toy", "--no-run", "--directory", "reproduced")
    assert status == 0, err
    [item] = (tmp_path / "reproduced").glob("tiny/toy/*/item.json")
    assert len(json.loads(item.read_bytes())["unfinished"]) == NUM_CELLS


def test_a_run_that_fails_is_told_at_the_end_and_the_rest_is_written(tmp_path):
    toy_paper.write_project(tmp_path, max_updates=4)
    settings = (tmp_path / "toy.yaml").read_text(encoding="utf-8")
    too_small = 'rules: [{when: {position: shape}, overrides: ["training.batch.max_tokens=4"]}]'
    (tmp_path / "toy.yaml").write_text(f"{settings}\n{too_small}\n", encoding="utf-8")
    status, out, err = run(tmp_path, "toy", "--jobs", "0")
    assert status == 1
    assert "Traceback" not in err
    lines = err.splitlines()
    failed = [line for line in lines if re.fullmatch(r"shape/\d \(\w{16}\) failed:", line)]
    assert len(failed) == 2
    assert lines.index(failed[0]) > max(n for n, line in enumerate(lines) if "ape/2: f" in line)
    assert "ape" in out  # the table
    item = json.loads((tmp_path / "reproduced/tiny/toy/table/item.json").read_bytes())
    assert item["unfinished"] == ["shape/1", "shape/2"]
    assert (tmp_path / "reproduced/tiny/toy/results.csv").exists()

    (tmp_path / "toy.yaml").write_text(settings, encoding="utf-8")
    shutil.rmtree(tmp_path / "reproduced/tiny")
    status, out, err = run(tmp_path, "toy:table", "--only", "position=ape", "--jobs", "0")
    assert status == 0, err
    assert not re.search("^(ape|shape)/. train", err, re.MULTILINE)  # ape is finished
    status, out, err = run(
        tmp_path, "toy:table", "--only", "position=shape", "--only", "position=ape", "--jobs", "0"
    )
    assert status == 0, err
    assert not re.search("^ape/. train", err, re.MULTILINE)
    assert re.search("^shape/. train", err, re.MULTILINE)
