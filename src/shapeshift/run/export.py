"""Exports a trained run, and checks that the exported models compute the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal, get_args

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import Finding
from shapeshift.data.prepared import REPORT_OF_RUN
from shapeshift.data.prepared import Report as DataReport
from shapeshift.decoding.config import exponent
from shapeshift.evaluation.scores import Scores
from shapeshift.export import ctranslate2, marian, onnx
from shapeshift.export.folder import Report, Trained, refuse_useless_length
from shapeshift.export.huggingface import write as huggingface
from shapeshift.export.parity import ParityError
from shapeshift.run.folder import RESULTS, SUBWORDS, Run

Engine = Literal["ctranslate2", "huggingface", "onnx"]
ENGINES: tuple[Engine, ...] = get_args(Engine)

_CARD = """\
---
language: [{source}, {target}]
tags: [translation, shapeshift]
library_name: transformers
---
# {title}

Translates {source} to {target}. Trained and exported with Shapeshift {version}.

| what | |
|---|---|
| position representation | {position} |
| model | {shape}, {num_parameters:,} parameters |
| training data | {data} |
| weights | {weights} |

## Use

```python
{registration}from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "path of this folder"
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

`generate` searches with a beam of {beam} and divides log-probabilities by n^{exponent:g}, where n
is the length; `shapeshift translate` ranks by `decoding.length_penalty`, which is {penalty}.

## Scores

{scores}
"""


def export_run(
    run: Run,
    to: Engine,
    target: Path,
    *,
    quantization: str | None = None,
    checkpoint: str = "average",
    max_length: int | None = None,
) -> Report:
    """Export a run's model to another engine, and check it.

    Args:
        run: trained.
        to: the engine.
        target: a folder, missing or empty.
        quantization: of the weights, for CTranslate2.
        checkpoint: weights, see `Run.weights`.
        max_length: the most tokens of a sentence, where the engine needs a number and the model has
            no limit of its own; None is 1,024.

    Raises:
        ShapeshiftError: the engine is not installed or cannot compute the model exactly; the folder
            holds something; `max_length` has no effect.
        ParityError: the exported model does not compute what the run's does.
    """
    data = DataReport.read(run.directory / REPORT_OF_RUN, "train again in a new folder")
    lengths = (64, 64)  # of an imported model, whose text is not known
    if train := data.splits.get("train"):
        lengths = train.source_length.max, train.target_length.max
    weights = run.weights(checkpoint)
    trained = Trained(
        run.model(weights),
        run.config.model,
        run.config.position,
        run.subwords(),
        run.directory / SUBWORDS,
        lengths,
        run.config.decoding,
        run.weights_sha256(checkpoint),
        checkpoint,
    )
    if to == "huggingface":
        card = _model_card(run, data, trained)
        return huggingface.export(trained, target, card=card, max_length=max_length)
    if to == "onnx":
        refuse_useless_length(max_length)
        return onnx.export(trained, target)
    return ctranslate2.export(trained, target, quantization=quantization, max_length=max_length)


def check_exports(run: Run) -> list[Finding]:
    """Export a run to every engine, into a temporary folder, and check that the exported models
    compute the same. Return a finding `export parity` for each engine."""
    findings = []
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            outcome: Literal["pass", "FAIL", "not applicable"] = "pass"
            try:
                line = str(export_run(run, engine, Path(folder) / engine).parity)
            except ShapeshiftError as error:
                outcome = "FAIL" if isinstance(error, ParityError) else "not applicable"
                line = str(error)
            findings.append(Finding("export parity", engine, outcome, line))
    return findings


def _model_card(run: Run, data: DataReport, trained: Trained) -> str:
    config = run.config
    corpus, shape, decoding = config.data.corpus, config.model, config.decoding
    if run.imported_from:
        text = "not known"
    else:
        text = f"{corpus.corpus} ({config.data.recipe.name}), {data.splits['train'].built:,} pairs"
        text += f", fingerprint {data.fingerprint[:16]}"
    return _CARD.format(
        source=getattr(corpus, "source", "en"),
        target=getattr(corpus, "target", "de"),
        title=run.directory.resolve().name,
        version=__version__,
        position=f"{config.position.name}: {config.position.scheme}",
        shape=f"{shape.encoder_layers} + {shape.decoder_layers} layers, width {shape.dim}",
        num_parameters=sum(parameter.numel() for parameter in trained.model.parameters()),
        data=text,
        weights=run.weights_label(trained.checkpoint),
        registration=""
        if marian.fits(trained.model, shape)
        else "import shapeshift.export.huggingface\n",
        beam=decoding.beam,
        exponent=exponent(decoding.length_penalty),
        penalty=decoding.length_penalty.name,
        scores=_scores(run, trained),
    )


def _scores(run: Run, trained: Trained) -> str:
    """Return the recorded scores of exactly these weights."""
    for path in sorted((run.directory / RESULTS).glob("test.*.json")):
        scores = Scores.load(path)
        if trained.weights_sha256 and scores.weights_sha256 == trained.weights_sha256:
            rows = [f"| {x.name} | {x.value:.2f} | `{x.signature}` |" for x in scores.scores]
            return "\n".join(["| metric | test set | signature |", "|---|---:|---|", *rows])
    return "These weights are not scored yet."
