"""Every study of every paper, made of runs that were really trained and measured, and of none."""

from contextlib import nullcontext

import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.study.catalogue import PAPERS
from shapeshift.study.document import StudyDocument
from shapeshift.study.measured import Measured

from .conftest import find_study, minuscule

FOLDER = [f"{name}:{study}" for name, paper in PAPERS.items() for study in paper.studies]
NO_RUNS = ["shape:table7", "nhk:table3", "nhk:table5", "nhk:table6"]
"""Studies whose runs no test trains."""


def document(study, content):
    about = dict.fromkeys(
        ("paper", "study", "citation", "profile", "command", "version", "time"), "x"
    )
    return StudyDocument(title=study.spec.title, tables=tuple(content.tables), **about)


@pytest.mark.parametrize("name", FOLDER)
def test_an_item_makes_a_whole_document(name, build):
    content = build(name)
    made = document(find_study(name), content)
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


@pytest.mark.parametrize("profile", ["tiny", "small", "paper"])
@pytest.mark.parametrize("name", FOLDER)
def test_without_runs_there_are_dashes_and_nothing_is_judged(name, profile, tmp_path):
    study = find_study(name)
    overrides = minuscule(study.grid) if profile == "tiny" else ()
    measured = Measured(
        study.grid.runs(profile, overrides), tmp_path / "runs", tmp_path / "prepared"
    )
    if not study.spec.trained:  # it needs text, which is built in at `tiny` alone
        with pytest.raises(ShapeshiftError) if profile != "tiny" else nullcontext():
            study.build(measured)
        return
    content = study.build(measured)
    assert {x.verdict for x in content.findings} <= {"not run", "not tested in this profile"}
    assert not any(table.figure for table in content.tables)
    assert document(study, content).is_empty
