"""How `shapeshift reproduce` reads its options; tests/integration runs it."""

from shapeshift.cli import reproduce

from .running import shapeshift


def test_items_of_another_grid_go_to_a_folder_with_its_name(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(reproduce, "run_plan", lambda plan, *_, **options: taken.append(plan))
    options = ("--grid", "beyond:master", "--seed", "1")
    assert shapeshift(tmp_path, "reproduce", "shape:figure3", *options)[0] == 0
    [plan] = taken
    assert (plan.label, plan.profile) == ("beyond-master", "tiny")
    assert {planned.seed for planned in plan.runs} == {1}
    assert "rope" in {planned.axes["position"] for planned in plan.runs}
