"""Translating with an exported model gives what our own search gives."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import SUMS, seal
from shapeshift.data.subwords import EOS
from shapeshift.decoding.config import AveragePenalty, DecodingConfig, GnmtPenalty, NoPenalty
from shapeshift.decoding.running import Runner
from shapeshift.decoding.translator import Translator
from shapeshift.positions import SCHEMES

pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")

from shapeshift.export.ctranslate2 import export
from shapeshift.export.running import CTranslate2Runner, open_export

CPU = torch.device("cpu")

LINES = [
    "The old dog sees a cat.",
    "",
    "A man sleeps.",
    "The girl who sings buys the red house.",
    "cat",
    "a dog",
    "The house.",
]


@pytest.fixture(scope="module")
def made(make, tmp_path_factory):
    """A model of random weights that ends some of its sentences, and its export."""
    made = make(SCHEMES["ape"], seed=30, noise=0.3)
    with torch.no_grad():
        made.model.output.weight[EOS] *= 3
    folder = tmp_path_factory.mktemp("run") / "ctranslate2"
    export(replace(made.trained, longest=(12, 12)), folder, max_length=60)
    return made.model, made.subwords, folder


def translators(made, **settings):
    model, subwords, folder = made
    config = DecodingConfig(**{"max_tokens": 20, **settings})
    ours = Translator(Runner(model, config), subwords)
    theirs = Translator(open_export(folder, subwords, config, CPU), subwords)
    assert isinstance(theirs.runner, CTranslate2Runner)
    return ours, theirs


def test_greedy_search_is_the_same(made):
    ours, theirs = translators(made, beam=1)
    expected, got = ([*each.translate_lines(LINES)] for each in (ours, theirs))
    ended = 0
    for a, b in zip(expected, got, strict=True):
        (x,), (y,) = a.candidates, b.candidates
        assert (x.text, x.at_limit, a.num_subwords) == (y.text, y.at_limit, b.num_subwords)
        if not x.at_limit:  # the engine does not count the </s> of the others
            ended += bool(x.text)
            # It knows neither <pad> nor <s>, to which the model gives some probability.
            assert y.log_prob == pytest.approx(x.log_prob, rel=0.05)
            assert y.score * x.log_prob == pytest.approx(x.score * y.log_prob)
    assert ended == 3
    assert got[1].candidates[0].text == ""


@pytest.mark.parametrize("penalty", [NoPenalty(), GnmtPenalty(alpha=0.6), AveragePenalty()])
def test_scores_are_those_of_the_penalty(penalty, made):
    _, theirs = translators(made, beam=4, length_penalty=penalty)
    sources = theirs.encode(LINES)
    for hypotheses, source in zip(theirs.runner.search(sources, 4), sources, strict=True):
        if not source:
            continue
        assert len(hypotheses) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        limit = theirs.runner.length_limit(len(source))
        for found in hypotheses:
            assert found.length <= limit
            assert found.score == pytest.approx(found.log_prob / penalty(found.length))
            if found.length < limit:  # it ended by itself
                [tokens] = theirs.runner.score([source], [found.tokens])
                assert found.log_prob == pytest.approx(sum(tokens), rel=0.05)


def test_each_token_has_its_score(made):
    ours, theirs = translators(made, beam=1)
    pairs = zip(
        *(each.translate_lines(LINES, each_token=True) for each in (ours, theirs)), strict=True
    )
    for a, b in pairs:
        (x,), (y,) = a.candidates, b.candidates
        assert [piece for piece, _ in x.tokens] == [piece for piece, _ in y.tokens]
        assert [p for _, p in x.tokens] == pytest.approx([p for _, p in y.tokens], abs=1e-4)
        assert sum(p for _, p in x.tokens) == pytest.approx(x.log_prob, abs=1e-4)


def test_what_is_no_export_or_does_not_fit_is_refused(made, apart, tmp_path):
    _, subwords, folder = made
    config = DecodingConfig()
    runner = open_export(folder, subwords, config, CPU)
    assert runner.capacity.source == 60
    for act, message in (
        (lambda: open_export(tmp_path, subwords, config, CPU), "to make one: shapeshift export"),
        (
            lambda: open_export(folder, subwords, DecodingConfig(batch_invariant=True), CPU),
            r"batch_invariant has no effect.*--engine torch",
        ),
        (lambda: runner.search([[7]], 5), r"set decoding\.beam=5"),
        (lambda: [*Translator(runner, subwords).translate(["cat " * 80])], r"subwords"),
        (
            lambda: open_export(folder, apart.subwords, config, CPU),
            "other subword models; move it away",
        ),
    ):
        with pytest.raises(ShapeshiftError, match=message):
            act()


def test_a_damaged_export_is_refused(made, tmp_path):
    _, subwords, folder = made
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "config.json").write_text("{}")
    with pytest.raises(ShapeshiftError, match="export the model again"):
        open_export(copy, subwords, DecodingConfig(), CPU)
    (copy / "SHA256SUMS").unlink()
    with pytest.raises(ShapeshiftError, match=r"cannot be opened .*; export the model again"):
        open_export(copy, subwords, DecodingConfig(), CPU)
    (copy / "encoder.onnx").write_bytes(b"\x08\x09")
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    with pytest.raises(ShapeshiftError, match=r"cannot be opened .*ONNX.*; export the model again"):
        open_export(copy, subwords, DecodingConfig(), CPU)


@pytest.mark.parametrize("change", [{"add_source_eos": 3}, {"decoder_start_token": None}])
def test_an_error_of_the_engine_is_one_line(made, tmp_path, change):
    """The settings of a stranger, whose hashes are right."""
    _, subwords, folder = made
    theirs = shutil.copytree(folder, tmp_path / "theirs")
    settings = json.loads((theirs / "config.json").read_text())
    kept = {name: value for name, value in (settings | change).items() if value is not None}
    (theirs / "config.json").write_text(json.dumps(kept))
    (theirs / SUMS).unlink()
    seal(theirs)
    with pytest.raises(ShapeshiftError, match=r"export the model again") as caught:  # noqa: PT012
        runner = open_export(theirs, subwords, DecodingConfig(), CPU)
        runner.search([[5, 6]])
        runner.score([[5, 6]], [[7]])
    assert caught.value.path == theirs
