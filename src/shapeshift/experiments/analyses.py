"""The analyses of single runs as measures: what `shapeshift.analysis` computes, as numbers."""

from __future__ import annotations

from shapeshift.analysis import loss_by_offset, similarity, swapped_order
from shapeshift.data.config import Interpolate
from shapeshift.data.prepare import Prepared
from shapeshift.experiments.measures import Measurement
from shapeshift.experiments.run import Run
from shapeshift.model import Transformer
from shapeshift.training.precision import choose_device

_NUM_SENTENCES = 10
"""Of the figures in the SHAPE paper's appendix C."""

_SAMPLED, _MIN_SAMPLE = 45, 500
"""The SHAPE paper's Table 1 samples one in 45 of its training sequences: 10,000 of 450,000."""


class LossByOffset:
    """Validation loss with all positions shifted (bucket `offset K`), plain, and with the source in
    random order: is the model shift invariant, and does it know word order at all?"""

    def measure(self, run: Run, data: Prepared) -> list[Measurement]:
        """Measure it; see `analysis.loss_by_offset`."""
        batch = run.config.training.batch
        found = loss_by_offset.compute({"": _model(run)}, data.valid, batch=batch)
        [system] = found.systems
        losses = [
            Measurement(metric="shifted_loss", value=loss, dataset="valid", bucket=f"offset {k}")
            for k, loss in zip(found.offsets, system.losses, strict=True)
        ]
        order = {"plain_loss": system.order.plain, "shuffled_loss": system.order.shuffled}
        return losses + [
            Measurement(metric=name, value=loss, dataset="valid") for name, loss in order.items()
        ]


class Similarity:
    """How alike the encoder's states are under different offsets, for each layer (bucket `layer n`,
    0 the embeddings): 1 is shift invariant (Kiyono et al. 2021, Figures 2 and 6)."""

    def measure(self, run: Run, data: Prepared) -> list[Measurement]:
        """Measure it on the first sentences of validation; see `analysis.similarity`."""
        numbers = range(min(_NUM_SENTENCES, len(data.valid)))
        sentences = [data.valid[number][0].tolist() for number in numbers]
        [system] = similarity.compute({"": _model(run)}, sentences).systems
        return [
            Measurement(
                metric="shift_similarity",
                value=system.invariance(layer),
                dataset="valid",
                bucket=f"layer {layer}",
            )
            for layer in range(system.num_layers + 1)
        ]


class SwappedOrder:
    """BLEU of the first sentence of joined training pairs in its place and at the end (Kiyono et
    al. 2021, Table 1), and the percentage of outputs with another number of sentences than their
    source; nothing for a run whose pairs are not joined."""

    def measure(self, run: Run, data: Prepared) -> list[Measurement]:
        """Measure it on one in 45 training pairs, 500 at least and 10,000 at most; see
        `analysis.swapped_order`."""
        if not isinstance(run.config.data.dataset, Interpolate):
            return []
        wanted = max(_MIN_SAMPLE, round(len(data.train) / _SAMPLED))
        pairs = swapped_order.sample(data.train, min(wanted, swapped_order.NUM_PAIRS))
        tokenizer = run.config.bleu_tokenizer
        [system] = swapped_order.compute({"": run.translator()}, pairs, tokenizer=tokenizer).systems
        orders = {"original order": system.original, "swapped order": system.swapped}
        scores = [
            Measurement(
                metric="BLEU",
                value=order.bleu.value,
                dataset="train",
                bucket=name,
                signature=order.bleu.signature,
            )
            for name, order in orders.items()
        ]
        return scores + [
            Measurement(
                metric="misparted_percent",
                value=100 * order.num_misparted / len(pairs),
                dataset="train",
                bucket=name,
            )
            for name, order in orders.items()
        ]


def _model(run: Run) -> Transformer:
    return run.model(device=choose_device(run.config.training.device))


LOSS_BY_OFFSET, SIMILARITY, SWAPPED_ORDER = LossByOffset(), Similarity(), SwappedOrder()
