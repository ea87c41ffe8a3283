"""A paper of four runs of a second each, for tests of `shapeshift reproduce`.

    python tests/soak/toy_paper.py FOLDER reproduce toy --jobs 2

runs the command line in FOLDER, with the paper `toy` known.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from process_group import write_toy

from shapeshift.cli import main as shapeshift_main
from shapeshift.lab.grid import Grid
from shapeshift.lab.measures import mean_of
from shapeshift.papers import catalogue, planning
from shapeshift.papers.document import DocumentTable, number, words
from shapeshift.papers.item import Content, Item, Paper
from shapeshift.papers.study import Study

NUM_CELLS = 4


def write_project(folder: Path, max_updates: int) -> None:
    """Write text whose translation is upper case, and a grid: two positions, two seeds."""
    base = write_toy(folder, max_updates, checkpoint_every=4) | {"decoding": {"beam": 1}}
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
