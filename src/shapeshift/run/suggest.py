"""Suggests a configuration for a text and this machine, for `shapeshift init`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch

from shapeshift.data.config import SPLITS, FilesCorpus, Split, SubwordsConfig
from shapeshift.data.subwords import PairSource, fitting_size, least_size
from shapeshift.data.survey import MAX_RATIO, Survey
from shapeshift.evaluation.tokenizers import AUTO, by_text, resolve

_VOCABULARIES = ((5_000, 1_000), (20_000, 4_000), (100_000, 6_000), (1_000_000, 16_000))
_LARGEST_VOCABULARY = 32_000
"""Pieces of a joint vocabulary, by pairs of training text."""

_MANY_CHARACTERS = 3_000
"""Characters of the text above which the rarest are left out of the vocabulary, as SentencePiece's
documentation recommends for Chinese and Japanese."""

_FEW_SENTENCES = 2_000
"""Different sentences below which a text may not fill the vocabulary, which is tried."""

_MAX_LENGTH = 1_000
"""Subwords of a training sentence."""

_EPOCHS = ((10_000, 40, 0.3), (50_000, 25, 0.3), (300_000, 15, 0.2), (2_000_000, 8, 0.1))
"""Times that training reads its text, and dropout, by pairs of training text."""

_BATCHES = {"tiny": (2_048, 0.003), "small": (4_096, 0.002), "base": (16_384, 0.0007)}
"""Tokens of a batch, and the highest learning rate."""

_TEMPLATE = """\
# Written by `shapeshift init` for {pairs} pairs of training text. Paths are relative to the folder
# of this file. All settings: docs/configuration.md, `shapeshift train --dry-run`.
data:
  corpus:
    corpus: files
{root}    source: {source}
    target: {target}
    train: {train}
    valid: {valid}
    test: {test}
  subwords:
    vocab_size: {vocab_size}  # pieces of one vocabulary for both languages
{subwords}\
  # What is left out of the training text; of every split, pairs with an empty side:
  filter: {{max_length: {max_length}, max_ratio: {max_ratio}, drop_duplicates: true}}
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
{evaluation}\
"""


def suggest_subwords(surveys: Mapping[Split, Survey], pairs: PairSource) -> SubwordsConfig:
    """Return subword settings for a text, given the survey of each split and the pairs of training
    (see `Subwords.train`). They leave every target unchanged, and the vocabulary has room for
    merges besides the characters."""
    train = surveys["train"]
    config = SubwordsConfig()
    if any(survey.num_changed for survey in surveys.values()):
        config = config.model_copy(update={"normalization": "identity"})
    least = least_size(pairs, config)
    if least > _MANY_CHARACTERS:
        config = config.model_copy(update={"character_coverage": 0.9995})
        least = least_size(pairs, config)
    size = next(
        (size for limit, size in _VOCABULARIES if train.num_pairs < limit), _LARGEST_VOCABULARY
    )
    size = max(100, min(size, len(train.sources) // 200 * 100))  # there are as many
    if least > size // 4:  # an alphabet is less
        size += least
    config = config.model_copy(update={"vocab_size": size})
    if len(train.sources) < _FEW_SENTENCES:
        config = config.model_copy(update={"vocab_size": fitting_size(pairs, config)})
    return config


def suggest(
    corpus: FilesCorpus,
    surveys: Mapping[Split, Survey],
    subwords: SubwordsConfig,
    folder: Path = Path(),
) -> str:
    """Return a configuration as YAML, for a file in a folder, given the survey of each split and
    what `suggest_subwords` returns.

    Size, dropout and updates depend on how much training text there is, and the size on whether
    there is a GPU.
    """
    train = surveys["train"]
    num_pairs = train.num_pairs
    gpu = torch.cuda.is_available()
    size = "tiny" if num_pairs < 15_000 else "base" if gpu and num_pairs > 500_000 else "small"
    notes = {
        "normalization": "the text as it is: the usual nmt_nfkc would change the references",
        "character_coverage": "the rarest characters are left out",
    }
    others = subwords.model_dump(exclude_defaults=True, exclude={"vocab_size"})
    tokenizer = by_text(corpus.target, [target for _, target in train.sample])
    evaluation = f"evaluation:\n  tokenize: {tokenizer}\n"
    max_tokens, peak = _BATCHES[size]
    epochs, dropout = next((values for limit, *values in _EPOCHS if num_pairs < limit), [5, 0.1])
    words = sum(map(max, train.source_words, train.target_words))  # of the longer side
    tokens = max(1, 1.4 * words)
    updates = max(300, round(epochs * tokens / max_tokens, -2))
    every = max(50, round(updates / 15, -1))
    root = os.path.relpath(corpus.root, folder)
    return _TEMPLATE.format(
        root="" if root == "." else f"    root: {json.dumps(root, ensure_ascii=False)}\n",
        pairs=f"{num_pairs:,}",
        source=corpus.source,
        target=corpus.target,
        **{split: json.dumps(corpus.prefixes(split), ensure_ascii=False) for split in SPLITS},
        vocab_size=subwords.vocab_size,
        subwords="".join(f"    {x}: {y}  # {notes[x]}\n" for x, y in others.items()),
        max_length=_MAX_LENGTH,
        max_ratio=MAX_RATIO,
        evaluation="" if tokenizer == resolve(AUTO, corpus.target) else evaluation,
        size=size,
        dropout=dropout,
        updates=int(updates),
        epochs=round(updates * max_tokens / tokens),  # more than asked for where text is little
        max_tokens=max_tokens,
        peak=peak,
        warmup=min(4_000, int(updates) // 5),
        every=int(every),
    )
