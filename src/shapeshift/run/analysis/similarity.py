"""How much an encoder's states change when all positions are shifted.

Kiyono et al. 2021 (SHAPE), Equation 3, Figure 2 (one sentence) and Figure 6 (ten sentences):
(1/T) Σ_i cos(h_i^{k1}, h_i^{k2}) for the states h of each layer under the offsets k1 and k2.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from shapeshift.data.batching import make_batch
from shapeshift.data.prepared import Prepared
from shapeshift.decoding.scoring import evaluating
from shapeshift.model import Transformer
from shapeshift.run.folder import Run
from shapeshift.run.measures import Metric, Result, declares

OFFSETS = (0, 100, 250, 500)
"""Those of the paper."""

_NUM_SENTENCES = 10
"""Number of sentences in the figures of the paper's appendix C."""


@declares(
    Metric(
        "shift_similarity",
        "how similar the encoder's states are under different offsets",
        buckets=("layer 1",),
    )
)
def measure(
    run: Run,
    data: Prepared,
    which: str = "average",
    offsets: Sequence[int] = OFFSETS,
    suffix: str = "",
) -> list[Result]:
    """Measure the cosine similarity of the encoder's states under different offsets, for each layer
    (bucket `layer n`, 0 the embeddings, and the suffix), on the first sentences of validation: 1 is
    shift invariant."""
    numbers = range(min(_NUM_SENTENCES, len(data.valid)))
    sentences = [data.valid[number][0].tolist() for number in numbers]
    matrices = compute(run.model(which, run.device), sentences, offsets).mean(0)  # (L + 1, K, K)
    return [
        Result(
            metric="shift_similarity", value=value, split="valid", bucket=f"layer {layer}{suffix}"
        )
        for layer, value in enumerate(invariance(matrices).tolist())
    ]


def compute(
    model: Transformer, sentences: Sequence[Sequence[int]], offsets: Sequence[int] = OFFSETS
) -> NDArray[np.float64]:
    """Encode sentences under several offsets and compare the states. T counts the tokens that the
    encoder sees, `</s>` among them. States are the residual stream after each layer; the last one
    is taken after the encoder's final LayerNorm. The paper leaves both choices open. Cosines are
    computed in float64.

    Args:
        model: on any device, in any mode.
        sentences: source ids, without `</s>`. The paper shows one sentence, and ten more.
        offsets: at least two, all different.

    Returns:
        For each sentence and each layer, the embeddings first, a matrix over pairs of offsets.
        (N, L + 1, K, K)

    Raises:
        ShapeshiftError: a model without positions for an offset.
    """
    device = model.output.weight.device
    matrices = []
    for ids in sentences:
        source = make_batch([ids], [[]]).source.to(device).expand(len(offsets), -1)  # (K, S)
        with evaluating(model):
            states = _encoder_states(model, source, torch.tensor(offsets, device=device))
            units = normalize(states.double(), dim=-1)  # (L + 1, K, S, D)
            cosines = torch.einsum("lasd,lbsd->lab", units, units) / source.shape[1]
        matrices.append(cosines.cpu().numpy())
    return np.stack(matrices)


def _encoder_states(model: Transformer, source: Tensor, offset: Tensor) -> Tensor:
    """Return the embeddings and every layer's output, the last one normed, `(L + 1, K, S, D)`."""
    states: list[Tensor] = []
    with ExitStack() as hooks:
        for layer in model.encoder:
            take = layer.register_forward_pre_hook(lambda _, args: states.append(args[0]))
            hooks.enter_context(take)
        states.append(model.encode(source, offset=offset).hidden)
    return torch.stack(states)


def invariance(similarity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over all pairs of different offsets, `(…, K, K)` → `(…)`. 1 means that shifts
    leave the direction of every state unchanged."""
    means: NDArray[np.float64] = similarity[..., *np.triu_indices(similarity.shape[-1], 1)].mean(-1)
    return means
