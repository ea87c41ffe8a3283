"""How `shapeshift reproduce` reads its options; tests/integration runs it."""

import json

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli import reproduce
from shapeshift.study import planning

from .running import shapeshift


def test_items_of_another_grid_go_to_a_folder_with_its_name(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(reproduce, "run_plan", lambda plan, *_, **options: taken.append(plan))
    options = ("--grid", "beyond:master", "--seed", "1")
    assert shapeshift(tmp_path, "reproduce", "shape:figure3", *options)[0] == 0
    [plan] = taken
    assert (plan.label, plan.profile) == ("beyond-master", "tiny")
    assert {planned.seed for planned in plan.to_train} == {1}
    assert "rope" in {planned.axes["position"] for planned in plan.runs}


def test_all_is_every_paper_even_if_one_of_them_fails(tmp_path, monkeypatch):
    taken = []

    def run_plan(plan, *_, run, **options):
        taken.append((plan.paper.name, run))
        if plan.paper.name == "shaw":
            raise reproduce.typer.Exit(1)

    monkeypatch.setattr(reproduce, "run_plan", run_plan)
    status, _, _ = shapeshift(tmp_path, "reproduce", "all", "--no-run")
    assert status == 1
    assert taken == [(name, False) for name in ("shape", "shaw", "nhk", "beyond")]


def test_studies_and_papers_without_a_profile_are_left_out(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(reproduce, "run_plan", lambda plan, *_, **options: taken.append(plan))
    for target in ("shape", "all"):
        status, _, err = shapeshift(tmp_path, "reproduce", target, "--profile", "medium")
        assert status == 0
        assert "shape:offsets has no run in profile medium: left out" in err
    assert "nhk has no profile medium: left out" in err
    assert [plan.paper.name for plan in taken] == ["shape", "shape"]
    assert {"table1", "table2", "figure6"} <= {*taken[0].paper.studies}
    for target in ("shape:offsets", "all"):
        profile = "medium" if ":" in target else "mediun"
        status, _, err = shapeshift(tmp_path, "reproduce", target, "--profile", profile)
        assert status == 1
        assert f"has no profile {profile!r}" in err


def test_runs_of_a_study_of_ones_own_are_counted(tmp_path):
    axes = {"position": {x: [f"position={x}"] for x in ("ape", "rpe")}}
    grid = {"base": "short", "axes": axes, "seeds": [1, 2], "measures": ["score-test"]}
    table = {"title": "BLEU", "rows": ["position"], "columns": {"BLEU": {"split": "test"}}}
    study = {"title": "Mine", "grid": grid, "tables": [table]}
    (tmp_path / "mine.yaml").write_text(json.dumps(study))
    status, out, err = shapeshift(tmp_path, "reproduce", "mine.yaml", "--list")
    assert status == 0, err
    assert "0/4" in out


def test_claims_are_listed_with_what_seeds_find(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    status, out, _ = shapeshift(tmp_path, "reproduce", "shape:table1", "--list", "--claims")
    assert status == 0
    assert "costs APE more BLEU" in out
    assert "6.62" in out
    status, _, err = shapeshift(tmp_path, "reproduce", "shape:table1", "--claims")
    assert (status, "without --list" in err) == (2, True)
    wrong = ("shape", "training.max_updates=9", "--list", "--claims")
    status, _, err = shapeshift(tmp_path, "reproduce", *wrong)
    assert (status, "training.max_updates=9 has no effect" in err) == (2, True)


def test_no_page_is_asked_for_where_no_study_can_be_made(tmp_path, monkeypatch):
    def fail(plan, *_):
        return [], dict.fromkeys(plan.paper.studies, ShapeshiftError("no space left"))

    monkeypatch.setattr(planning, "write_studies", fail)
    status, out, err = shapeshift(tmp_path, "reproduce", "shaw:table2", "--no-run")
    assert status == 1
    assert "shaw:table2 cannot be made: no space left" in err
    assert "report.html" not in out + err
