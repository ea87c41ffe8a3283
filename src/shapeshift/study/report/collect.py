"""The studies that were reproduced, found below a folder and put in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from shapeshift._system.errors import ShapeshiftError
from shapeshift.study.catalogue import PAPERS
from shapeshift.study.document import FILE, Finding, StudyDocument, Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
PROFILES = ("tiny", "medium", "small", "paper")


@dataclass(frozen=True)
class ReportStudy:
    """A study in one profile, the folder of its files, and its place on the page."""

    document: StudyDocument
    directory: Path
    anchor: str


@dataclass(frozen=True)
class ReportPaper:
    """A paper, as `shapeshift reproduce NAME` names it, and what was reproduced of its studies, in
    the paper's order, each from the smallest profile up."""

    name: str
    title: str
    citation: str
    studies: tuple[ReportStudy, ...]


def collect(directory: Path) -> list[ReportPaper]:
    """Return the papers that have a study below a folder: ours in the catalogue's order, then
    others by name.

    Raises:
        ShapeshiftError: no such folder, no study in it, or a file that is not a study's document.
    """
    if not directory.is_dir():
        raise ShapeshiftError(
            "no such folder; name the one that `shapeshift reproduce` or `compare` wrote to",
            path=directory,
        )
    studies: list[ReportStudy] = []
    for path in sorted(directory.rglob(FILE)):
        document = StudyDocument.load(path)
        words = ("study", document.paper, document.study, document.labelled_profile)
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(words)).strip("-").lower()
        if any(study.anchor == anchor for study in studies):
            anchor += f"-{len(studies)}"
        studies.append(ReportStudy(document, path.parent, anchor))
    if not studies:
        raise ShapeshiftError(
            f"no {FILE} in it or below; run `shapeshift reproduce PAPER` first", path=directory
        )
    names = {study.document.paper for study in studies}
    return [_paper(name, studies) for name in sorted(names, key=lambda x: (_rank(x, [*PAPERS]), x))]


def count(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """Count the findings by verdict."""
    counts = Counter(finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def _paper(name: str, studies: Iterable[ReportStudy]) -> ReportPaper:
    order = PAPERS[name].studies if name in PAPERS else ()
    own = sorted(
        (study for study in studies if study.document.paper == name),
        key=lambda study: (
            _rank(study.document.study, order),
            study.document.study,
            _rank(study.document.profile, PROFILES),
            study.document.labelled_profile,
        ),
    )
    citation = "; ".join(dict.fromkeys(study.document.citation for study in own))
    title = PAPERS[name].title if name in PAPERS else own[0].document.paper_title
    return ReportPaper(name, title or name.capitalize(), citation, tuple(own))


def _rank(name: str, order: Sequence[str]) -> int:
    """Return the rank of a name in an order; unknown names come last."""
    return order.index(name) if name in order else len(order)
