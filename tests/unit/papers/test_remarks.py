"""Every claim that is not met says at which scale it should be."""

import re

import pytest

from shapeshift.papers.catalogue import PAPERS, find_paper
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study

from .conftest import MINUSCULE

TRAINED = [
    (paper, item)
    for paper in PAPERS
    for item, each in find_paper(paper).items.items()
    if each.trained
]
LATER = {"tiny": "scale (small|paper)|every scale", "small": "scale paper|every scale"}

OF_MODELS = {"All models have the same number of parameters."}
"""Nothing that a longer run could show."""


def unmet(paper, item, scale, root, overrides=()):
    """Return the findings of an item of which nothing is finished: none of them is met."""
    wanted = find_paper(paper).items[item]
    grids = {name: find_grid(name) for name in wanted.grids}
    cells = {name: grid.cells(scale, overrides) for name, grid in grids.items()}
    steps = {name: grid.config.steps for name, grid in grids.items()}
    found = wanted.build(Study(cells, steps, root / "cells", root / "prepared")).findings
    assert "holds" not in {finding.verdict for finding in found}
    return [finding for finding in found if finding.claim not in OF_MODELS]


def without_scale(findings, scale):
    return [each.claim for each in findings if not re.search(LATER[scale], each.remark)]


@pytest.mark.parametrize("scale", LATER)
@pytest.mark.parametrize(("paper", "item"), TRAINED)
def test_a_claim_that_is_not_met_names_a_larger_scale(paper, item, scale, tmp_path):
    assert without_scale(unmet(paper, item, scale, tmp_path), scale) == []


def test_sizes_that_are_not_the_papers_name_its_scale(tmp_path):
    found = unmet("shape", "table3", "tiny", tmp_path, MINUSCULE)
    assert len(found) == 1
    assert without_scale(found, "tiny") == []


@pytest.mark.parametrize(("paper", "item"), TRAINED)
def test_at_the_papers_scale_there_is_none_larger(paper, item, tmp_path):
    found = unmet(paper, item, "paper", tmp_path)
    assert not [each.claim for each in found if re.search("scale (small|paper)", each.remark)]
