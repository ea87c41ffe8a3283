"""Finished cells in seconds: the papers' own grids, of the smallest models on the grammar."""

from dataclasses import replace

import pytest

from shapeshift.lab import speed
from shapeshift.lab.launchers import InProcess
from shapeshift.lab.measures import Measurement
from shapeshift.lab.runner import run_cells
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study

MINUSCULE = (
    "data.corpus.num_train=240",
    "data.corpus.num_valid=20",
    "data.corpus.num_test=30",
    "data.corpus.max_words=20",
    "data.subwords.vocab_size=200",
    "model.dim=16",
    "model.num_heads=2",
    "model.ff_dim=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "training.max_updates=4",
    "training.log_every=2",
    "training.checkpoint_every=2",
    "training.average_checkpoints=2",
    "training.keep_checkpoints=2",
    "training.precision=fp32",
    "training.device=cpu",
    "decoding.beam=1",
    "decoding.max_length_a=0",
    "decoding.max_length_b=12",
)
"""Settings for all cells of a grid at scale tiny."""

SPEEDS = {"ape": 1.0, "rpe": 0.75, "shape": 0.97}


def given_speed(run, data):
    """Stands in for the measure `speed`, which takes time and never gives the same number."""
    value = SPEEDS.get(run.config.position.name, 0.5)
    return [Measurement(metric="speed", value=value, dataset="train")]


def without_source(content):
    """Return the titles of columns with numbers of ours that name neither measurements nor runs."""
    return {
        title
        for table in content.tables
        if table.origin == "ours"
        for row in table.rows
        for title, entry in zip(table.header, row, strict=True)
        if entry.value is not None and not entry.rows and not entry.cells
    }


def texts(table):
    return [[entry.text for entry in row] for row in table.rows]


def with_seed(cell, seed):
    """Return the cell as it is with another seed, one that the grid may not have."""
    training = cell.config.training.model_copy(update={"seed": seed})
    return replace(cell, seed=seed, config=cell.config.model_copy(update={"training": training}))


@pytest.fixture(scope="session")
def papers_root(tmp_path_factory):
    """The folder of runs and of prepared data, which all studies share as users' do."""
    return tmp_path_factory.mktemp("papers")


@pytest.fixture(scope="session")
def make_study(papers_root):
    """Makes the study of some grids; the cells that are `done` are trained and measured."""

    def make(*grids, done=lambda cell: True, seeds=(1, 2), overrides=MINUSCULE, extra=()):
        cells, measures = {}, {}
        given = {each.partition("=")[0]: each for each in (*overrides, *extra)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(speed, "measure_speed", given_speed)
            for name in grids:
                grid = find_grid(name)
                measures[name] = grid.config.steps
                cells[name] = [
                    with_seed(cell, seed)
                    for seed in seeds
                    for cell in grid.cells("tiny", [*given.values()])
                    if cell.seed == (grid.config.scales["tiny"].seeds or grid.config.seeds)[0]
                ]
                report = run_cells(
                    [cell for cell in cells[name] if done(cell)],
                    measures[name],
                    papers_root / "cells",
                    InProcess(),
                    prepared_root=papers_root / "prepared",
                    poll_s=0.0,
                    command="pytest",
                )
                assert report.ok, [status.message for status in report.statuses.values()]
        return Study(cells, measures, papers_root / "cells", papers_root / "prepared")

    return make


@pytest.fixture(scope="session")
def finished(make_study):
    """The SHAPE paper's grids: one seed of everything, two of APE and SHAPE on Interpolate, and
    three values of K."""

    def done(cell):
        if cell.grid == "shape-offsets":
            return cell.seed == 1 and cell.axes["K"] in ("10", "40", "500")
        both = cell.axes["dataset"] == "interpolate" and cell.axes["position"] != "rpe"
        return cell.seed == 1 or both

    return make_study("shape-table2", "shape-offsets", done=done)


@pytest.fixture(scope="session")
def unfinished(make_study):
    """The same grids for seeds of which nothing is done."""
    return make_study("shape-table2", "shape-offsets", done=lambda cell: False, seeds=(3, 4))
