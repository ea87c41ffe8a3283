"""Exported models are served next to the runs that they come from."""

import httpx2
import pytest

from shapeshift.export import ctranslate2
from shapeshift.export.folder import Trained
from shapeshift.run.folder import SUBWORDS, Run

from .untrained import serving, write_run


@pytest.mark.long
def test_an_exported_model_next_to_its_run(tmp_path):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    folder = write_run(tmp_path / "run", "rpe", decoding={"beam": 1, "max_length_b": 3})
    run = Run(folder)
    trained = Trained(
        run.model(),
        run.config.model,
        run.config.position,
        run.subwords(),
        folder / SUBWORDS,
        longest=(8, 8),
    )
    ctranslate2.export(trained, folder / "ctranslate2")
    with serving([folder, folder / "ctranslate2"]) as (_, url):
        runs = httpx2.get(f"{url}/runs").json()
        assert [(each["name"], each["engine"]) for each in runs] == [
            ("run", "torch"),
            ("run/ctranslate2", "ctranslate2"),
        ]
        body = {"sentence": "ab cd ef"}
        ours, exported = httpx2.post(f"{url}/attention", json=body, timeout=20).json()
        assert ours["translation"]["text"] == exported["translation"]["text"]
        assert ours["attention"] is not None
        assert exported["attention"] is None
