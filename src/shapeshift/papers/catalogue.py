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
from shapeshift.lab.measures import find_function
from shapeshift.papers.item import STUDIES, Item, Paper
from shapeshift.papers.names import check_names, check_scores
from shapeshift.papers.spec import read_spec

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
    paper, find = PAPERS[name], cache(find_grid)
    items = {}
    for item in paper["items"]:
        spec = read_spec(ITEMS / f"{name}-{item}.yaml")
        items[item] = Item(item, spec, find(str(spec.grid)))
    return Paper(name, paper["title"], paper["citation"], items, paper.get("aliases", {}))


def find_grid(name: str, relative_to: Path = Path()) -> Grid:
    """Return a grid that comes with the package, or the one in a file.

    Args:
        name: of a file in `configs/grids` without its suffix, or a path.
        relative_to: folder of a relative path.

    Raises:
        ShapeshiftError: there is no such grid or file, or something is wrong in it.
    """
    shipped = Path(str(files("shapeshift"))) / "configs" / "grids"
    known = sorted(path.stem for path in shipped.glob("*.yaml"))
    if name in known:
        return Grid(shipped / f"{name}.yaml")
    if not name.endswith((".yaml", ".yml")):
        raise ShapeshiftError(
            f"no grid {name!r}{nearest(name, known)} (known: {', '.join(known)}; or the path of a"
            " YAML file)"
        )
    return Grid(relative_to / name)


def read_study(path: Path) -> Paper:
    """Return a study of one's own, as a paper of one item; see `papers.spec`.

    Raises:
        ShapeshiftError: a file that cannot be read, and once for all that is wrong in it.
    """
    spec = read_spec(path)
    if isinstance(spec.grid, str):
        grid = find_grid(spec.grid, relative_to=path.parent)
    else:
        grid = Grid(path, spec.grid)
    check_names(spec, grid.config, path)
    for scale in grid.config.scales:
        check_scores(spec, grid.cells(scale), path)
    for name in spec.analyses:
        find_function(name, "analysis", path)
    items = {path.stem: Item(path.stem, spec, grid)}
    return Paper(STUDIES, spec.title, f"a study of one's own, {path}", items)


def find_items(target: str) -> tuple[Paper, dict[str, Item]]:
    """Return the paper and the items that `PAPER` or `PAPER:ITEM[,ITEM…]` names.

    Raises:
        ShapeshiftError: there is no such paper or item.
    """
    name, colon, wanted = target.partition(":")
    paper = find_paper(name)
    if not colon:
        return paper, paper.items
    chosen: Sequence[str] = [paper.aliases.get(item, item) for item in wanted.split(",")]
    for item in chosen:
        if item not in paper.items:
            raise ShapeshiftError(
                f"{name} has no item {item!r}{nearest(item, paper.items)} (it has"
                f" {', '.join(paper.items)})"
            )
    return paper, {item: paper.items[item] for item in paper.items if item in chosen}
