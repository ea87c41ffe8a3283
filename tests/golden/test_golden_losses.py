"""Whatever is changed, the schemes train as they did: see `losses.py`."""

import json
import runpy
from pathlib import Path

import pytest

from shapeshift.positions import SCHEMES

FOLDER = Path(__file__).parent
RECORDED = json.loads((FOLDER / "losses.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(FOLDER / "losses.py"))


@pytest.fixture(scope="module")
def store(script, tmp_path_factory):
    return script["write_store"](tmp_path_factory.mktemp("golden"))


def test_every_scheme_is_recorded():
    assert list(RECORDED) == list(SCHEMES)
    firsts = [tuple(losses[:1]) for losses in RECORDED.values()]
    assert len(set(firsts)) > len(firsts) / 2  # they do not all train the same


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_trains_as_it_did(scheme, script, store, tmp_path):
    # Another processor rounds otherwise: some 1e-6 after as many updates.
    losses = script["losses_of"](scheme, store, tmp_path / "run")
    assert losses == pytest.approx(RECORDED[scheme], rel=1e-4)
    assert len(RECORDED[scheme]) == 8
