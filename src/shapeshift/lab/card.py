"""The model card of an exported run."""

from __future__ import annotations

from shapeshift import __version__
from shapeshift.data.prepared import IMPORTED_FROM, Report
from shapeshift.evaluation.scores import Scores
from shapeshift.lab.run import RESULTS, Run

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
| updates | {updates} |

## Use

```python
{registration}from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "path of this folder"
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
batch = tokenizer(["A sentence."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

`generate` searches with a beam of {beam} and divides scores by the length; `shapeshift translate`
ranks by `decoding.length_penalty`.

## Scores

{scores}
"""


def model_card(run: Run, data: Report, num_parameters: int, *, is_marian: bool) -> str:
    """Return a model card as Markdown.

    Args:
        run: a trained run.
        data: what it was trained on.
        num_parameters: of its model.
        is_marian: whether transformers opens the model without Shapeshift.
    """
    config = run.config
    corpus, shape, scheme = config.data.corpus, config.model, config.position.scheme
    train = data.splits["train"]
    text = f"{corpus.corpus} ({config.data.dataset.name}), {train.built:,} pairs,"
    text += f" fingerprint {data.fingerprint[:16]}"
    imported = data.versions.get(IMPORTED_FROM)
    parts = "; ".join(map(str, scheme.parts)) or "none"
    return CARD.format(
        source=getattr(corpus, "source", "en"),
        target=getattr(corpus, "target", "de"),
        title=run.directory.resolve().name,
        version=__version__,
        position=f"{config.position.name}: {parts}; position ids {scheme.position_ids}",
        shape=f"{shape.encoder_layers} + {shape.decoder_layers} layers, width {shape.dim}",
        num_parameters=num_parameters,
        data=f"imported from {imported}, text not known" if imported else text,
        updates="not known" if imported else f"{config.training.max_updates:,}",
        registration="" if is_marian else "import shapeshift.huggingface\n",
        beam=config.decoding.beam,
        scores=_scores(run),
    )


def _scores(run: Run) -> str:
    path = run.directory / RESULTS / "test.average.json"
    if not path.exists():
        return "Not scored yet."
    rows = [
        f"| {score.name} | {score.value:.2f} | `{score.signature}` |"
        for score in Scores.load(path).scores
    ]
    return "\n".join(["| metric | test set | signature |", "|---|---:|---|", *rows])
