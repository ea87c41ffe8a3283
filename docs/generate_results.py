"""Write docs/results.md from docs/results/, and that folder from what `reproduce` has made.

    shapeshift reproduce shape && shapeshift reproduce shaw && shapeshift reproduce nhk
    python docs/generate_results.py reproduced

docs/results/ has a CSV file for each table, `PROFILE.PAPER-STUDY.csv`, one with all findings, both
with the p-values of their tests, and the figures. What a folder of results does not have stays as
it is: results may come from several machines. A test compares the page with the files.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path

from PIL import Image

from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.study.catalogue import PAPERS, find_paper
from shapeshift.study.document import DocumentTable
from shapeshift.study.measured import Measured
from shapeshift.study.report.collect import PROFILES, ReportStudy, collect
from shapeshift.study.verdicts import NO_RUNS
from shapeshift.study.write import with_p_values

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
FINDINGS = RESULTS / "findings.csv"
COLUMNS = ("paper", "study", "profile", "claim", "verdict", "measured", "in the paper", "p-values")
_P_VALUE = ", p"
"""Ends the titles of columns of p-values, which the page does not show."""

TABLES = (
    ("shape", "table2"),
    ("shaw", "table2"),
    ("nhk", "table2"),
    ("beyond", "master"),
)
"""Tables of the page: paper, study."""

FIGURES = {
    ("shape", "figure3-extrapolate"): (
        "Figure 3a at tiny: BLEU less that of APE by source length, trained on up to 20 subwords;"
        " mean and standard deviation over seeds."
    ),
    ("shape", "figure2"): (
        "Figure 2 at tiny: how similar the encoder's states are if the same sentence is shifted by"
        " k₁ and by k₂."
    ),
    ("nhk", "figure3"): (
        "Figure 3 at tiny: BLEU by source length of models trained on all sentences (a) or on a"
        " slice of the lengths (b to d)."
    ),
    ("beyond", "lengths"): (
        "BLEU by source length on Extrapolate at tiny, trained on up to 20 subwords."
    ),
}
"""Figures of the page, in profile tiny: paper, name → what is to be seen."""


def collect_results(directory: Path) -> None:
    """Copy what the page shows from a folder that `shapeshift reproduce` wrote."""
    for study in (study for paper in collect(directory) for study in paper.studies):
        document = study.document
        if document.label or document.is_empty:
            continue
        _replace_findings(study)
        if (document.paper, document.study) in TABLES:
            table = document.tables[0]
            measured = [row for row in table.rows if any(x.value is not None for x in row)]
            shown = table.model_copy(update={"rows": tuple(measured)})
            header, *rows = with_p_values(shown, lambda entry: entry.text)
            path = RESULTS / f"{document.profile}.{document.paper}-{document.study}.csv"
            _write(path, header, rows)
        for name in (table.name for table in document.tables if table.figure):
            if (document.paper, name) in FIGURES and document.profile == "tiny":
                target = RESULTS / f"{document.paper}-{name}.png"
                picture = Image.open(study.directory / f"{name}.png")
                picture.quantize(128).save(target, optimize=True)  # a third of the bytes


def _replace_findings(study: ReportStudy) -> None:
    document = study.document
    own = (document.paper, document.study, document.profile)
    rows = [row for row in _read(FINDINGS)[1:] if tuple(row[:3]) != own]
    for f in document.findings:
        p_values = "; ".join(f"{label}: {p:.4g}" for label, p in f.p_values.items())
        rows.append([*own, f.claim, f.verdict, f.measured, f.paper, p_values])
    _write(FINDINGS, COLUMNS, sorted(rows, key=_place))


def _place(row: Sequence[str]) -> tuple[int, int, int]:
    """Return the place of a finding: the papers' order, their studies', the profiles'."""
    paper, study, profile = row[:3]
    return (
        [*PAPERS].index(paper),
        [*find_paper(paper).studies].index(study),
        PROFILES.index(profile),
    )


def document() -> str:
    """Return the page."""
    parts = [(RESULTS / "introduction.md").read_text(encoding="utf-8")]
    findings = _read(FINDINGS)[1:]
    for name in PAPERS:
        paper = find_paper(name)
        parts.append(f"## {paper.title}\n\n{paper.citation[0].upper()}{paper.citation[1:]}.\n")
        for study in (study for owner, study in TABLES if owner == name):
            parts += _table(name, study)
        for (owner, figure), caption in FIGURES.items():
            path = RESULTS / f"{name}-{figure}.png"
            if owner == name and path.exists():
                parts.append(f"![{figure}](results/{path.name})\n\n*{caption}*\n")
        own = [row[1:-1] for row in findings if row[0] == name and row[5] != NO_RUNS]
        if own:
            parts.append(_markdown(COLUMNS[1:-1], own) + "\n")
    return "\n".join(parts)


def _table(paper: str, study: str) -> Iterator[str]:
    """Yield our table of a study, with the paper's numbers in it: that of the smallest profile,
    which has the most seeds. The files of the others are named."""
    found = find_paper(paper).studies[study]
    paths = [RESULTS / f"{profile}.{paper}-{study}.csv" for profile in PROFILES]
    path, *others = filter(Path.exists, paths)
    header, *rows = _without_p_values(_read(path))
    notes: tuple[str, ...] = ()
    for table in _published(paper, study):
        header, rows = _side_by_side(header, rows, table)
        notes += table.notes
    profile = path.name.partition(".")[0]
    yield f"**{found.spec.title} ({paper}:{study}, {profile})**\n\n{_markdown(header, rows)}\n"
    sentences = [f"In the paper: {'; '.join(notes)}."] if notes else []
    sentences += [f"In another profile: `docs/results/{other.name}`." for other in others]
    if sentences:
        yield " ".join(sentences) + "\n"


def _without_p_values(lines: Sequence[Sequence[str]]) -> list[list[str]]:
    kept = [not title.endswith(_P_VALUE) for title in lines[0]]
    return [[*compress(line, kept)] for line in lines]


def _side_by_side(
    header: list[str], rows: list[list[str]], paper: DocumentTable
) -> tuple[list[str], list[list[str]]]:
    """Return our table with the paper's numbers to the right, and rows that only the paper has.

    What the paper calls `original`, we may have as `original-qkv` and `original-embedding`.
    """
    columns = zip(*paper.rows, strict=True)
    num_keys = next(n for n, column in enumerate(columns) if any(entry.value for entry in column))
    theirs = {
        tuple(entry.text for entry in row[:num_keys]): [entry.text for entry in row[num_keys:]]
        for row in paper.rows
    }
    joined, seen = [], set()
    for row in rows:
        own = row[:num_keys]
        names = [key for key in theirs if all(map(_is_same, own, key))]
        seen.update(names)
        joined.append(
            row + (theirs[names[0]] if names else [NO_VALUE] * (len(paper.header) - num_keys))
        )
    missing = [NO_VALUE] * (len(header) - num_keys)
    joined += [
        [*key, *missing, *values]
        for key, values in theirs.items()
        if key not in seen and set(values) != {NO_VALUE}
    ]
    return header + [f"paper: {name}" for name in paper.header[num_keys:]], joined


def _is_same(ours: str, theirs: str) -> bool:
    return ours == theirs or ours.startswith(f"{theirs}-")


def _published(paper: str, study: str) -> list[DocumentTable]:
    """Return the paper's tables, which a study makes without any run."""
    found = find_paper(paper).studies[study]
    measured = Measured(found.grid.runs("tiny"), Path("nowhere"), Path("nowhere"))
    return [table for table in found.build(measured).tables if table.origin == "paper"]


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(header), "|---" * len(header) + "|", *map(_row, rows)])


def _row(fields: Sequence[str]) -> str:
    texts = (text.replace("|", r"\|").replace("\n", " ") for text in fields)
    return f"| {' | '.join(texts)} |"


def _read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.reader(file)]


def _write(path: Path, header: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directories", type=Path, nargs="*", help="none: the page alone")
    for directory in parser.parse_args().directories:
        collect_results(directory)
    (DOCS / "results.md").write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
