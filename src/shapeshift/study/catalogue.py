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
from shapeshift.study.spec import StudySpec
from shapeshift.study.study import OWN, Paper, Study

FOLDER = Path(str(files("shapeshift"))) / "studies"

PAPERS: dict[str, dict[str, Any]] = read_document(FOLDER / "papers.yaml")
"""Name → title, citation, names of the studies, and aliases, as the file says."""


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
    studies = {
        study: read_study(FOLDER / name / f"{study}.yaml", study) for study in paper["studies"]
    }
    return Paper(name, paper["title"], paper["citation"], studies)


def find_grid(name: str, relative_to: Path = Path()) -> Grid:
    """Return a grid that comes with the package, or the one in a file.

    Args:
        name: of a file in `config/shipped/grids` without its suffix, or a path.
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


def read_study(path: Path, name: str) -> Study:
    """Read a study of this name.

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
        spec = StudySpec.model_validate(document, context=context)
    except ValidationError as error:
        raise ShapeshiftError("; ".join(messages(error, StudySpec, document)), path=path) from error
    return Study(name, spec, context["grid"], path)


def read_own_study(path: Path) -> Paper:
    """Return a study of one's own, as a paper of one study; see `study.spec`.

    Raises:
        ShapeshiftError: a file that cannot be read, and for all that is wrong in it.
    """
    study = read_study(path, path.stem)
    return Paper(OWN, study.spec.title, "a study of one's own", {path.stem: study}, path)


def find_studies(target: str) -> Paper:
    """Return a paper with the studies that `PAPER` or `PAPER:STUDY[,STUDY…]` names.

    Raises:
        ShapeshiftError: there is no such paper or study.
    """
    name, colon, wanted = target.partition(":")
    paper = find_paper(name)
    if not colon:
        return paper
    aliases = PAPERS[name].get("aliases", {})
    chosen = [aliases.get(study, study) for study in wanted.split(",")]
    for study in chosen:
        if study not in paper.studies:
            raise ShapeshiftError(
                f"{name} has no study {study!r}{nearest(study, paper.studies)} (it has"
                f" {', '.join(paper.studies)})"
            )
    return replace(paper, studies={x: study for x, study in paper.studies.items() if x in chosen})
