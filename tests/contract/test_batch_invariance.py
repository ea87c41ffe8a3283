"""A sentence's translation and score are the same, whatever stands beside it in a batch."""

import random

import pytest
import torch

from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.running import Runner
from shapeshift.decoding.search import Hypothesis
from shapeshift.model import Transformer

VOCABULARY = 40
NUM_PAIRS = 9
Ids = list[list[int]]


@pytest.fixture(scope="module")
def pairs():
    """Sources and targets of 1 to 8 tokens, some of the same length."""
    rng = random.Random(5)

    def rows():
        lengths = rng.choices((1, 2, 5, 6, 8), k=NUM_PAIRS)
        return [rng.choices(range(4, VOCABULARY), k=length) for length in lengths]

    return rows(), rows()


@pytest.fixture
def model(compiled_scheme, make_model):
    one_layer = {"encoder_layers": 1, "decoder_layers": 1}
    return make_model(compiled_scheme, vocabulary=VOCABULARY, activation="gelu", **one_layer)


def translate(
    model: Transformer, sources: Ids, at_once: int, *, autocast=None, **settings: object
) -> list[list[Hypothesis]]:
    """Translate in calls and batches of at most so many sentences."""
    config = DecodingConfig(
        beam=2, max_sentences=at_once, max_length_a=1, max_length_b=2, **settings
    )
    runner = Runner(model, config, autocast=autocast)
    calls = [sources[n : n + at_once] for n in range(0, len(sources), at_once)]
    return [found for call in calls for found in runner.search(call, 2)]


def score(
    model: Transformer, pairs: tuple[Ids, Ids], at_once: int, *, autocast=None, **settings: object
) -> list[list[float]]:
    config = DecodingConfig(max_sentences=at_once, **settings)
    runner = Runner(model, config, autocast=autocast)
    calls = [[side[n : n + at_once] for side in pairs] for n in range(0, len(pairs[0]), at_once)]
    return [found for call in calls for found in runner.score(*call)]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["fp32", "bf16"])
def test_bits_do_not_depend_on_the_batch(model, pairs, autocast):
    model = model.float()
    options = {"autocast": autocast, "batch_invariant": True}
    translations = translate(model, pairs[0], NUM_PAIRS, **options)
    scores = score(model, pairs, NUM_PAIRS, **options)
    order = random.Random(1).sample(range(NUM_PAIRS), NUM_PAIRS)
    mixed = tuple([side[n] for n in order] for side in pairs)
    for at_once in (1, 7):
        assert translate(model, mixed[0], at_once, **options) == [translations[n] for n in order]
        assert score(model, mixed, at_once, **options) == [scores[n] for n in order]
