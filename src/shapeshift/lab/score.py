"""Translates a split with a run's model and scores the translations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from shapeshift.data.prepared import Prepared
from shapeshift.evaluation.scores import Scores, evaluate
from shapeshift.evaluation.tokenizers import make_bleu
from shapeshift.integrity import hash_file, store
from shapeshift.lab.run import Run, prepared_directory


def translate_and_score(
    run: Run,
    split: Literal["valid", "test"] = "test",
    which: str = "average",
    *,
    prepared_root: str | Path = "prepared",
    on_translate: Callable[[int, int], None] | None = None,
) -> Scores:
    """Translate a split, score it, also by source length, and keep both in `results/`.

    Args:
        run: a finished run.
        split: `valid` or `test`.
        which: see `Run.weights`.
        prepared_root: as it was for `train`.
        on_translate: receives the number of translated sentences and of all.
    """
    config = run.config
    make_bleu(config.bleu_tokenizer)  # an error now, not when the run ends
    data = Prepared(prepared_directory(config.data, prepared_root))
    sources, references = data.text(split)
    hypotheses: list[str] = []
    weights = run.weights(which)
    for translation in run.translator(weights).translate(sources):
        hypotheses.append(translation)
        if on_translate is not None:
            on_translate(len(hypotheses), len(sources))
    scores = evaluate(
        hypotheses,
        references,
        metrics=config.evaluation.metrics,
        tokenizer=config.bleu_tokenizer,
        sources=sources,
        comet_model=config.evaluation.comet_model,
        lengths=[int(n) for n in data.store(split).source_lengths],
        length_buckets=config.evaluation.length_buckets,
    )
    scores = scores.model_copy(update={"weights_sha256": hash_file(weights)})
    results = run.directory / "results"
    (results / f"{split}.{which}.json").unlink(missing_ok=True)  # its time is that of the scoring
    text = "".join(line + "\n" for line in hypotheses).encode()
    store(
        results,
        {f"{split}.{which}.txt": text, f"{split}.{which}.json": scores.document().encode()},
    )
    return scores
