"""What the items about kinds in self-attention and in cross-attention share: systems that are a
kind and the inputs that it is added to, two axes of their grids."""

from __future__ import annotations

from dataclasses import replace

from shapeshift.experiments.significance import Comparison
from shapeshift.papers.study import NO_AXES, Axes, Study

OWN, INTO_VALUES = "own", "qkv"
"""Settings of the axis `inputs`: where a kind acts by itself (LESS-FEEDING of kinds that are added
to the inputs of attention), and added to those of Q, K and V (ORIGINAL)."""

IN_VALUES_NOTE = "in Q, K, V: added to the inputs of all three, not to those of Q and K alone"

System = tuple[str, str]
"""Kind and inputs."""


def systems(study: Study, grid: str) -> list[System]:
    """Return all systems that a grid has cells of, in its order."""
    return list({(cell.axes["kind"], cell.axes["inputs"]): None for cell in study.cells(grid)})


def label(system: System) -> str:
    """Return what people call a system: `sinusoidal`, or `sinusoidal in Q, K, V`."""
    kind, inputs = system
    return kind if inputs == OWN else f"{kind} in Q, K, V"


def into_values(study: Study, grid: str) -> list[str]:
    """Return the kinds that can be added to the inputs of Q, K and V."""
    return [kind for kind, inputs in systems(study, grid) if inputs == INTO_VALUES]


def against_kind(study: Study, grid: str, baseline: str, axes: Axes = NO_AXES) -> list[Comparison]:
    """Test all systems: kinds where they act by themselves against one of them, and those in Q, K
    and V against the same kind where it acts by itself. Each test is named by `label`.

    Args:
        study, grid: with the axes `kind` and `inputs`.
        baseline: a kind.
        axes: one setting of each other axis.
    """
    found = study.comparisons(grid, "kind", baseline, {**axes, "inputs": OWN})
    kinds = [test for tests in found.values() for test in tests]
    return kinds + [
        replace(test, system=label((test.system, INTO_VALUES)), baseline=test.system)
        for test in by_inputs(study, grid, OWN, axes)
    ]


def by_inputs(study: Study, grid: str, baseline: str, axes: Axes = NO_AXES) -> list[Comparison]:
    """Test kinds that can be added to the inputs of Q, K and V, there against where they act by
    themselves, or the other way round. Each test is named by its kind.

    Args:
        study, grid, axes: see `against_kind`.
        baseline: a setting of `inputs`.
    """
    return [
        replace(test, system=kind)
        for kind in into_values(study, grid)
        for tests in study.comparisons(grid, "inputs", baseline, {**axes, "kind": kind}).values()
        for test in tests
    ]


def by_system(
    study: Study, grid: str, axis: str, pair: tuple[str, str], axes: Axes = NO_AXES
) -> list[Comparison]:
    """Test one setting of an axis against another in each system; tests are named by `label`.

    Args:
        study, grid: see `against_kind`.
        axis, pair: a setting and its baseline.
        axes: one setting of each other axis.
    """
    return [
        replace(test, system=label((kind, inputs)))
        for kind, inputs in systems(study, grid)
        for tests in study.comparisons(
            grid, axis, pair[1], {**axes, axis: pair, "kind": kind, "inputs": inputs}
        ).values()
        for test in tests
    ]
