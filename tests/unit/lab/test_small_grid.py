"""A real grid of two cells, from its file to the table."""

import pandas as pd
import pytest
import yaml

from shapeshift.lab.grid import Grid
from shapeshift.lab.launchers import InProcess
from shapeshift.lab.results import Results
from shapeshift.lab.runner import run_cells
from shapeshift.lab.significance import compare_cells
from shapeshift.lab.status import State

STEPS = ["score-valid", "score-test"]


class Recorder:
    def __init__(self):
        self.seen = []

    def changed(self, cell, status):
        self.seen.append((cell.axes["position"], status))


@pytest.fixture(scope="module")
def done(make_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grid")
    base = make_config("training.max_updates=12", "training.log_every=3").model_dump(mode="json")
    document = {
        "axes": {"position": {"ape": ["position=ape"], "rpe": ["position=rpe"]}},
        "base": base,
        "scales": {"tiny": {}},
        "steps": STEPS,
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    cells = Grid(folder / "small.yaml").cells("tiny")
    recorder = Recorder()
    report = run_cells(
        cells, STEPS, folder / "cells", InProcess(), prepared_root=folder, observer=recorder
    )
    return cells, folder, report, recorder.seen


def test_the_observer_sees_training_go_on_and_then_the_measures(done):
    cells, _, report, seen = done
    assert report.ok
    ape = [status for position, status in seen if position == "ape"]
    training = [s.update for s in ape if s.state is State.RUNNING and s.step == "train"]
    assert sorted(set(training)) == [0, 3, 6, 9, 12]
    assert ape[-1].state is State.FINISHED
    assert ape[-1].loss > 0
    assert [cell.key for cell in cells] == list(report.statuses)


def test_the_table_has_a_row_a_cell_and_its_values_are_in_the_scores(done):
    cells, folder, _, _ = done
    results = Results.collect(cells, STEPS, folder / "cells")
    results.write_csv(folder / "results.csv")
    table = pd.read_csv(folder / "results.csv")
    chosen = table[table.metric == "chrF2"]
    values = chosen.pivot(index="axis:position", columns="dataset", values="value")
    assert set(values.columns) == {"valid", "valid mean", "test", "test mean"}
    assert list(values.index) == ["ape", "rpe"]
    for position, cell in zip(("ape", "rpe"), cells, strict=True):
        scored = folder / "cells" / cell.key / "run" / "results" / "test.average.json"
        chrf = next(s for s in yaml.safe_load(scored.read_text())["scores"] if s["name"] == "chrF2")
        assert values.test[position] == pytest.approx(chrf["value"])
    ape, rpe = cells
    found = compare_cells([rpe], [ape], folder / "cells")
    bleu = table[(table.metric == "BLEU") & (table.dataset == "test mean")]
    score = bleu.set_index("axis:position")["value"]
    assert found.difference == pytest.approx(score["rpe"] - score["ape"])


def test_the_same_grid_again_does_nothing(done):
    cells, folder, _, _ = done
    before = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")}
    assert run_cells(cells, STEPS, folder / "cells", InProcess(), prepared_root=folder).ok
    assert {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*")} == before
