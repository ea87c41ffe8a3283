"""The command lines of README and docs run, one after the other, on small models.

Those that train several models are run with `--dry-run` or `--no-run`: test_compare.py,
test_reproduce.py and test_own_study.py train such. NOT_RUN says what is left out, and why.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from shapeshift.data.grammar import generate

from ..pages import ROOT, blocks
from ..unit.cli.running import shapeshift
from .test_own_paper import write_paper

PAGES = ["README.md", "CONTRIBUTING.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))

NOT_RUN = {
    r"pip install|mtdata|wget|corpora/|^for |^done$": "needs the internet",
    r"check gpt2|import Helsinki|runs/opus": "needs a model of the Hugging Face hub",
    r"shapeshift context": "needs a trained model: unit/cli/test_context.py",
    r"check my_models": "a model of one's own: unit/cli/test_check.py",
    r"check runs/mine": "exports to each engine: unit/export/test_export_command.py",
    r"reproduce all": "no small settings fit all papers: unit/cli/test_reproduce.py",
    r"torchrun|srun|SLURM|SBATCH|MASTER_ADDR|scontrol|rdzv": "several machines or processes:"
    " integration/test_distributed.py, unit/study/test_launchers.py",
    r"shapeshift serve|^curl": "serves until it is stopped: integration/test_serve_in_browser.py",
    r"--profile paper": "measures models of the papers' size: unit/cli/test_dry_run.py",
    r"^(\w+=\S+ )*python benchmarks/": "takes minutes to hours",
    r"^sh benchmarks/peers": "downloads other toolkits",
    r"^python examples/golden_vectors": "unit/export/test_golden.py",
    r"^python docs/": "unit/config/test_configs.py compares what they write",
    r"^PYTHONPATH=|root_distance:|runs/root": "integration/test_own_kind.py",
    r"^make ": "what runs this test",
}
"""Pattern of a line → why it is not run here."""

SMALL = {
    "data.subwords.vocab_size": 200,
    "model.dim": 16,
    "model.num_heads": 2,
    "model.ff_dim": 16,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "training.max_updates": 4,
    "training.checkpoint_every": 2,
    "training.average_checkpoints": 2,
    "training.keep_checkpoints": 2,
    "training.schedule.warmup_updates": 1,
    "decoding.beam": 1,
    "decoding.max_length_a": 0,
    "decoding.max_length_b": 12,
}
GRAMMAR = {f"data.corpus.num_{split}": 200 for split in ("train", "valid", "test")}
OF_FILES = ("mine.yaml", "study.yaml", "multi30k", "small")


def lines(page: str) -> list[str]:
    """Return the command lines of a page, without comments, continued ones joined."""
    shown = "\n".join(blocks(page, "", "sh", "bash", "console"))
    joined = re.sub(r"\\\n\s*", "", shown).splitlines()
    stripped = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined)
    return [line for line in stripped if re.match(r"[a-zA-Z_]+[ =]", line) and "  " not in line]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the text, the runs and the studies that pages name or show."""
    tmp_path = tmp_path_factory.mktemp("made")
    pairs = [*generate(900, seed=1, max_words=12)]
    for name, part in {
        "data/all": pairs, "text/all": pairs, "train": pairs[:300], "valid": pairs[300:350],
        "test": pairs[350:400], "text": pairs[:3], "input": pairs[:3], "reference": pairs[:3],
    }.items():  # fmt: skip
        for side, language in enumerate(("en", "de")):
            path = tmp_path / f"{name}.{language}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    tutorial = blocks("docs/tutorials/own-study.md", "yaml")
    [study] = [block for block in tutorial if block.startswith("title: ")]
    (tmp_path / "study.yaml").write_text(study, encoding="utf-8")
    write_paper(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "precision.yaml", tmp_path / "benchmarks")
    init = ("init", "--source", "en", "--target", "de", "--train", "text/all")
    assert shapeshift(tmp_path, *init)[0] == 0
    tabbed = "".join(f"{english}\t{german}\n" for english, german in pairs)
    (tmp_path / "all.tsv").write_text(tabbed, encoding="utf-8")
    for name, position in {"mine": "ape", "mine-ape": "ape", "mine-shape": "shape"}.items():
        run(tmp_path, f"shapeshift train mine.yaml position={position} --run runs/{name}")
    return tmp_path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path / "folder"))


def run(folder: Path, line: str) -> None:
    """Run a line in a folder, on a small scale."""
    said = re.match(r'echo "(.*?)" \| ', line)
    source, target = (re.search(sign + r" (\S+)", line) for sign in ("<", ">"))
    _, command, *arguments = shlex.split(re.sub(r"^echo .*?\| | [<>] \S+", "", line))
    if command == "init":  # which replaces nothing
        (folder / "mine.yaml").unlink(missing_ok=True)
        shutil.rmtree(folder / "mine", ignore_errors=True)
    if command in ("train", "compare", "reproduce", "prepare") and "--list" not in arguments:
        on_files = any(each in OF_FILES for each in arguments)
        small = SMALL | ({} if on_files else GRAMMAR)
        arguments = [each for each in arguments if each.partition("=")[0] not in small]
        arguments += [f"{key}={value}" for key, value in small.items()]
    if command == "compare":
        arguments.append("--dry-run")
    if command == "reproduce" and not {"--dry-run", "--list"} & {*arguments}:
        arguments.append("--no-run")
        if "--seed" in arguments:  # has no effect without runs
            at = arguments.index("--seed")
            del arguments[at : at + 2]
    stdin = f"{said[1]}\n".encode() if said else b""
    if source:
        stdin = (folder / source[1]).read_bytes()
    status, out, err = shapeshift(folder, command, *arguments, stdin=stdin)
    assert status == 0, (line, err)
    if target:
        (folder / target[1]).write_text(out, encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if lines(page)])
def test_every_command_line_runs(page: str, folder: Path) -> None:
    for line in lines(page):
        if re.search(r"(^|\| )shapeshift ", line) and not left_out(line):
            run(folder, line)
        elif not left_out(line):
            subprocess.run(line, shell=True, cwd=folder, check=True)


def left_out(line: str) -> bool:
    return any(re.search(pattern, line) for pattern in NOT_RUN)
