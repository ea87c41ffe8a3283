"""Finds papers and studies, the package's and the user's own, and reads their files."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from shapeshift._system.errors import ShapeshiftError, shell_command, unknown
from shapeshift._system.schema import Strict
from shapeshift.config.files import read_document
from shapeshift.study.grid import Grid, GridConfig, validated
from shapeshift.study.spec import StudySpec
from shapeshift.study.study import OWN, Paper, Study

FOLDER = Path(str(files("shapeshift"))) / "studies"

FILE = "paper.yaml"
"""In the folder of a paper, next to the files of its studies."""


class PaperSpec(Strict):
    """A paper: a list of studies, each a file `NAME.yaml` next to this one.

    Attributes:
        title: for people.
        citation: authors, year, title, venue.
        studies: their names, in the paper's order.
        aliases: another name → the study that holds this table or figure too.
    """

    title: str
    citation: str = "a paper of one's own"
    studies: tuple[str, ...] = Field(min_length=1)
    aliases: dict[str, str] = Field(default_factory=dict)


def read_paper_spec(folder: Path) -> PaperSpec:
    """Read the file of a paper.

    Raises:
        ShapeshiftError: there is no such file; one error names all mistakes in it.
    """
    path = folder / FILE
    return validated(PaperSpec, read_document(path), path)


PAPERS = {name: read_paper_spec(FOLDER / name) for name in ("shape", "shaw", "nhk", "beyond")}
"""Name → what the file of a paper says."""


@cache
def find_paper(name: str) -> Paper:
    """Return a paper that comes with the package.

    Raises:
        ShapeshiftError: there is none of this name.
    """
    if name not in PAPERS:
        file = f"; or a study: {name}.yaml" if Path(f"{name}.yaml").is_file() else ""
        raise ShapeshiftError(unknown("unknown paper", name, PAPERS, file))
    return _read_paper(name, FOLDER / name)


def _read_paper(name: str, folder: Path, path: Path | None = None) -> Paper:
    spec = read_paper_spec(folder)
    studies = {x: read_study(folder / f"{x}.yaml", x, f"{name}:{x}") for x in spec.studies}
    grids: dict[str, Path] = {}
    for study in studies.values():
        first = grids.setdefault(study.grid.name, study.grid.path)
        if first.resolve() != study.grid.path.resolve():
            raise ShapeshiftError(
                f"two grids are called {study.grid.name!r}, in {first} and {study.grid.path};"
                " rename one of the files",
                path=folder,
            )
    return Paper(name, spec.title, spec.citation, studies, path, spec.aliases)


def find_grid(name: str, folder: Path = Path()) -> Grid:
    """Return the grid of a study.

    Args:
        name: `PAPER:STUDY`; `STUDY`, a file in `folder`; or the path of a study's file or of a file
            that holds a grid alone.
        folder: of a relative path.

    Raises:
        ShapeshiftError: there is no such study or file, or something is wrong in it.
    """
    shipped = {f"{paper}:{x}": (paper, x) for paper, spec in PAPERS.items() for x in spec.studies}
    if name in shipped:
        paper, study = shipped[name]
        return _read_grid(FOLDER / paper / f"{study}.yaml", name)
    if name.endswith((".yaml", ".yml")):
        return _read_grid(folder / name)
    if not (path := folder / f"{name}.yaml").is_file():
        known = sorted(x.stem for x in folder.glob("*.yaml") if x.name != FILE)
        raise ShapeshiftError(
            unknown("no grid", name, [*known, *shipped], "; or the path of a YAML file")
        )
    return _read_grid(path, f"{folder.name}:{name}" if (folder / FILE).is_file() else "")


def _read_grid(path: Path, name: str = "") -> Grid:
    """Return the grid in a file, which holds only a grid or a study; `name` replaces the file's
    name."""
    document = read_document(path)
    given = document.get("grid", document)
    if isinstance(given, str):
        raise ShapeshiftError(
            f"has no grid of its own but names {given!r}; name that one", path=path
        )
    return Grid(path, given, name)


def read_study(path: Path, name: str, grid_name: str = "") -> Study:
    """Read a study of this name.

    Args:
        path: of its file.
        name: of its tables that have no other.
        grid_name: of the grid that the file holds; by default the file's.

    Raises:
        ShapeshiftError: the file cannot be read; one error names all mistakes in it.
    """
    document = read_document(path)
    if document.keys() & {"data", "model", "training"}:
        raise ShapeshiftError(
            "is a configuration, and a study has title, grid and tables; compare positions with"
            f" this one: {shell_command('compare', path)}",
            path=path,
        )
    if "axes" in document and "grid" not in document:
        raise ShapeshiftError(
            "is a grid, and a study has title, grid and tables; write a study with"
            f" `grid: {path.name}`",
            path=path,
        )

    def find(given: str | GridConfig) -> Grid:
        if isinstance(given, GridConfig):
            return Grid(path, given, grid_name)
        return find_grid(given, path.parent)

    context: dict[str, Any] = {"find_grid": find}
    spec = validated(StudySpec, document, path, context)
    return Study(name, spec, context["grid"], path)


def find_studies(target: str) -> Paper:
    """Return what `PAPER`, `PAPER:STUDY[,STUDY…]`, `FILE.yaml`, `FOLDER` or `FOLDER:STUDY[,STUDY…]`
    names: a paper with these studies. A file is a study of one's own, a folder a paper of one's own
    with its `paper.yaml`.

    Raises:
        ShapeshiftError: there is no such paper or study, and for all that is wrong in a file.
    """
    name, colon, wanted = target.partition(":")
    if name not in PAPERS and Path(name).is_dir():
        paper = _read_paper(Path(name).resolve().name, Path(name), Path(name))
    elif name not in PAPERS and ("/" in target or "." in target):
        study = read_study(Path(target), Path(target).stem)
        return Paper(OWN, study.spec.title, "a study of one's own", {study.name: study}, study.path)
    else:
        paper = find_paper(name)
    if not colon:
        return paper
    chosen = [paper.aliases.get(each, each) for each in wanted.split(",")]
    for each in chosen:
        if each not in paper.studies:
            raise ShapeshiftError(unknown(f"{name} has no study", each, paper.studies))
    return replace(paper, studies={x: y for x, y in paper.studies.items() if x in chosen})
