"""ONNX programs compute in onnxruntime what our models do, at lengths that were never traced."""

from __future__ import annotations

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import BOS
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.running import Runner
from shapeshift.decoding.translator import Translator
from shapeshift.export import onnx as onnx_module
from shapeshift.export.onnx import OnnxModel, export
from shapeshift.export.running import open_export
from shapeshift.positions import SCHEMES, FoX, Part, Scheme

pytestmark = pytest.mark.long
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

SCHEMES_AND_FOX = SCHEMES | {"fox": Scheme(parts=(Part("fox", stacks="decoder"),))}  # a state
MOST = ("t5", "fox")
SMALL = {"encoder_layers": 1, "decoder_layers": 1}


@pytest.mark.parametrize(
    "scheme",
    [
        *MOST,
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in SCHEMES_AND_FOX
            if x not in (*MOST, "path")
        ),
    ],
)
def test_every_scheme_is_the_same(scheme, make, tmp_path):
    made = make(SCHEMES_AND_FOX[scheme], **SMALL)
    report = export(made.trained, tmp_path / "model")
    assert report.parity.log_prob < 2e-5
    exported = OnnxModel(tmp_path / "model", report.capacity)
    generator = torch.Generator().manual_seed(1)
    for num_rows, source_length, length in ((1, 1, 1), (5, 23, 17), (2, 40, 2)):
        source, target = (
            torch.randint(5, 100, (num_rows, n), generator=generator)
            for n in (source_length, length)
        )
        source[1:, -source_length // 3 :] = 0  # padding
        target[:, 0] = BOS
        with torch.no_grad():
            expected = made.model.project(made.model(source, target))
        state = exported.start(source, beam=1)
        steps = torch.stack([state.step(tokens) for tokens in target.T], dim=1)
        for logits in (exported.decode(target, exported.encode(source)), steps):
            torch.testing.assert_close(logits, expected, rtol=0, atol=2e-5)


def test_search_and_scores_are_the_same(make, tmp_path):
    made = make(SCHEMES["shape"], **SMALL, output_bias=True)
    export(made.trained, tmp_path / "model")
    config = DecodingConfig(beam=3, max_tokens=30, max_length_a=0.5)
    theirs = open_export(tmp_path / "model", made.subwords, config, torch.device("cpu"))
    assert isinstance(theirs.model, OnnxModel)
    own = Runner(made.model, config)
    lines = ["The old dog sees a cat.", "", "A man sleeps.", "The girl buys the red house.", "cat"]
    ours, translations = (
        [*Translator(runner, made.subwords).translate(lines)] for runner in (own, theirs)
    )
    assert translations == ours
    config = config.model_copy(update={"batch_invariant": True})
    invariant = open_export(tmp_path / "model", made.subwords, config, torch.device("cpu"))
    assert [*Translator(invariant, made.subwords).translate(lines)] == ours
    pairs = [[7, 8, 9], [5]], [[6, 7], [9, 9, 9, 9]]
    for tokens, expected in zip(theirs.score(*pairs), own.score(*pairs), strict=True):
        assert tokens == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_an_export_that_loses_its_cache_is_not_written(make, tmp_path, monkeypatch):
    """What exporters drop is what belongs to cached keys (vLLM #11780)."""
    made = make(SCHEMES["alibi"], **SMALL)
    append = onnx_module._Growing.append

    def forget(self, keys, values):
        earlier = self._earlier
        self._earlier = iter((torch.zeros_like(next(earlier)), next(earlier)))
        return append(self, keys, values)

    monkeypatch.setattr(onnx_module._Growing, "append", forget)
    with pytest.raises(ShapeshiftError, match="beam search finds another output"):
        export(made.trained, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_state_at_cross_is_refused(make, tmp_path):
    model = make(SCHEMES["ape"], **SMALL).model
    model.decoder[0].cross_attention.position = FoX(dim=32, num_heads=4)
    with pytest.raises(ShapeshiftError, match="no state of FoX at cross; use it at self"):
        onnx_module.write(model, tmp_path)


def test_a_kind_without_an_operator_is_refused_by_name(make, tmp_path):
    with pytest.raises(ShapeshiftError, match=r"no operator for path.*; use fox at self"):
        export(make(SCHEMES["path"], **SMALL).trained, tmp_path / "model")
    assert not (tmp_path / "model").exists()
