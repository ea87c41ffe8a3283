"""Write docs/results.md from what `shapeshift reproduce` has made.

    shapeshift reproduce shape && shapeshift reproduce shaw && shapeshift reproduce nhk
    python docs/generate_results.py reproduced

Figures go to docs/results/ as PNG, so that the page shows them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path

from shapeshift.papers.document import Finding
from shapeshift.papers.write import markdown
from shapeshift.report.collect import ReportItem, ReportPaper, collect, count, findings

DOCS = Path(__file__).parent
FIGURES = DOCS / "results"

INTRODUCTION = """\
# Results

What `shapeshift reproduce` made, beside the papers' figures; this page is written by
`python docs/generate_results.py`. How verdicts are reached, and what a `*` means, is in
[reproducing.md](reproducing.md); experiments on the way are in [log.md](log.md). `shapeshift
report` makes a page of the same items on which each number shows where it is from.
"""


def page(papers: list[ReportPaper]) -> str:
    """Return the whole page."""
    items = [item for paper in papers for item in paper.items]
    told = findings(items)
    counts = ", ".join(
        f"{number} {verdict}" for verdict, number in count(f for _, f in told).items()
    )
    rows = [_row(item, found) for item, found in told]
    parts = [
        INTRODUCTION,
        f"## Findings: {counts}\n",
        "| item | scale | claim | verdict | measured | in the paper | where it should show |\n"
        "|---|---|---|---|---|---|---|",
        "\n".join(rows) + "\n",
    ]
    for paper in papers:
        parts.append(f"## {paper.title}\n\n{paper.citation}.\n")
        parts += [part for item in paper.items for part in _item(item)]
    return "\n".join(parts)


def _item(item: ReportItem) -> Iterator[str]:
    document = item.document
    yield f"### {document.title} ({document.scale})\n"
    yield f"`{document.command}`\n"
    for figure in document.figures:
        name = f"{document.scale}-{document.paper}-{figure.name}.png"
        source = item.directory / f"{figure.name}.png"
        if source.exists():
            FIGURES.mkdir(exist_ok=True)
            shutil.copyfile(source, FIGURES / name)
            yield f"![{figure.alt}](results/{name})\n"
    yield from (markdown(table) for table in document.tables)
    if document.unfinished:
        yield f"Not finished, and not in these numbers: {', '.join(document.unfinished)}.\n"


def _row(item: ReportItem, found: Finding) -> str:
    document = item.document
    where = f"{document.paper}:{document.item}"
    texts = (
        where,
        document.scale,
        found.claim,
        found.verdict,
        found.measured,
        found.paper,
        found.remark,
    )
    return f"| {' | '.join(map(_cell, texts))} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", default=Path("reproduced"))
    args = parser.parse_args()
    papers = collect(args.directory)
    shutil.rmtree(FIGURES, ignore_errors=True)
    (DOCS / "results.md").write_text(page(papers), encoding="utf-8")


if __name__ == "__main__":
    main()
