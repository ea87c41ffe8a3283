"""Write the tables of docs/benchmarks.md from benchmarks/results/.

    python docs/generate_benchmarks.py

A file of results, `MACHINE/DATE-BENCHMARK.json`, holds its command, the commit that recorded it,
and rows of named columns; `MACHINE/machine.json` describes the machine. On the page, a comment
`<!-- results: FILE … -->` names the files of the table below it; with several files, the first
column says which machine and date a row is from. A test compares the page with the files.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "benchmarks.md"
RESULTS = DOCS.parent / "benchmarks" / "results"


def read(name: str) -> dict[str, Any]:
    """Return a file of results; its numbers keep their digits."""
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text, parse_float=Decimal)


def shown(cell: Any) -> str:
    """Return a value as the page shows it: text, a number, a range, or several of them."""
    match cell:
        case None:
            return "–"
        case str():
            return cell
        case [low, high]:
            return f"{low:,}–{high:,}"
        case {"value": value, "range": [low, high]}:
            return f"{value:,} ({low:,}–{high:,})"
        case {"value": value, "ratio": ratio}:
            return f"{value:,} ({ratio:,} ×)"
        case {"from": start, "to": end}:
            return f"{start:,} → {end:,}"
        case {"mean": mean, "std": std}:
            return f"{mean} ± {std}"
        case {"measured": cells}:
            return ", ".join(map(shown, cells))
    return f"{cell:,}"


def table(names: list[str]) -> str:
    """Return the Markdown table of files with the same columns, without repeated words."""
    files = [read(name) for name in names]
    columns, rows = files[0]["columns"], []
    for file in files:
        assert file["columns"] == columns
        machine = read(f"{file['machine']}/machine")["title"]
        label = [f"{machine}, {file['date']}"] if len(files) > 1 else []
        rows += [[*label, *row] for row in file["results"]]
    columns = [*([""] if len(files) > 1 else []), *columns]
    is_text = [any(isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    lines = [columns, ["---" if each else "---:" for each in is_text]]
    for above, row in zip([None, *rows], rows, strict=False):
        cells = [shown(cell) for cell in row]
        for i in range(len(row) - 1):
            if above is None or not is_text[i] or above[i] != row[i]:
                break
            cells[i] = ""
        lines.append(cells)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def document() -> str:
    """Return the page with its tables made anew."""
    return re.sub(
        r"(<!-- results: (.*?) -->\n)(?:(?:\||TABLE).*\n)*",
        lambda found: found[1] + "\n" + table(found[2].split()),
        PAGE.read_text(encoding="utf-8").replace("-->\n\n|", "-->\n|"),
    )


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
