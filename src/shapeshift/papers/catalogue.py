"""The papers that can be reproduced and studies of one's own, as their files say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from shapeshift.config_file import read_document
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Grid
from shapeshift.papers.item import Item, Paper

ITEMS = Path(str(files("shapeshift"))) / "papers" / "items"


PAPERS: dict[str, dict[str, Any]] = read_document(ITEMS / "papers.yaml")
"""Name → title, citation, names of the items, and aliases, as the file says."""


@cache
def find_paper(name: str) -> Paper:
    """Return a paper.

    Raises:
        ShapeshiftError: there is none of this name.
    """
    if name not in PAPERS:
        raise ShapeshiftError(
            f"unknown paper {name!r}{nearest(name, PAPERS)} (known: {', '.join(PAPERS)})"
        )
    from shapeshift.papers.build import item_of
    from shapeshift.papers.spec import read_spec

    paper = PAPERS[name]
    specs = {item: read_spec(ITEMS / f"{name}-{item}.yaml") for item in paper["items"]}
    items = {item: item_of(spec, item, str(spec.grid)) for item, spec in specs.items()}
    return Paper(paper["title"], paper["citation"], items, paper.get("aliases", {}))


def read_study(path: Path) -> tuple[Paper, Grid]:
    """Return a study of one's own, as a paper of one item, and its grid; see `papers.spec`.

    Raises:
        ShapeshiftError: a file that cannot be read, and once for all that is wrong in it.
    """
    from shapeshift.lab.measures import find_function
    from shapeshift.papers.build import item_of
    from shapeshift.papers.names import check_names, check_scores
    from shapeshift.papers.planning import find_grid
    from shapeshift.papers.spec import read_spec

    spec = read_spec(path)
    if spec.other_grids:
        raise ShapeshiftError(
            f"a study has one grid; take out grid: {spec.other_grids[0]} of its column or figure",
            path=path,
        )
    if isinstance(spec.grid, str):
        grid = find_grid(spec.grid, relative_to=path.parent)
    else:
        grid = Grid(path, spec.grid)
    check_names(spec, grid.config, path)
    for scale in grid.config.scales:
        check_scores(spec, grid.cells(scale), path)
    for name in spec.analyses:
        find_function(name, "analysis", path)
    item = item_of(spec, path.stem, grid.name)
    citation = f"a study of one's own, {path}"
    return Paper(title=spec.title, citation=citation, items={path.stem: item}), grid


def find_items(target: str) -> tuple[str, Paper, dict[str, Item]]:
    """Return the paper's name, the paper and the items that `PAPER` or `PAPER:ITEM[,ITEM…]` names.

    Raises:
        ShapeshiftError: there is no such paper or item.
    """
    name, colon, wanted = target.partition(":")
    paper = find_paper(name)
    if not colon:
        return name, paper, paper.items
    chosen: Sequence[str] = [paper.aliases.get(item, item) for item in wanted.split(",")]
    for item in chosen:
        if item not in paper.items:
            raise ShapeshiftError(
                f"{name} has no item {item!r}{nearest(item, paper.items)} (it has"
                f" {', '.join(paper.items)})"
            )
    return name, paper, {item: paper.items[item] for item in paper.items if item in chosen}
