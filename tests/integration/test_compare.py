"""`shapeshift compare`, small: systems from the built-in grammar to tables and a figure."""

import pytest
import yaml

from shapeshift.papers.document import ItemDocument

from ..unit.cli.running import shapeshift  # noqa: TID252 (`tests` is no package)

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
        "device": "cpu",
    },
    "decoding": {"beam": 1},
    "evaluation": {"length_buckets": [21, 41]},
}
SHAPE = "shape-7 position=shape position.position_ids.max_offset=7"
SYSTEMS = ("--position", "ape,rpe", "--system", SHAPE)


def compare(folder, *arguments):
    status, _, err = shapeshift(folder, "compare", "mine.yaml", *arguments, "--jobs", "0")
    assert status == 0, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the systems have been compared."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    compare(folder, *SYSTEMS)
    return folder


def test_systems_stand_side_by_side_with_unseen_lengths_marked(folder):
    item = folder / "compared" / "mine" / "positions" / "comparison"
    overall, by_length = ItemDocument.load(item / "item.json").tables
    assert [row[0].text for row in overall.rows] == ["ape", "rpe", "shape-7"]
    assert all(entry.value is not None for row in overall.rows[1:] for entry in row[1:])
    assert by_length.header == ("source length", "segments", "ape", "rpe", "shape-7")
    assert [row[0].text for row in by_length.rows] == ["0–20", "21–40‡", "≥ 41‡"]
    assert any("unseen" in note or "in training" in note for note in by_length.notes)
    assert (item / "bleu-by-length.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_runs_twice_and_another_system_joins(folder):
    logs = {path: path.stat().st_mtime_ns for path in folder.rglob("log.jsonl")}
    assert len(logs) == 3
    compare(folder, "--position", "rpe,ape,nope")
    assert logs.items() <= {x: x.stat().st_mtime_ns for x in folder.rglob("log.jsonl")}.items()
    document = ItemDocument.load(folder / "compared/mine/positions/comparison/item.json")
    assert [row[0].text for row in document.tables[0].rows] == ["rpe", "ape", "nope"]
    assert len([*folder.rglob("log.jsonl")]) == 4
