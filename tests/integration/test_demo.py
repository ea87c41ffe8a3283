"""The demo, small: three systems from the built-in grammar to a table and a figure."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
import yaml

CONFIG = {
    "data": {
        "corpus": {"corpus": "grammar", "num_train": 2500, "num_valid": 20, "num_test": 60},
        "subwords": {"vocab_size": 500},
        "dataset": {"name": "extrapolate", "max_length": 20},
    },
    "model": {"dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1},
    "training": {
        "max_updates": 20,
        "checkpoint_every": 10,
        "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 5},
        "batch": {"max_tokens": 1024},
    },
    "decoding": {"beam": 2},
    "evaluation": {"length_buckets": [21, 41]},
}


def demo(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "shapeshift.cli", "demo", "--config", "config.yaml", *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    return folder, demo(folder)


def test_systems_stand_side_by_side_with_unseen_lengths_marked(finished):
    folder, printed = finished
    for text in ("ape", "shape-40", "rpe", "0–20", "21–40*", "≥ 41*"):
        assert text in printed
    table = (folder / "runs/demo/bleu-by-length.md").read_text(encoding="utf-8")
    assert "| 21–40*" in table
    ElementTree.parse(folder / "runs/demo/bleu-by-length.svg")
    assert (folder / "runs/demo/bleu-by-length.png").read_bytes().startswith(b"\x89PNG")


def test_the_systems_differ_in_nothing_but_position(finished):
    folder, _ = finished
    runs = [folder / "runs/demo" / name for name in ("ape", "shape-40", "rpe")]
    configs = [yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) for run in runs]
    positions = [config.pop("position") for config in configs]
    assert positions[1]["indices"] == {"name": "shifted", "max_offset": 40}
    assert positions[2]["parts"][0]["kind"] == "shaw"
    assert configs[0] == configs[1] == configs[2]
    data = [json.loads((run / "data.json").read_text(encoding="utf-8")) for run in runs]
    assert data[0] == data[1] == data[2]


def test_nothing_runs_twice(finished):
    folder, printed = finished
    files = [
        *(folder / "runs/demo").glob("*/log.jsonl"),
        *(folder / "runs/demo").glob("*/results/*"),
    ]
    before = {file: file.stat().st_mtime_ns for file in files}
    assert len(before) == 12  # three runs: log, translations, scores and their hashes
    assert demo(folder) == printed
    assert {file: file.stat().st_mtime_ns for file in files} == before


def test_other_buckets_are_scored_again(finished):
    folder, _ = finished
    log = (folder / "runs/demo/ape/log.jsonl").read_bytes()
    assert "31–40*" in demo(folder, "evaluation.length_buckets=[21, 31, 41]")
    assert (folder / "runs/demo/ape/log.jsonl").read_bytes() == log
