"""A run that is killed again and again ends as the run that was left alone.

`make soak` does the same fifty times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

SOAK = Path(__file__).parents[1] / "soak" / "kill_and_resume.py"


def test_five_kills_change_nothing():
    done = subprocess.run(
        [sys.executable, str(SOAK), "--kills", "5", "--seed", "3"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] == {"save": 2, "update": 2, "start": 1}
    assert report["killed"] == report["alone"]
    for file in ("weights", "optimizer", "average", "log"):
        assert len(report["alone"][file]) == 64
    assert report["alone"]["cursor"][0] == report["max_updates"]
    assert report["alone"]["log_lines"] > report["max_updates"]  # a line an update, and validations
    assert report["leftovers"] == report["misreported"] == []
