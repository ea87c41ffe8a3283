"""The papers that can be reproduced and studies of one's own, as their files say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from pydantic import Field, TypeAdapter

from shapeshift.config_file import read_document
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.lab.grid import Grid
from shapeshift.papers.item import Item, Paper
from shapeshift.schema import Strict

ITEMS = Path(str(files("shapeshift"))) / "papers" / "items"


class PaperSpec(Strict):
    """A paper; its items are files in the same folder.

    Attributes:
        title: for people.
        citation: authors, year, title, venue.
        items: names, in the paper's order.
        aliases: other names → the item that holds this table or figure too.
    """

    title: str
    citation: str
    items: tuple[str, ...]
    aliases: dict[str, str] = Field(default_factory=dict)


PAPERS = TypeAdapter(dict[str, PaperSpec]).validate_python(read_document(ITEMS / "papers.yaml"))
"""Name → the paper."""


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
    spec = PAPERS[name]
    items = {item: _shipped_item(name, item) for item in spec.items}
    return Paper(spec.title, spec.citation, items, spec.aliases)


def _shipped_item(paper: str, name: str) -> Item:
    from shapeshift.papers.build import item_of
    from shapeshift.papers.spec import read_spec

    spec = read_spec(ITEMS / f"{paper}-{name}.yaml")
    assert isinstance(spec.grid, str)
    return item_of(spec, name, spec.grid)


def read_study(path: Path) -> tuple[Paper, Grid]:
    """Return a study of one's own, as a paper of one item, and its grid; see `papers.spec`.

    Raises:
        ShapeshiftError: a file that cannot be read, and once for all that is wrong in it.
    """
    from shapeshift.papers.build import find_analysis, item_of
    from shapeshift.papers.planning import find_grid
    from shapeshift.papers.spec import check_names, read_spec

    spec = read_spec(path)
    if isinstance(spec.grid, str):
        grid = find_grid(spec.grid, relative_to=path.parent)
    else:
        grid = Grid(path, spec.grid)
    check_names(spec, grid.config, path)
    for name in spec.analyses:
        find_analysis(name, path)
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
