"""What is installed from a wheel, outside the repository, is all that the package needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKED = ("pyproject.toml", "README.md", "LICENSE", "configs", "src")
TIMEOUT_S = 200

TINY_BART = """
from transformers import BartConfig, BartForConditionalGeneration
config = BartConfig(
    vocab_size=20, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
    decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=200,
)
BartForConditionalGeneration(config).save_pretrained("facebook/bart-base")
"""
"""A folder of the name that the README's snippet loads stands in for the download."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    (folder / "source").mkdir()
    for name in PACKED:  # a copy, since building leaves files that the next wheel would hold
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    command = [sys.executable, "-m", "pip", *build, str(folder / "source")]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs Python in an empty folder with the wheel's package first."""

    def start(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert ended.returncode == status, ended.stderr
        return ended

    return start


def test_every_data_file_is_in_the_wheel(installed: Path) -> None:
    package = ROOT / "src" / "shapeshift"
    folders = {package: "", ROOT / "configs": "configs"}  # in the sources, configs is a link
    for folder, name in folders.items():
        files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        wanted = {path for path in files if "__pycache__" not in path.parts}
        assert len(wanted) > 20
        missing = [path for path in wanted if not (installed / "shapeshift" / name / path).exists()]
        assert missing == []


def test_the_snippets_of_the_readme_run(run) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(snippets) == 3
    where = "import shapeshift; print(shapeshift.__file__)"
    assert "installed" in run("-c", "\n".join([TINY_BART, *snippets, where])).stdout


@pytest.mark.parametrize("name", ["multi30k", "demo", "shape-paper"])
def test_a_shipped_configuration_is_found_by_name(name: str, run) -> None:
    assert "parameters" in run("-m", "shapeshift", "train", name, "--dry-run").stdout


def test_the_built_in_corpus_and_the_papers_are_there(run) -> None:
    small = (f"data.corpus.num_{split}=40" for split in ("train", "valid", "test"))
    run("-m", "shapeshift", "prepare", "demo", *small, "data.subwords.vocab_size=150")
    assert "shape:table2" in run("-m", "shapeshift", "reproduce", "--list").stdout
