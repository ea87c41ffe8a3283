"""The model card of an exported run."""

from __future__ import annotations

from pathlib import Path

from shapeshift import __version__
from shapeshift.data.prepared import IMPORTED_FROM, Report
from shapeshift.evaluation.scores import Scores
from shapeshift.export import marian
from shapeshift.export.trained import Trained, exponent
from shapeshift.lab.run import AVERAGE, RESULTS, Run

CARD = """\
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


def model_card(run: Run, data: Report, trained: Trained, weights: Path) -> str:
    """Return a model card as Markdown."""
    config = run.config
    corpus, shape, decoding = config.data.corpus, config.model, config.decoding
    if imported := data.versions.get(IMPORTED_FROM):
        text, which = f"imported from {imported}, text not known", "imported"
    else:
        text = f"{corpus.corpus} ({config.data.dataset.name}), {data.splits['train'].built:,} pairs"
        text += f", fingerprint {data.fingerprint[:16]}"
        last = max(run.checkpoints.updates(), default=config.training.max_updates)
        which = f"{config.training.final_weights} of a training of {last:,} updates"
        if weights.name != AVERAGE:
            which = f"checkpoint after {int(weights.parent.name.rpartition('-')[2]):,} updates"
    return CARD.format(
        source=getattr(corpus, "source", "en"),
        target=getattr(corpus, "target", "de"),
        title=run.directory.resolve().name,
        version=__version__,
        position=f"{config.position.name}: {config.position.scheme}",
        shape=f"{shape.encoder_layers} + {shape.decoder_layers} layers, width {shape.dim}",
        num_parameters=sum(parameter.numel() for parameter in trained.model.parameters()),
        data=text,
        weights=which,
        registration="" if marian.fits(trained.model, shape) else "import shapeshift.huggingface\n",
        beam=decoding.beam,
        exponent=exponent(decoding.length_penalty),
        penalty=decoding.length_penalty.name,
        scores=_scores(run, trained),
    )


def _scores(run: Run, trained: Trained) -> str:
    """Return the scores of exactly these weights."""
    for path in sorted((run.directory / RESULTS).glob("test.*.json")):
        scores = Scores.load(path)
        if trained.weights_sha256 and scores.weights_sha256 == trained.weights_sha256:
            rows = [f"| {x.name} | {x.value:.2f} | `{x.signature}` |" for x in scores.scores]
            return "\n".join(["| metric | test set | signature |", "|---|---:|---|", *rows])
    return "These weights are not scored yet."
