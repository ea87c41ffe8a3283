"""What Shapeshift answers to the mistakes of a first hour: writes the answers in dev/refusals.md.

    python dev/refusals.py

Runs each command of the page in a small project, in this process; the answer is what it prints
last on standard error. To add a mistake, add a row with its command to the page.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from pathlib import Path

import torch

from shapeshift import cli
from shapeshift.data.grammar import generate

PAGE = Path(__file__).with_suffix(".md")
CONFIG = """\
data:
  corpus: {corpus: files, root: text, source: en, target: de, train: [train], valid: [valid],
    test: [test]}
  subwords: {vocab_size: 90}
model: {dim: 16, num_heads: 2, ff_dim: 16, encoder_layers: 1, decoder_layers: 1}
training:
  {max_updates: 2, batch: {max_tokens: 500}, schedule: {warmup_updates: 1}, device: cpu}
decoding: {beam: 1, max_length_a: 0, max_length_b: 5}
"""


def run(command: str) -> tuple[int, str]:
    """Run a command in this folder; return its status and the last line on standard error."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    sys.argv = ["shapeshift", *shlex.split(command)]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
            code: object = 0
        except SystemExit as ended:
            code = ended.code or 0
    if isinstance(code, str):
        return 1, code
    lines = err.getvalue().strip().splitlines() or ["(nothing)"]
    return int(str(code)), lines[-1]


def write_project() -> None:
    """Write text, configurations, files with faults and two runs into this folder."""
    Path("text").mkdir()
    pairs = [*generate(70, seed=1, min_words=3, max_words=12)]
    for side, language in enumerate(("en", "de")):
        lines = [f"{pair[side]}\n" for pair in pairs]
        splits = {"train": lines[:60], "valid": lines[60:65], "test": lines[65:], "empty": []}
        splits["short"] = lines[: 20 + side]
        for split, part in splits.items():
            Path(f"text/{split}.{language}").write_text("".join(part), encoding="utf-8")
        Path(f"text/latin.{language}").write_text("ö\n".join(lines), encoding="latin-1")
    Path("text/all.tsv").write_text("A line.\tEine Zeile.\n", encoding="utf-8")
    Path("blank.yaml").touch()
    Path("study.yaml").write_text("title: mine\ngrid: {axes: {}}\n", encoding="utf-8")
    Path("mine.yaml").write_text(CONFIG, encoding="utf-8")
    Path("notes.yaml").write_text("Things to do\n", encoding="utf-8")
    Path("broken.yaml").write_text(CONFIG.replace("[valid]", "[valid"), encoding="utf-8")
    Path("empty").touch()
    Path("bad").write_bytes(b"A fine line.\nA caf\xe9.\n")
    Path("nul").write_bytes(b"A fine line.\nA\x00B\n")
    Path("long").write_text("A fine line.\n" + "a dog " * 3000 + "\n", encoding="utf-8")
    for name, settings in (("run", ""), ("per-head-run", "position=skew")):
        status, answer = run(f"train mine.yaml --no-test --run {name} {settings}")
        assert status == 0, answer


def main() -> None:
    torch.set_num_threads(1)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_project()
        for number, line in enumerate(lines):
            row = re.match(r"\| `(.*?)` \|", line)
            if row is not None and "…" not in row[1]:
                status, answer = run(row[1])
                answer = answer.removeprefix("shapeshift: error: ").replace("|", r"\|")
                lines[number] = f"| `{row[1]}` | {status} | {answer} |"
    text = "\n".join(lines).replace(str(Path(cli.__file__).parents[1]), "shapeshift")
    PAGE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
