"""Search over a real model with random weights: against every translation there is, against forced
scoring, and whatever else stands in the batch."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from shapeshift.data.batching import make_batch
from shapeshift.decoding.config import GnmtPenalty, NoPenalty
from shapeshift.decoding.scoring import score_references
from shapeshift.decoding.search import beam_search
from shapeshift.model import Transformer
from shapeshift.positions import PRESETS

UNK, BOS, EOS = 1, 2, 3


@pytest.fixture(params=list(PRESETS))
def model(request: pytest.FixtureRequest, make_model) -> Transformer:
    return make_model(PRESETS[request.param], encoder_layers=1, decoder_layers=1)


def log_prob(model: Transformer, source: list[int], tokens: list[int]) -> float:
    """log p(tokens, </s> | source) of one sentence alone, in float64."""
    hidden = model(torch.tensor([source]), torch.tensor([[BOS, *tokens]]))
    log_probs = model.project(hidden)[0].log_softmax(-1)
    return float(log_probs[range(len(tokens) + 1), [*tokens, EOS]].sum().detach())


@pytest.mark.parametrize("penalty", [NoPenalty(), GnmtPenalty(alpha=0.6)], ids=["none", "gnmt"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_full_beam_is_exhaustive_search(make_model, penalty, seed) -> None:
    model = make_model(PRESETS["rpe"], seed=seed, vocabulary=5)
    sources, limit = [[4, 1, EOS], [1, 4, EOS]], 4
    wide = beam_search(
        model.start(torch.tensor(sources), 16),
        torch.tensor([limit, limit]),
        beam=16,
        n_best=16,
        penalty=penalty,
    )
    for source, found in zip(sources, wide, strict=True):
        everything = [
            (log_prob(model, source, list(tokens)) / penalty(length + 1), list(tokens))
            for length in range(limit)
            for tokens in product((UNK, 4), repeat=length)
        ]
        everything.sort(reverse=True)
        assert len(everything) == 15
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in everything]
        scores = [score for score, _ in everything]
        assert [hypothesis.score for hypothesis in found] == pytest.approx(scores, abs=1e-5)


def test_search_forced_scoring_and_full_forward_agree(model, sentences) -> None:
    source = sentences[0]
    found = beam_search(model.start(source, 3), torch.tensor([9, 14, 6]), beam=3)
    targets = [best[0].tokens for best in found]
    rows = [source[row, : length - 1].tolist() for row, length in enumerate((9, 6, 2))]
    scores = score_references(model, make_batch(rows, targets)).sum(dim=1)
    for row, length in enumerate((9, 6, 2)):
        alone = log_prob(model, source[row, :length].tolist(), targets[row])
        # Log-probabilities are float32, whatever the model computes in.
        assert found[row][0].log_prob == pytest.approx(alone, abs=1e-5)
        assert float(scores[row]) == pytest.approx(alone, abs=1e-5)
