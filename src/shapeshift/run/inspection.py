"""What a trained model does with one sentence: attention, probabilities, the effect of shifts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shapeshift._system.errors import ShapeshiftError, is_text
from shapeshift.attention import recording
from shapeshift.data.batching import Batch, make_batch
from shapeshift.data.subwords import BOS, EOS
from shapeshift.decoding.capacity import capacity
from shapeshift.decoding.scoring import evaluating, score_references
from shapeshift.model import Transformer
from shapeshift.run.analysis.similarity import compute as compare_under_shifts
from shapeshift.run.folder import Run

OFFSETS = (0, 1, 5, 10, 50, 100, 250, 500)
"""By how much the positions of the source are shifted, as far as the model has positions."""

Kind = Literal["encoder self-attention", "decoder self-attention", "cross-attention"]


@dataclass(frozen=True)
class Inspection:
    """A model and one sentence.

    Attributes:
        run: trained.
        weights: what they are, see `Run.weights_label`.
        num_parameters: of the model.
        translation: the best one, with the run's own settings of decoding.
        source: pieces of the source and `</s>`.
        target: what the decoder reads: `<s>` and the pieces of the translation.
        output: what it writes: the pieces of the translation and `</s>`.
        probabilities: of each piece of `output`.
        attention: probabilities by kind, `(L, H, Q, K)`, with the translation as the decoder's
            input.
        offsets, similarity: mean cosine between the encoder's states without a shift and with each
            offset, `(L + 1, len(offsets))`, the embeddings first (Kiyono et al. 2021, equation 3).
    """

    run: Run
    weights: str
    num_parameters: int
    translation: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    output: tuple[str, ...]
    probabilities: tuple[float, ...]
    attention: dict[Kind, NDArray[np.float32]]
    offsets: tuple[int, ...]
    similarity: NDArray[np.float64]


def inspect_run(run: Run, sentence: str, which: str = "average") -> Inspection:
    """Translate one line of the source language with the weights `which` (see `Run.weights`), and
    record attention, probabilities and the effect of shifts.

    Raises:
        ShapeshiftError: the sentence is empty or too long for the model, or the run is not trained.
    """
    translator = run.translator(which)
    model, subwords = translator.runner.model, translator.subwords
    if not sentence.strip() or "\n" in sentence or not is_text(sentence):
        raise ShapeshiftError(f"expected one sentence, in UTF-8, got {sentence!r}")
    subwords.check_source(sentence)
    (source,) = translator.encode([sentence])
    most, limit = capacity(model).source_subwords, translator.limit
    if len(source) > limit:
        raise ShapeshiftError(
            f"the sentence has {len(source)} subwords, and the model of {run.directory} takes"
            f" {limit}; give a shorter one"
        )
    (translation,) = translator.translate_lines([sentence])
    (hypotheses,) = translator.runner.search([source])
    target = [token for token in hypotheses[0].tokens if token != EOS]
    batch = make_batch([source], [target]).to(run.device)
    offsets = tuple(x for x in OFFSETS if most is None or len(source) + x <= most)
    num_layers = len(model.encoder)
    similarity = np.ones((num_layers + 1, 1))
    if len(offsets) > 1:
        similarity = compare_under_shifts(model, [source], offsets)[0, :, 0]
    return Inspection(
        run=run,
        weights=run.weights_label(which),
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        translation=translation.candidates[0].text,
        source=(*subwords.source_pieces(source), *subwords.source_pieces([EOS])),
        target=(*subwords.target_pieces([BOS]), *subwords.target_pieces(target)),
        output=(*subwords.target_pieces(target), *subwords.target_pieces([EOS])),
        probabilities=tuple(score_references(model, batch)[0].exp().tolist()),
        attention=record_attention(model, batch),
        offsets=offsets,
        similarity=similarity,
    )


def record_attention(model: Transformer, batch: Batch) -> dict[Kind, NDArray[np.float32]]:
    """Return the attention of every layer and head on one pair, by kind, `(L, H, Q, K)`."""
    with evaluating(model), recording() as recorded:
        model.decode(batch.target_input, model.encode(batch.source))
    layers = [probs[0].float().cpu().numpy() for probs in recorded]  # (H, Q, K) each
    encoder, decoder = layers[: len(model.encoder)], layers[len(model.encoder) :]
    return {
        "encoder self-attention": np.stack(encoder),
        "decoder self-attention": np.stack(decoder[::2]),
        "cross-attention": np.stack(decoder[1::2]),
    }


def by_distance(probs: NDArray[np.float32]) -> tuple[Sequence[int], NDArray[np.float64]]:
    """Return the distances j − i that occur in self-attention, and the mean probability `(H, N)` of
    each over the pairs of this distance."""
    length = probs.shape[-1]
    distances = range(1 - length, length)
    means = [np.diagonal(probs, distance, 1, 2).mean(-1) for distance in distances]
    return distances, np.stack(means, axis=-1).astype(np.float64)
