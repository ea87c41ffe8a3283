"""The papers that can be reproduced and studies of one's own, as their files say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from shapeshift._system.errors import ShapeshiftError, nearest, shell_command, unknown
from shapeshift.config.errors import messages
from shapeshift.config.files import read_document
from shapeshift.study.grid import Grid, GridConfig
from shapeshift.study.item import STUDIES, Item, Paper
from shapeshift.study.spec import ItemSpec

ITEMS = Path(str(files("shapeshift"))) / "studies"

PAPERS: dict[str, dict[str, Any]] = read_document(ITEMS / "papers.yaml")
"""Name → title, citation, names of the items, and aliases, as the file says."""


@cache
def find_paper(name: str) -> Paper:
    """Return a paper.

    Raises:
        ShapeshiftError: there is none of this name.
    """
    if name not in PAPERS:
        file = f"; or a study: {name}.yaml" if Path(f"{name}.yaml").is_file() else ""
        raise ShapeshiftError(unknown("unknown paper", name, PAPERS, file))
    paper = PAPERS[name]
    items = {item: read_item(ITEMS / name / f"{item}.yaml", item) for item in paper["items"]}
    return Paper(name, paper["title"], paper["citation"], items)


def find_grid(name: str, relative_to: Path = Path()) -> Grid:
    """Return a grid that comes with the package, or the one in a file.

    Args:
        name: of a file in `configs/grids` without its suffix, or a path.
        relative_to: folder of a relative path.

    Raises:
        ShapeshiftError: there is no such grid or file, or something is wrong in it.
    """
    shipped = Path(str(files("shapeshift"))) / "config" / "shipped" / "grids"
    known = sorted(path.stem for path in shipped.glob("*.yaml"))
    if name in known:
        return Grid(shipped / f"{name}.yaml")
    if not name.endswith((".yaml", ".yml")):
        raise ShapeshiftError(unknown("no grid", name, known, "; or the path of a YAML file"))
    return Grid(relative_to / name)


def read_item(path: Path, name: str) -> Item:
    """Read an item of this name.

    Raises:
        ShapeshiftError: a file that cannot be read, and once for all that is wrong in it.
    """
    document = read_document(path)
    if document.keys() & {"data", "model", "training"}:
        raise ShapeshiftError(
            "is a configuration, and a study has title, grid and tables; compare positions with"
            f" this one: {shell_command('compare', path)}",
            path=path,
        )

    def find(given: str | GridConfig) -> Grid:
        return Grid(path, given) if isinstance(given, GridConfig) else find_grid(given, path.parent)

    context: dict[str, Any] = {"find_grid": find}
    try:
        spec = ItemSpec.model_validate(document, context=context)
    except ValidationError as error:
        raise ShapeshiftError("; ".join(messages(error, ItemSpec, document)), path=path) from error
    return Item(name, spec, context["grid"], path)


def read_study(path: Path) -> Paper:
    """Return a study of one's own, as a paper of one item; see `study.spec`.

    Raises:
        ShapeshiftError: a file that cannot be read, and for all that is wrong in it.
    """
    item = read_item(path, path.stem)
    return Paper(STUDIES, item.spec.title, "a study of one's own", {path.stem: item}, path)


def find_items(target: str) -> Paper:
    """Return a paper with the items that `PAPER` or `PAPER:ITEM[,ITEM…]` names.

    Raises:
        ShapeshiftError: there is no such paper or item.
    """
    name, colon, wanted = target.partition(":")
    paper = find_paper(name)
    if not colon:
        return paper
    aliases = PAPERS[name].get("aliases", {})
    chosen = [aliases.get(item, item) for item in wanted.split(",")]
    for item in chosen:
        if item not in paper.items:
            raise ShapeshiftError(
                f"{name} has no item {item!r}{nearest(item, paper.items)} (it has"
                f" {', '.join(paper.items)})"
            )
    return replace(paper, items={x: item for x, item in paper.items.items() if x in chosen})
