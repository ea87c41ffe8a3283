import math

import numpy as np
import pytest
import torch

from shapeshift.lab.analysis.similarity import compute, invariance

SENTENCES = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [20, 6, 21, 6, 22, 6]]
OFFSETS = (0, 7, 100, 250)


def invariances(model):
    return invariance(compute(model, SENTENCES, OFFSETS)).mean(0).tolist()


@pytest.mark.parametrize("preset", ["nope", "rpe", "rope", "alibi", "t5"])
def test_a_shift_invariant_encoder_has_similarity_one(preset, make_model):
    model = make_model(preset).train()  # dropout plays no part
    assert invariances(model) == pytest.approx([1, 1, 1], abs=1e-10)
    assert model.training


def test_the_embeddings_of_one_zero_token_are_compared_by_their_encodings_alone(make_model):
    """Token 0 has a zero embedding, and sinusoids of one frequency turn by the angle of the shift:
    cos(PE(i), PE(i + k)) = (2/D) Σ_m cos(k / 10000^(2m/D)) for every i."""
    model = make_model("ape")
    with torch.no_grad():
        model.source.tokens.weight.zero_()
    [[embeddings, *_]] = compute(model, [[5, 6, 7]], (0, 30))
    expected = sum(math.cos(30 / 10_000 ** (m / 8)) for m in range(8)) / 8
    assert embeddings.tolist() == [pytest.approx((1, expected)), pytest.approx((expected, 1))]


def test_only_different_offsets_count():
    matrix = np.array([[1.0, 0.2, 0.3], [0.2, 1.0, 0.7], [0.3, 0.7, 1.0]])
    assert invariance(np.stack([matrix, matrix / 2])) == pytest.approx([0.4, 0.2])
