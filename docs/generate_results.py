"""Write docs/results.md and docs/results/ from what `shapeshift reproduce` has made.

    shapeshift reproduce shape && shapeshift reproduce shaw && shapeshift reproduce nhk
    python docs/generate_results.py reproduced

Each item is a page, docs/results/SCALE/PAPER-ITEM.md, with its figures as PNG beside it. Pages of
items that are not in the folder stay as they are: results may come from several machines. The
overview is made from all pages that are there; a test compares it with them.
"""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from pathlib import Path

from shapeshift.papers.catalogue import PAPERS, find_paper
from shapeshift.papers.document import Finding
from shapeshift.papers.write import markdown
from shapeshift.report.collect import SCALES, VERDICTS, ReportItem, collect

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"

INTRODUCTION = """\
# Results

What `shapeshift reproduce` made, beside the papers' figures; this page is written by
`python docs/generate_results.py`. How verdicts are reached, and what a `*` means, is in
[reproducing.md](reproducing.md); experiments on the way are in [log.md](../dev/log.md). `shapeshift
report` makes a page of the same items on which each number shows where it is from.
"""

COLUMNS = "claim | verdict | measured | in the paper | remark |"
RULE = "|---|---|---|---|---|"


def write_item(item: ReportItem) -> None:
    """Write an item's page and copy its figures."""
    document = item.document
    folder = RESULTS / document.labelled_scale
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{document.paper}-{document.item}"
    for old in folder.glob(f"{name}.*"):
        old.unlink()
    parts = [f"# {document.title} ({document.labelled_scale})\n", f"`{document.command}`\n"]
    if document.findings:
        parts.append("\n".join((f"| {COLUMNS}", RULE, *map(_row, document.findings))) + "\n")
    for figure in document.figures:
        source = item.directory / f"{figure.name}.png"
        if source.exists():
            shutil.copyfile(source, folder / f"{name}.{figure.name}.png")
            parts.append(f"![{figure.alt}]({name}.{figure.name}.png)\n")
    parts += map(markdown, document.tables)
    if document.unfinished:
        parts.append(f"Not finished, and not in these numbers: {', '.join(document.unfinished)}.\n")
    (folder / f"{name}.md").write_text("\n".join(parts), encoding="utf-8")


def document() -> str:
    """Return the page that leads to all others."""
    rows, lists = list[str](), list[str]()
    for name in PAPERS:
        links = list[str]()
        for item, path in _pages(name):
            link = f"[{name}:{item}]({path.relative_to(DOCS)})"
            title, _, text = path.read_text(encoding="utf-8").removeprefix("# ").partition("\n")
            links.append(f"- {link}: {title}")
            _, _, table = text.partition(f"{RULE}\n")
            found = table.partition("\n\n")[0].splitlines()
            rows += (f"| {link} | {path.parent.name} {row}" for row in found)
        if links:
            paper = find_paper(name)
            lists.append(f"## {paper.title}\n\n{paper.citation}.\n\n" + "\n".join(links) + "\n")
    verdicts = Counter(row.split(" | ")[3] for row in rows)
    counts = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
    table = "\n".join((f"| item | scale | {COLUMNS}", f"|---|---{RULE}", *rows))
    return "\n".join((INTRODUCTION, *lists, f"## Findings: {counts}\n", table + "\n"))


def _pages(paper: str) -> list[tuple[str, Path]]:
    """Return a paper's items and their pages, in its order, each from the smallest scale up."""
    folders = [
        folder
        for scale in SCALES
        for folder in (RESULTS / scale, *sorted(RESULTS.glob(f"{scale}-*")))  # with their labels
    ]
    items = find_paper(paper).items
    paths = ((item, folder / f"{paper}-{item}.md") for item in items for folder in folders)
    return [(item, path) for item, path in paths if path.exists()]


def _row(found: Finding) -> str:
    texts = found.claim, found.verdict, found.measured, found.paper, found.remark
    return f"| {' | '.join(map(_cell, texts))} |"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directories", type=Path, nargs="*", help="none: the overview alone")
    for directory in parser.parse_args().directories:
        for item in (item for paper in collect(directory) for item in paper.items):
            write_item(item)
    (DOCS / "results.md").write_text(document(), encoding="utf-8")


if __name__ == "__main__":
    main()
