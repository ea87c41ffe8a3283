"""A paper of four runs of a second each, for tests of `shapeshift reproduce`.

    python tests/soak/toy_paper.py FOLDER reproduce toy --jobs 2

runs the command line in FOLDER, with the paper `toy` known.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import yaml

from shapeshift.cli import main as shapeshift_main
from shapeshift.lab.grid import Grid
from shapeshift.lab.measures import mean_of
from shapeshift.papers import catalogue, planning
from shapeshift.papers.document import DocumentTable, number, words
from shapeshift.papers.item import Content, Item, Paper
from shapeshift.papers.study import Study

NUM_CELLS = 4
CHECKPOINT_EVERY = 4
CORPUS = ("train", 100), ("valid", 8), ("test", 8)


def write_project(folder: Path, max_updates: int) -> None:
    """Write text whose translation is upper case, and a grid: two positions, two seeds."""
    rng = random.Random(4)
    vocabulary = ["".join(rng.choices("abcdef", k=rng.randint(1, 3))) for _ in range(20)]
    (folder / "text").mkdir(parents=True)
    for split, size in CORPUS:
        lines = [" ".join(rng.choices(vocabulary, k=rng.randint(1, 6))) + "\n" for _ in range(size)]
        (folder / "text" / f"{split}.low").write_text("".join(lines), encoding="utf-8")
        (folder / "text" / f"{split}.up").write_text("".join(lines).upper(), encoding="utf-8")
    corpus = {"corpus": "files", "root": str(folder / "text"), "source": "low", "target": "up"}
    base = {
        "data": {
            "corpus": corpus | {split: [split] for split, _ in CORPUS},
            "subwords": {"vocab_size": 40},
        },
        "model": {
            "dim": 32, "num_heads": 2, "ff_dim": 64, "encoder_layers": 1, "decoder_layers": 1,
            "dropout": 0.1,
        },
        "training": {
            "max_updates": max_updates,
            "batch": {"max_sentences": 8},
            "schedule": {"name": "inverse_sqrt", "peak": 0.01, "warmup_updates": 20},
            "precision": "fp32",
            "device": "cpu",
            "log_every": 1,
            "checkpoint_every": CHECKPOINT_EVERY,
            "keep_checkpoints": 2,
            "average_checkpoints": 2,
        },
        "decoding": {"beam": 1},
    }  # fmt: skip
    grid = {
        "title": "a toy",
        "axes": {"position": {"ape": ["position=ape"], "shape": ["position=shape"]}},
        "seeds": [1, 2],
        "scales": {"tiny": {}},
        "base": base,
        "steps": ["score-test"],
    }
    (folder / "toy.yaml").write_text(yaml.safe_dump(grid), encoding="utf-8")


def build(study: Study) -> Content:
    """A table of BLEU, and how much SHAPE differs from APE."""
    rows = []
    for position in study.settings("toy", "position"):
        found = study.rows("toy", "BLEU", {"position": position}, dataset=mean_of("test"))
        found = found or study.rows("toy", "BLEU", {"position": position})
        test = None
        if position != "ape":
            test = study.compare("toy", {"position": position}, {"position": "ape"}).comparison
        p_value = number(None if test is None else test.p_value)
        rows.append((*words(position), study.entry(found, "mean ± stdev"), p_value))
    table = DocumentTable(
        name="bleu", title="BLEU", header=("position", "BLEU", "p"), rows=tuple(rows)
    )
    return Content(tables=[table])


def install(folder: Path) -> None:
    """Let this process know the paper whose grid is in a folder."""
    paper = Paper("Toy", "nobody, never", {"table": Item("A table", ("toy",), build)})
    catalogue.find_paper = lambda name: paper
    planning.find_grid = lambda name: Grid(folder / f"{name}.yaml")


if __name__ == "__main__":
    here = Path(sys.argv[1]).absolute()
    os.chdir(here)
    install(here)
    sys.argv = ["shapeshift", *sys.argv[2:]]
    shapeshift_main()
