"""A real grid of two cells, from its file to the table."""

import pytest
import yaml

from shapeshift.lab.grid import Grid
from shapeshift.lab.launchers import InProcess
from shapeshift.lab.results import collect
from shapeshift.lab.runner import run_cells
from shapeshift.lab.significance import compare_cells
from shapeshift.lab.status import State

STEPS = ["score-valid", "score-test"]


class Recorder:
    def __init__(self):
        self.seen = []

    def changed(self, cell, status):
        self.seen.append((cell.axes["position"], status))


def test_a_grid_is_trained_measured_and_tabulated_once(make_config, tmp_path):
    base = make_config("training.max_updates=12", "training.log_every=3").model_dump(mode="json")
    axes = {"position": {"ape": ["position=ape"], "rpe": ["position=rpe"]}}
    document = {"axes": axes, "base": base, "scales": {"tiny": {}}, "steps": STEPS}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    cells, root = Grid(tmp_path / "small.yaml").cells("tiny"), tmp_path / "cells"

    def run(observer=None):
        return run_cells(
            cells, STEPS, root, InProcess(), prepared_root=tmp_path, observer=observer
        ).ok

    observer = Recorder()
    assert run(observer)
    ape = [status for position, status in observer.seen if position == "ape"]
    assert [x.state for x in ape] == [State.WAITING, State.RUNNING, State.FINISHED]
    assert (ape[-1].update, ape[-1].loss > 0) == (12, True)

    values = {
        (row.metric, row.dataset, row.axes["position"]): row.value
        for row in collect(cells, STEPS, root)
        if row.bucket is None
    }
    datasets = {dataset for metric, dataset, _ in values if metric == "chrF2"}
    assert datasets == {"valid", "valid mean", "test", "test mean"}
    for cell in cells:
        kept = root / cell.key / "run" / "results" / "test.average.json"
        scores = {x["name"]: x["value"] for x in yaml.safe_load(kept.read_text())["scores"]}
        own = values["chrF2", "test", cell.axes["position"]]
        assert own == pytest.approx(scores["chrF2"])
    ape, rpe = cells
    bleu = [values["BLEU", "test mean", name] for name in ("ape", "rpe")]
    difference = compare_cells([rpe], [ape], root).difference
    assert difference == pytest.approx(bleu[1] - bleu[0])

    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert run()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
