"""The analyses of single runs as measures: what `shapeshift.lab.analysis` computes, as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from shapeshift.data.config import Interpolate
from shapeshift.data.prepared import Prepared
from shapeshift.evaluation.metrics import score_corpus
from shapeshift.lab.analysis import loss_by_offset, similarity, swapped_order
from shapeshift.lab.analysis.swapped_order import BothOrders
from shapeshift.lab.measures import (
    ORIGINAL,
    SWAPPED,
    Measurement,
    bleu_measurement,
    hypotheses_file,
    keep_lines,
    references_file,
)
from shapeshift.lab.run import Run
from shapeshift.model import Transformer
from shapeshift.training.precision import choose_device

_NUM_SENTENCES = 10
"""Number of sentences in the figures of the SHAPE paper's appendix C."""

SHIFTS = (10, 40, 100, 500)
"""The largest offsets under which `learning` compares states."""

_SAMPLED, _MIN_SAMPLE = 45, 500
"""The SHAPE paper's Table 1 samples one in 45 of its training sequences: 10,000 of 450,000."""


def measure_loss_by_offset(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the validation loss with all positions shifted (bucket `offset K`), plain, and with
    the source in random order, which shows whether the model is shift invariant and whether it uses
    word order; see `analysis.loss_by_offset`."""
    result = loss_by_offset.compute(_model(run), data.valid, batch=run.config.training.batch)
    losses = [
        Measurement(metric="shifted_loss", value=loss, dataset="valid", bucket=f"offset {k}")
        for k, loss in zip(result.offsets, result.losses, strict=True)
    ]
    order = {"plain_loss": result.plain, "shuffled_loss": result.shuffled}
    return losses + [
        Measurement(metric=name, value=loss, dataset="valid") for name, loss in order.items()
    ]


def measure_similarity(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the cosine similarity of the encoder's states under different offsets, for each layer
    (bucket `layer n`, 0 the embeddings), on the first sentences of validation: 1 is shift invariant
    (Kiyono et al. 2021, Figures 2 and 6); see `analysis.similarity`."""
    return _similarity(_model(run), data)


def measure_swapped_order(run: Run, data: Prepared) -> list[Measurement]:
    """Measure BLEU of the first sentence of joined training pairs in its place and at the end
    (Kiyono et al. 2021, Table 1), and the percentage of outputs with another number of sentences
    than their source, on one in 45 training pairs, 500 at least and 10,000 at most; nothing for a
    run whose pairs are not joined. The translations of both orders and the references are kept as
    those of a split are. See `analysis.swapped_order`."""
    if not _is_joined(run):
        return []
    translated, results = _swapped_order(run, data), run.directory / "results"
    keep_lines(results / hypotheses_file(ORIGINAL), translated.original.outputs)
    keep_lines(results / hypotheses_file(SWAPPED), translated.swapped.outputs)
    keep_lines(results / references_file(ORIGINAL), translated.references)
    return _order_measurements(translated)


def measure_learning(run: Run, data: Prepared) -> list[Measurement]:
    """Measure shift invariance during training: what `similarity` and `swapped-order` measure, and
    BLEU on the validation set, of the last checkpoint in each eighth of training, if one is kept;
    `step` is its update. Offsets are 0, K/5, K/2 and K for each K of `SHIFTS` (bucket
    `layer n to K`): 500 are the paper's."""
    rows = []
    for update in _eighths(run):
        which = str(update)
        own = _validation_bleu(run, data, which)
        model = _model(run, which)
        for most in SHIFTS:
            offsets = (0, most // 5, most // 2, most)
            own += _similarity(model, data, offsets, bucket=f" to {most}")
        if _is_joined(run):
            own += _order_measurements(_swapped_order(run, data, which))
        rows += [each.model_copy(update={"step": update}) for each in own]
    return rows


def _eighths(run: Run) -> list[int]:
    """Return the update of the last checkpoint in each eighth of training that has one."""
    checkpoints = run.checkpoints.updates()
    last = max(checkpoints, default=1)
    in_order = ((-(-8 * update // last), update) for update in checkpoints)
    return list(dict(in_order).values())


def _validation_bleu(run: Run, data: Prepared, which: str) -> list[Measurement]:
    sources, references = data.text("valid")
    hypotheses = list(run.translator(which).translate(sources))
    [bleu] = score_corpus(
        hypotheses, references, ("bleu",), tokenizer=run.config.bleu_tokenizer, sources=sources
    )
    return [Measurement(metric="BLEU", value=bleu.value, dataset="valid", signature=bleu.signature)]


def _similarity(
    model: Transformer,
    data: Prepared,
    offsets: Sequence[int] = similarity.OFFSETS,
    bucket: str = "",
) -> list[Measurement]:
    numbers = range(min(_NUM_SENTENCES, len(data.valid)))
    sentences = [data.valid[number][0].tolist() for number in numbers]
    matrices = similarity.compute(model, sentences, offsets).mean(0)  # (L + 1, K, K)
    return [
        Measurement(
            metric="shift_similarity", value=value, dataset="valid", bucket=f"layer {layer}{bucket}"
        )
        for layer, value in enumerate(similarity.invariance(matrices).tolist())
    ]


def _is_joined(run: Run) -> bool:
    return isinstance(run.config.data.dataset, Interpolate)


def _swapped_order(run: Run, data: Prepared, which: str = "average") -> BothOrders:
    wanted = max(_MIN_SAMPLE, round(len(data.train) / _SAMPLED))
    pairs = swapped_order.sample(data.train, min(wanted, swapped_order.NUM_PAIRS))
    translator = run.translator(which)
    return swapped_order.compute(translator, pairs, tokenizer=run.config.bleu_tokenizer)


def _order_measurements(translated: BothOrders) -> list[Measurement]:
    orders = {"original order": translated.original, "swapped order": translated.swapped}
    scores = [
        bleu_measurement(x.bleu, x.outputs, translated.references, dataset="train", bucket=name)
        for name, x in orders.items()
    ]
    misparted = [
        Measurement(
            metric="misparted_percent",
            value=100 * x.num_misparted / len(translated.references),
            dataset="train",
            bucket=name,
        )
        for name, x in orders.items()
    ]
    return scores + misparted


def _model(run: Run, which: str = "average") -> Transformer:
    return run.model(which, device=choose_device(run.config.training.device))
