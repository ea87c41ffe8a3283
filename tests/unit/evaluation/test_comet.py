"""COMET, with a stand-in for the package `unbabel-comet` that has its functions' signatures
(2.2.7)."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import hash_file
from shapeshift.evaluation import comet as module
from shapeshift.evaluation.comet import DEFAULT_MODEL
from shapeshift.evaluation.metrics import score_corpus

SOURCES, HYPOTHESES, REFERENCES = ["ein Hund", "Rosen"], ["a dog", "rose"], ["a dog", "roses"]


class Package(ModuleType):
    """Scores a segment by whether it is its reference: 1 or -0.5."""

    __version__ = "2.2.7"

    def __init__(self, folder):
        super().__init__("comet")
        self.folder = folder
        self.downloads, self.loads, self.predictions = [], [], []

    def download_model(self, model, saving_directory=None, local_files_only=False):
        self.downloads.append(model)
        if "unknown" in model:
            raise KeyError(f"Model '{model}' not supported by COMET.")
        return str(self.folder / "checkpoints" / "model.ckpt")

    def load_from_checkpoint(self, checkpoint_path, reload_hparams=False, strict=False):
        if not (Path(checkpoint_path).parents[1] / "hparams.yaml").is_file():
            raise Exception("hparams.yaml file is missing")
        torch.load(checkpoint_path, weights_only=False)  # as Lightning may
        self.loads.append(checkpoint_path)
        return SimpleNamespace(predict=self.predict)

    def predict(self, samples, batch_size=16, gpus=1, progress_bar=True):
        self.predictions.append((samples, progress_bar))
        scores = [1.0 if x["mt"] == x["ref"] else -0.5 for x in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


def make_checkpoint(folder, weights=()):
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    path = folder / "checkpoints" / "model.ckpt"
    torch.save({"state_dict": weights}, path)
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    make_checkpoint(tmp_path / "hub")
    found = Package(tmp_path / "hub")
    monkeypatch.setitem(sys.modules, "comet", found)
    module.load.cache_clear()
    yield found
    module.load.cache_clear()


def score(model=DEFAULT_MODEL, sources=SOURCES):
    texts = (HYPOTHESES, REFERENCES)
    [result] = score_corpus(*texts, ["comet"], sources=sources, comet_model=model)
    return result


def test_the_network_gets_all_three_texts_and_its_score_is_multiplied_by_a_hundred(package):
    result = score()
    assert (result.name, result.value) == ("COMET", pytest.approx(25.0))
    sha256 = hash_file(package.folder / "checkpoints" / "model.ckpt")
    assert result.signature == (
        f"model:Unbabel/wmt20-comet-da|sha256:{sha256[:16]}|version:2.2.7|scale:100"
    )
    [(samples, progress_bar)] = package.predictions
    assert samples[1] == {"src": "Rosen", "mt": "rose", "ref": "roses"}
    assert not progress_bar


@pytest.mark.parametrize("given", ["", "checkpoints/model.ckpt"])
def test_a_checkpoint_may_be_local(package, tmp_path, given):
    make_checkpoint(tmp_path / "mine")
    signature = score(str(tmp_path / "mine" / given)).signature
    assert package.downloads == []
    assert package.loads == [str(tmp_path / "mine" / "checkpoints" / "model.ckpt")]
    assert str(tmp_path) not in signature  # the same checkpoint elsewhere compares


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("Unbabel/unknown", r"'Unbabel/unknown' cannot be downloaded \(.*not supported by COMET"),
        ("/unknown/model.ckpt", r"cannot be downloaded .* or give the path of its model\.ckpt"),
        ("{folder}/lone", r"cannot be loaded \(hparams.yaml file is missing\)"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_line(package, tmp_path, model, message):
    make_checkpoint(tmp_path / "lone")
    (tmp_path / "lone" / "hparams.yaml").unlink()
    with pytest.raises(ShapeshiftError, match=message) as caught:
        module.load(model.format(folder=tmp_path))
    assert "\n" not in str(caught.value)


class Hostile:
    """What runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_checkpoint_runs_no_code(package, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path = make_checkpoint(tmp_path / "mine", Hostile(tmp_path / "ran"))
    with pytest.raises(ShapeshiftError, match="cannot be loaded"):
        module.load(str(path))
    assert not (tmp_path / "ran").exists()
    package.load_from_checkpoint(path)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("sources", "message"),
    [(None, "COMET needs the sources"), (["one"], "2 hypotheses but 1 sources")],
)
def test_sources_are_needed_line_by_line(package, sources, message):
    with pytest.raises(ShapeshiftError, match=message):
        score(sources=sources)
    assert package.predictions == []
