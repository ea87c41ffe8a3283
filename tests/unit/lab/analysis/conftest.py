"""Untrained models of a few thousand weights, small stores, and scores made by hand."""

import pytest
import torch

from shapeshift.data.store import TokenStore, TokenStoreWriter
from shapeshift.evaluation.lengths import LengthBucket
from shapeshift.evaluation.metrics import Score
from shapeshift.evaluation.scores import Scores
from shapeshift.model import ModelConfig, build
from shapeshift.positions import PRESETS

VOCAB = 24


@pytest.fixture(scope="session")
def make_model():
    """preset → a model in float64, with the same weights wherever the preset has none of its own"""

    def make(preset):
        torch.manual_seed(3)
        config = ModelConfig(dim=16, num_heads=2, ff_dim=32, encoder_layers=2, decoder_layers=1)
        return build(config, PRESETS[preset], VOCAB, VOCAB).double().eval()

    return make


@pytest.fixture
def make_store(tmp_path):
    """pairs of ids → a token store"""

    def make(pairs, name="store", vocab=VOCAB):
        with TokenStoreWriter(tmp_path / name, source_size=vocab, target_size=vocab) as writer:
            for source, target in pairs:
                writer.add(source, target)
        return TokenStore(tmp_path / name)

    return make


def bleu(value):
    return Score(name="BLEU", value=value, signature="tok:13a", details={})


@pytest.fixture
def make_scores():
    """BLEU, and BLEU of each bucket between `edges`, `None` for an empty one → scores"""

    def make(value, by_length=None, edges=(), metric="BLEU"):
        buckets = None
        if by_length is not None:
            bounds = zip((0, *edges), (*edges, None), by_length, strict=True)
            buckets = tuple(
                LengthBucket(
                    low=low,
                    high=high,
                    num_segments=0 if each is None else 20,
                    score=None if each is None else bleu(each),
                )
                for low, high, each in bounds
            )
        return Scores(
            version="0",
            num_segments=20,
            hypotheses_sha256="",
            references_sha256="",
            scores=(bleu(value).model_copy(update={"name": metric}),),
            by_length=buckets,
        )

    return make
