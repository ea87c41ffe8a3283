"""How `shapeshift reproduce` reads its options; tests/integration runs it."""

import pytest

from shapeshift.cli import reproduce

from .running import shapeshift


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Returns a function that gives the plan of a command, and the other options of its runs."""

    def plan(*arguments):
        taken = []
        monkeypatch.setattr(
            reproduce, "run_plan", lambda *given, **flags: taken.append((given, flags))
        )
        status, _, err = shapeshift(tmp_path, "reproduce", *arguments)
        assert status == 0, err
        [((made, *options), flags)] = taken
        return made, options, flags

    return plan


def test_items_of_another_grid_go_to_a_folder_with_its_name(planned):
    plan, _, _ = planned("shape:figure3", "--grid", "beyond-datasets", "--seed", "1")
    assert (plan.label, plan.scale) == ("beyond-datasets", "tiny")
    assert {cell.seed for cell in plan.runs} == {1}
    assert "rope" in {cell.axes["position"] for cell in plan.runs}
