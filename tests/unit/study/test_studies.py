"""Every study of every paper, made of runs that were really trained and measured, and of none."""

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.study.catalogue import PAPERS, find_studies
from shapeshift.study.document import StudyDocument
from shapeshift.study.measured import Measured
from shapeshift.study.planning import plan_studies

from .conftest import document, find_study, planned_runs

FOLDER = [f"{name}:{study}" for name, paper in PAPERS.items() for study in paper.studies]
NO_RUNS = ["shape:table7", "nhk:table3", "nhk:table5", "nhk:table6"]
"""Studies whose runs no test trains."""


@pytest.mark.parametrize("name", FOLDER)
def test_an_item_makes_a_whole_document(name, build):
    content = build(name)
    made = document(content.tables)
    again = StudyDocument.model_validate_json(made.model_dump_json())
    assert again.model_dump() == made.model_dump()
    origins = [each.origin for each in made.tables]
    assert origins == sorted(origins)  # ours, then the paper's
    if name not in NO_RUNS:
        assert not made.is_empty
    for table in content.tables:
        assert {len(row) for row in table.rows} <= {len(table.header)}
        if table.figure:
            assert all(axes.has_data() for axes in table.drawing.axes if axes.axison)
    # Of one seed or two.
    verdicts = {finding.verdict for finding in content.findings}
    assert verdicts <= {"one run", "two runs", "not run", "not tested in this profile"}


@pytest.mark.parametrize("name", FOLDER)
def test_without_runs_there_are_dashes_and_nothing_is_judged(name, tmp_path):
    """In the profile of the paper, which tests every claim, and whose text is not there."""
    study = find_study(name)
    measured = Measured(
        planned_runs(study.grid.name, "paper"), tmp_path / "runs", tmp_path / "prepared"
    )
    if not study.spec.trained:
        with pytest.raises(ShapeshiftError):
            study.build(measured)
        return
    content = study.build(measured)
    assert {x.verdict for x in content.findings} <= {"not run", "not tested in this profile"}
    assert not any(table.figure for table in content.tables)
    assert document(content.tables).is_empty


OWN = """\
title: t
grid:
  axes: {{position: {{ape: [position=ape], shape: [position=shape]}}}}
  base: {{data: {{recipe: {recipe}}}}}
  measures: [score-test, {measure}]
tables: [{{title: t, rows: [position], columns: {{BLEU: {{split: test}}}}}}]
claims:
- {{claim: c, rule: better, split: original-order, minus: swapped-order, metric: {metric},
   test: {{position: shape}}, against: {{position: ape}}}}
"""


TWICE = """\
from shapeshift.run.measures import Metric, declares
measure = declares(Metric("BLEU", splits=("test",)))(lambda run, data: [])
"""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"recipe": "vanilla"}, "original-order is of joined sentences; use the recipe inter"),
        ({"metric": "chrF2"}, "original-order is scored with BLEU, not with chrF2"),
        ({"measure": "twice:measure"}, "score-test and twice:measure both declare BLEU; rename"),
    ],
)
def test_what_no_run_could_show_is_refused_before_training(
    changed, expected, tmp_path, monkeypatch
):
    (tmp_path / "twice.py").write_text(TWICE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    given = {"recipe": "interpolate", "measure": "swapped-order", "metric": "BLEU"} | changed
    (tmp_path / "own.yaml").write_text(OWN.format(**given), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=expected):
        plan_studies(find_studies(str(tmp_path / "own.yaml")), "full")


def test_grids_of_a_paper_have_names_of_their_own(tmp_path):
    grid = "axes: {position: {ape: [position=ape], shape: [position=shape]}}\n"
    tables = "tables: [{title: t, rows: [position], columns: {BLEU: {split: test}}}]\n"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "grid.yaml").write_text(grid, encoding="utf-8")
        study = f"title: t\ngrid: {name}/grid.yaml\n{tables}"
        (tmp_path / f"{name}.yaml").write_text(study, encoding="utf-8")
    paper = "title: t\ncitation: c\nstudies: [a, b]\n"
    (tmp_path / "paper.yaml").write_text(paper, encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="two grids are called 'grid'"):
        find_studies(str(tmp_path))
