"""The wheel in environments that have what it asks for and nothing else, outside the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ..pages import ROOT, blocks

PACKED = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
TIMEOUT_S = 300
Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    (folder / "source").mkdir()
    for name in PACKED:  # a copy, since building leaves files that the next wheel would hold
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    command = [sys.executable, "-m", "pip", *build, str(folder / "source")]
    subprocess.run(command, check=True, timeout=3 * TIMEOUT_S)  # it compiles the kernels
    (wheel,) = folder.glob("*.whl")
    return wheel


def needed(package: Distribution, *extras: str) -> Iterator[Distribution]:
    """Yield what pip would install with a package, as it is installed here."""
    todo, seen = [(package, frozenset({"", *extras}))], set()
    while todo:
        asking, wanted = todo.pop()
        for requirement in map(Requirement, asking.requires or ()):
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in wanted):
                continue
            found = distribution(requirement.name)
            own = (found, frozenset({"", *requirement.extras}))
            if (found.name, own[1]) not in seen:
                seen.add((found.name, own[1]))
                todo.append(own)
                yield found


@pytest.fixture(scope="module")
def make(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return a function that makes an environment with the wheel and some of its extras, and
    returns one that runs the environment's Python in an empty folder."""

    def make_environment(*extras: str) -> Run:
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder / "venv", symlinks=True)
        (packages,) = (folder / "venv").glob("lib/python*/site-packages")
        zipfile.ZipFile(wheel).extractall(packages)
        (info,) = packages.glob("shapeshift-*.dist-info")
        for each in needed(PathDistribution(info), *extras):
            for top in {path.parts[0] for path in each.files or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(Path(str(each.locate_file(top))))
        (folder / "empty").mkdir()

        def run(*arguments: str) -> str:
            ended = subprocess.run(
                [str(folder / "venv" / "bin" / "python"), *arguments],
                env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
                cwd=folder / "empty",
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        return run

    return make_environment


def snippet(mark: str) -> str:
    """Return the only Python block of the README that contains `mark`."""
    (found,) = [block for block in blocks("README.md", "python") if mark in block]
    return found


@pytest.mark.slow
def test_every_data_file_is_in_the_wheel(wheel: Path) -> None:
    package = ROOT / "src" / "shapeshift"
    held = set(zipfile.ZipFile(wheel).namelist())
    files = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    wanted = {path for path in files if "__pycache__" not in path.parts}
    wanted -= {path for path in wanted if path.suffix == ".so"}  # see the next test
    assert len(wanted) > 200
    assert [path for path in wanted if str(Path("shapeshift", path)) not in held] == []


@pytest.mark.slow
def test_the_kernels_are_built_for_the_wheel(wheel: Path, make: Callable[..., Run]) -> None:
    from shapeshift.kernels.processor import instruction_sets

    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{machine}.whl")
    built = zipfile.ZipFile(wheel)
    (record,) = [name for name in built.namelist() if name.endswith("/RECORD")]
    libraries = [x for x in built.namelist() if x.endswith(".so")]
    assert all(f"{x},sha256=" in built.read(record).decode() for x in libraries)
    if shutil.which("cc") is None:
        assert not libraries
        return
    run = make()
    code = "from shapeshift import kernels; print(kernels.describe())"
    assert run("-W", "ignore", "-c", code).startswith("compiled kernels: float32 ")
    assert f"shapeshift/kernels/{instruction_sets()[-1]}-float32.so" in libraries


def test_the_library_needs_torch_alone(make: Callable[..., Run]) -> None:
    run = make()
    where = "import shapeshift; print(shapeshift.__file__)"
    code = [snippet("class Encoder"), snippet("MultiheadAttention"), where]
    assert "environment" in run("-W", "ignore", "-c", "\n".join(code))
    found = (
        "import importlib.util as u; print([x for x in ('numpy', 'pydantic') if u.find_spec(x)])"
    )
    assert run("-c", found) == "[]\n"
    remedy = "from shapeshift._system.errors import install_extra; print(install_extra('testbed'))"
    assert "pip install 'shapeshift[testbed]'" in run("-c", remedy)


@pytest.mark.slow
def test_the_testbed_needs_its_extra_alone(make: Callable[..., Run]) -> None:
    run = make("testbed")
    run("-c", snippet("build(ModelConfig"))
    printed = run("-m", "shapeshift", "demo", "--fast")
    for name in ("ape", "shape-10", "rpe"):
        assert re.search(rf"^ +{name} +[0-9]", printed, re.MULTILINE), printed
    assert "report.html" in printed
