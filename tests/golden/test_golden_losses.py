"""Whatever is changed, the presets train as they did: see `losses.py`."""

import json
import runpy
from pathlib import Path

import pytest

from shapeshift.positions import PRESETS

FOLDER = Path(__file__).parent
RECORDED = json.loads((FOLDER / "losses.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(FOLDER / "losses.py"))


@pytest.fixture(scope="module")
def store(script, tmp_path_factory):
    return script["write_store"](tmp_path_factory.mktemp("golden"))


def test_every_preset_is_recorded():
    assert list(RECORDED) == list(PRESETS)
    firsts = [tuple(losses[:1]) for losses in RECORDED.values()]
    assert len(set(firsts)) > len(firsts) / 2  # they do not all train the same


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_trains_as_it_did(preset, script, store, tmp_path):
    # Another processor rounds otherwise: some 1e-6 after as many updates.
    losses = script["losses_of"](preset, store, tmp_path / "run")
    assert losses == pytest.approx(RECORDED[preset], rel=1e-4)
    assert len(RECORDED[preset]) == 8
