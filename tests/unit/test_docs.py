"""README.md and docs/: links lead somewhere, commands parse, YAML loads, Python runs."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer

from shapeshift.cli import COMMANDS, app
from shapeshift.config import Config, parse_config
from shapeshift.config.files import find_config, read_document
from shapeshift.config.yaml_file import parse_yaml
from shapeshift.study.catalogue import PaperSpec, find_studies
from shapeshift.study.spec import StudySpec

from ..pages import ROOT, blocks

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.name != "introduction.md"  # of docs/results.md
}
TESTED_ALONE = {
    "docs/guides/exporting.md": ("tests/unit/export/test_export_command.py", 3),
    "docs/guides/hugging-face.md": ("tests/unit/interop/test_snippets.py", 5),
    "docs/guides/torch-nn.md": ("tests/unit/interop/test_snippets.py", 4),
    "docs/tutorials/own-kind.md": ("tests/integration/test_own_kind.py", 8),
    "docs/tutorials/own-study.md": ("tests/integration/test_own_study.py", 2),
}
"""Page whose Python needs names that the page does not define → the test that runs it, and how many
blocks it runs."""


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path) if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = re.findall(r": (\S+\.md)$", navigation, flags=re.MULTILINE)
    assert {f"docs/{name}" for name in listed} == {page for page in PAGES if page[:5] == "docs/"}


def test_files_and_make_targets_that_pages_name_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    tests = [f"/{path.relative_to(ROOT)}" for path in (ROOT / "tests").rglob("test_*.py")]
    missing = set()
    for page, text in PAGES.items():
        if page == "CHANGELOG.md":  # about earlier versions, too
            continue
        names = re.findall(r"\b(?:src|tests|examples|benchmarks|notebooks)/[\w/.-]*\w", text)
        missing |= {(page, name) for name in names if not (ROOT / name).exists()}
        named = re.findall(r"`((?:[\w/]+/)?test_\w+\.py)", text)
        missing |= {
            (page, name) for name in named if not any(path.endswith(f"/{name}") for path in tests)
        }
        targets = re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE)
        missing |= {(page, name) for name in targets if f"\n{name}:" not in makefile}
    assert {name for name in missing if "root_distance" not in name[1]} == set()  # a tutorial's own


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield the page and the arguments of every `shapeshift` command line."""
    for page in PAGES:
        for block in blocks(page, "", "sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.search(r"(?:^|[ (])shapeshift ([a-z]+\b.*)", line)
                if command and not line.startswith("#"):
                    yield page, shlex.split(re.sub(r"\s#.*|[<|;&].*|'$", "", command[1]))


@pytest.mark.parametrize(("page", "arguments"), list(commands()), ids=str)
def test_a_command_line_is_one_that_the_program_takes(page: str, arguments: list[str]) -> None:
    name, *rest = arguments
    assert name in COMMANDS
    group: Any = typer.main.get_command(app)
    command = group.get_command(group.make_context("shapeshift", [name]), name)
    given = command.make_context(name, rest).params
    config, overrides = given.get("config"), given.get("overrides") or ()
    shipped = str(config) != "CONFIG" and not str(config).endswith(("yaml", "yml"))
    if name in ("train", "prepare") and shipped:
        path = find_config(config)
        parse_config(read_document(path), overrides, path)
    target = given.get("target")
    of_page = ("PAPER", "relative", "all")  # the folder of docs/tutorials/own-paper.md
    if name == "reproduce" and target and not target.endswith(".yaml"):
        if target.partition(":")[0] in of_page:
            return
        find_studies(target)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")])
def test_yaml_is_accepted(page: str) -> None:
    for block in blocks(page, "yaml"):
        document = parse_yaml(block)
        if "studies" in document:
            PaperSpec.model_validate(document)
        elif "title" in document:
            StudySpec.model_validate(document)
        else:
            assert set(document) <= set(Config.model_fields)
            parse_config(document)


def test_the_reference_of_python_names_what_exists() -> None:
    pytest.importorskip("transformers")
    entries = re.findall(
        r"^::: (\S+)\n(?:    options: \{members: \[(.*)\])?", PAGES["docs/python.md"], re.MULTILINE
    )
    assert entries
    for path, members in entries:
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        for member in filter(None, members.split(", ")):
            assert hasattr(found, member), f"{path}.{member}"


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") and page not in TESTED_ALONE]
)
def test_python_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    monkeypatch.chdir(tmp_path)
    config = transformers.BartConfig(
        vocab_size=50, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8,
        max_position_embeddings=600,
    )  # fmt: skip
    # A folder of the name that snippets load stands in for the download.
    transformers.BartForConditionalGeneration(config).save_pretrained("facebook/bart-base")
    exec("\n".join(blocks(page, "python")), {"__name__": "snippets"})


@pytest.mark.parametrize("page", TESTED_ALONE)
def test_other_tests_run_all_python_of_the_other_pages(page: str) -> None:
    test, num_blocks = TESTED_ALONE[page]
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")
    assert len(blocks(page, "python")) == num_blocks, f"run the others in {test}, too"


def test_the_tables_of_benchmarks_are_those_of_the_stored_results() -> None:
    module = runpy.run_path(str(ROOT / "docs" / "generate_benchmarks.py"))
    assert module["document"]() == PAGES["docs/benchmarks.md"], "run docs/generate_benchmarks.py"
    named = re.findall(r"<!-- results: (.*?) -->", PAGES["docs/benchmarks.md"])
    stored = (ROOT / "benchmarks" / "results").glob("*/20*.json")
    assert sorted(" ".join(named).split()) == sorted(f"{x.parent.name}/{x.stem}" for x in stored)
