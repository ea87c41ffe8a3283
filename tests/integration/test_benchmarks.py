"""Scripts that measure still run, at the smallest sizes."""

import runpy
import sys
from pathlib import Path

import pytest

from shapeshift.data.grammar import generate

from ..unit.cli.running import python

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "benchmarks"
SMALL = "--size tiny --tokens 64 --vocabulary 50 --repeats 1"


@pytest.mark.parametrize(
    "command",
    [
        f"positions.py {SMALL} --lengths 8 --systems ape,rpe,textbook",
        f"positions.py {SMALL} --lengths 8 --systems ape,rpe,t5 --attention decoder",
        "positions.py --size tiny --tokens 64 --vocabulary 50 --lengths 8 --systems ape --memory",
        "speed.py --size tiny --vocabulary 50 --positions ape,rpe --repeats 1",
    ],
)
def test_a_script_measures(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", command.split())
    runpy.run_path(str(FOLDER / sys.argv[0]), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        f"training_step.py {SMALL}",
        pytest.param("instruction_sets.py --repeats 1", marks=pytest.mark.slow),  # it compiles
        pytest.param(
            "compare.py decoding --apart --size tiny --sentences 64 --forced-steps 3 --repeats 1"
            " --text text.en text.de --vocabulary 200",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_script_that_changes_its_process_measures(command, tmp_path):
    english, german = zip(*generate(300, seed=1), strict=True)
    (tmp_path / "text.en").write_text("\n".join(english), encoding="utf-8")
    (tmp_path / "text.de").write_text("\n".join(german), encoding="utf-8")
    script, *options = command.split()
    done = python(FOLDER / script, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
