"""A configuration that fits a text and this machine: what `shapeshift init` writes."""

from __future__ import annotations

import json

import torch

from shapeshift.data.config import SPLITS, FilesCorpus
from shapeshift.data.survey import Survey

_VOCABULARIES = ((5_000, 1_000), (20_000, 4_000), (100_000, 6_000), (1_000_000, 16_000))
_LARGEST_VOCABULARY = 32_000
"""Pieces of a joint vocabulary, by pairs of training text."""

_EPOCHS = ((10_000, 40, 0.3), (50_000, 25, 0.3), (300_000, 15, 0.2), (2_000_000, 8, 0.1))
"""Times that training reads its text, and dropout, by pairs of training text."""

_BATCHES = {"tiny": (2_048, 0.003), "small": (4_096, 0.002), "base": (16_384, 0.0007)}
"""Tokens of a batch, and the highest learning rate."""

_TEMPLATE = """\
# Written by `shapeshift init` for {pairs} pairs of training text. Paths are relative to the folder
# in which you run shapeshift; the `base` of a study, which may name this file, is relative to the
# study. All settings: docs/configuration.md, `shapeshift train --dry-run`.
data:
  corpus:
    corpus: files
    source: {source}
    target: {target}
    train: {train}
    valid: {valid}
    test: {test}
  subwords:
    vocab_size: {vocab_size}  # pieces of one vocabulary for both languages
model:
  size: {size}  # tiny, small, base or big
  dropout: {dropout}  # the less text, the more
position: ape  # or shape, rpe, rope, …: see `shapeshift positions`
training:
  max_updates: {updates}  # the training text about {epochs} times
  batch: {{max_tokens: {max_tokens}}}
  schedule: {{name: inverse_sqrt, peak: {peak}, warmup_updates: {warmup}}}
  checkpoint_every: {every}
  keep_checkpoints: 5
  average_checkpoints: 5
decoding:
  beam: 5
"""


def suggest(corpus: FilesCorpus, train: Survey, least_vocab_size: int) -> str:
    """Return a configuration as YAML.

    Size, dropout and updates depend on how much training text there is, and the size on whether
    there is a GPU.

    Args:
        corpus: the text.
        train: what was found in the training text.
        least_vocab_size: pieces that its characters need, see `subwords.least_size`.
    """
    num_pairs = train.num_pairs
    gpu = torch.cuda.is_available()
    size = "tiny" if num_pairs < 15_000 else "base" if gpu and num_pairs > 500_000 else "small"
    vocab_size = next(
        (size for limit, size in _VOCABULARIES if num_pairs < limit), _LARGEST_VOCABULARY
    )
    vocab_size = max(100, min(vocab_size, len(train.sources) // 200 * 100))  # there are as many
    vocab_size = max(vocab_size, least_vocab_size)
    max_tokens, peak = _BATCHES[size]
    epochs, dropout = next((values for limit, *values in _EPOCHS if num_pairs < limit), [5, 0.1])
    words = sum(map(max, train.source_words, train.target_words))  # of the longer side
    tokens = max(1, 1.4 * words)
    updates = max(300, round(epochs * tokens / max_tokens, -2))
    every = max(50, round(updates / 15, -1))
    return _TEMPLATE.format(
        pairs=f"{num_pairs:,}",
        source=corpus.source,
        target=corpus.target,
        **{split: json.dumps(corpus.prefixes(split)) for split in SPLITS},
        vocab_size=vocab_size,
        size=size,
        dropout=dropout,
        updates=int(updates),
        epochs=round(updates * max_tokens / tokens),  # more than asked for where text is little
        max_tokens=max_tokens,
        peak=peak,
        warmup=min(4_000, int(updates) // 5),
        every=int(every),
    )
