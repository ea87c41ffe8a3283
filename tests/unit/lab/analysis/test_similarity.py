import math

import pytest
import torch

from shapeshift.lab.analysis.similarity import (
    ShiftSimilarity,
    SystemSimilarity,
    compute,
    plot,
)

SENTENCES = [[5, 6, 7, 8, 9, 10, 11], [12, 13], [20, 6, 21, 6, 22, 6]]
OFFSETS = (0, 7, 100, 250)


def matrix(value):
    """A matrix of two offsets with this similarity between them."""
    return ((1.0, value), (value, 1.0))


def invariances(model, offsets=OFFSETS):
    [system] = compute({"it": model}, SENTENCES, offsets).systems
    return [system.invariance(layer) for layer in range(system.num_layers + 1)]


@pytest.mark.parametrize("preset", ["nope", "rpe", "rope", "alibi", "t5"])
def test_a_shift_invariant_encoder_has_similarity_one(preset, make_model):
    model = make_model(preset).train()  # dropout plays no part
    assert invariances(model) == pytest.approx([1, 1, 1], abs=1e-10)
    assert model.training


@pytest.mark.parametrize("preset", ["ape", "shape"])
def test_an_untrained_sinusoidal_encoder_does_not(preset, make_model):
    assert max(invariances(make_model(preset))) < 0.99


def test_the_embeddings_of_one_zero_token_are_compared_by_their_encodings_alone(make_model):
    """Token 0 has a zero embedding, and sinusoids of one frequency turn by the angle of the shift:
    cos(PE(i), PE(i + k)) = (2/D) Σ_m cos(k / 10000^(2m/D)) for every i."""
    model = make_model("ape")
    with torch.no_grad():
        model.source.tokens.weight.zero_()
    [system] = compute({"APE": model}, [[5, 6, 7]], (0, 30)).systems
    expected = sum(math.cos(30 / 10_000 ** (m / 8)) for m in range(8)) / 8
    assert system.sentences[0][0] == (
        pytest.approx((1, expected)),
        pytest.approx((expected, 1)),
    )


def test_sentences_are_kept_apart_and_averaged_alike():
    system = SystemSimilarity("it", ((matrix(0.2),), (matrix(0.6),)))
    assert system.invariance(0) == pytest.approx(0.4)
    assert system.invariance(0, sentence=1) == pytest.approx(0.6)
    assert system.matrix(0)[0] == pytest.approx((1, 0.4))


DATA = ShiftSimilarity(
    (0, 100),
    (
        SystemSimilarity("APE", ((matrix(0.3), matrix(0.4)), (matrix(0.5), matrix(0.6)))),
        SystemSimilarity("SHAPE", ((matrix(0.9), matrix(0.997)), (matrix(0.9), matrix(1.0)))),
    ),
)


def panels(figure):
    """The heat maps, without the colour bar."""
    return [axes for axes in figure.axes if axes.images]


def test_each_system_is_a_row_and_each_layer_a_column_under_one_scale():
    maps = panels(plot(DATA))
    assert [axes.get_title() for axes in maps] == ["embeddings", "layer 1", "", ""]
    assert [axes.get_ylabel() for axes in maps] == ["APE", "", "SHAPE", ""]
    assert {axes.images[0].get_clim() for axes in maps} == {(0.4, 1)}
    assert maps[0].images[0].get_array().tolist()[0] == pytest.approx([1, 0.4])
    labels = [[text.get_text() for text in axes.get_xticklabels()] for axes in maps]
    assert labels[2:] == [["0", "100"]] * 2


def test_one_sentence_is_drawn_by_its_own_numbers():
    [ape, *_] = panels(plot(DATA, sentence=1))
    assert ape.images[0].get_array().tolist()[0] == [1, 0.5]
    *_, last = panels(plot(DATA, sentence=0))  # only what is invariant is written as 1
    assert [text.get_text() for text in last.texts] == ["1", ".99", ".99", "1"]
