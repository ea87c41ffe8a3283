"""A look at parallel text before it is used: how much there is, how long, and what is wrong."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import replacing
from shapeshift.data.config import SPLITS, FilesCorpus, Split, SubwordsConfig
from shapeshift.data.corpora import read_split, require_lines, split_files
from shapeshift.data.scripts import count_words
from shapeshift.data.sources.files import find_file
from shapeshift.data.subwords import normaliser

MAX_HELD_OUT = 1_000
"""Source sentences of validation and of test text that are taken out of the training text, but no
more than one in twenty each."""

MAX_RATIO = 9
"""Most words of the longer side for each of the shorter one: the limit of Moses' clean-corpus-n."""

MAX_HELD_OUT_WORDS, _MAX_HELD_OUT_CHARACTERS = 300, 3_000
"""Length of either side of a pair that is taken out of the training text, at most."""

SAMPLE = 1_000  # pairs that are kept as an example of the text

_MISREAD = re.compile("[ÃÂ][\u0080-\u00bf]|â€|\ufffd")
"""UTF-8 that was read as Latin-1 or Windows-1252 and saved again, or a replacement character."""


@dataclass
class Survey:
    """What was found in the pairs of one split.

    Attributes:
        problems: what may be wrong with pairs → how many there are of them.
        source_words, target_words: words of each sentence; see `count_words`.
        sources: hashes of the source sentences.
        num_changed: targets that the default normalisation of subwords changes, white space apart.
        changed: the first of them, as it is and as it becomes.
        sample: the first pairs.
    """

    problems: Counter[str] = field(default_factory=Counter)
    source_words: array[int] = field(default_factory=lambda: array("i"))
    target_words: array[int] = field(default_factory=lambda: array("i"))
    sources: set[int] = field(default_factory=set)
    num_changed: int = 0
    changed: tuple[str, str] | None = None
    sample: list[tuple[str, str]] = field(default_factory=list)

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return len(self.source_words)


def survey(pairs: Iterable[tuple[str, ...]], training: Collection[int] = ()) -> Survey:
    """Look at the pairs of a split: source, target, and what else there is, which is ignored.
    `training` are hashes of the source sentences of the training text (`Survey.sources`)."""
    result, normalise = Survey(), normaliser(SubwordsConfig().normalization)
    for source, target, *_ in pairs:
        key, words = _key(source), (count_words(source), count_words(target))
        if len(result.sample) < SAMPLE:
            result.sample.append((source, target))
        if not target.isascii() and (normal := normalise(target)).split() != target.split():
            result.num_changed += 1
            result.changed = result.changed or (target, normal)
        result.source_words.append(words[0])
        result.target_words.append(words[1])
        if not min(words):
            result.problems["with an empty side"] += 1
            continue
        result.problems.update(
            problem
            for problem, found in (
                ("with identical sides", source.strip() == target.strip()),
                ("with a repeated source", key in result.sources),
                (f"with {MAX_RATIO} times as many words on one side", _is_lopsided(words)),
                ("with signs of a wrong encoding", _MISREAD.search(f"{source}\n{target}")),
                ("whose source is in the training text", key in training),
            )
            if found
        )
        result.sources.add(key)
    return result


def survey_corpus(corpus: FilesCorpus) -> dict[Split, Survey]:
    """Look at all splits of a corpus."""
    surveys: dict[Split, Survey] = {}
    for split in SPLITS:
        training = surveys["train"].sources if surveys else ()
        surveys[split] = survey(read_split(corpus, split), training)
        require_lines(corpus, split, surveys[split].num_pairs)
    return surveys


def hold_out(corpus: FilesCorpus, folder: Path) -> FilesCorpus:
    """Split the training text of a corpus into training, validation and test text in new files, and
    return their corpus; no source sentence is in two of them. The split depends on the sentences
    alone. Pairs with an empty side, very long ones and lopsided ones stay in the training text.

    Raises:
        ShapeshiftError: there are fewer than three sentences, or a file of this name is there
            already, which may be the text itself; or see `read_parallel`.
    """
    names: dict[str, list[str]] = {split: [str(folder / split)] for split in SPLITS}
    paths = [Path(f"{x}.{y}") for [x] in names.values() for y in (corpus.source, corpus.target)]
    if there := [path for path in paths if os.path.lexists(path)]:
        raise ShapeshiftError(
            "exists already, and the text that is split would be written here; name another"
            " file with --output",
            path=there[0],
        )
    found: dict[int, bool] = {}  # whether all pairs of a source may be held out
    for source, target, *_ in read_split(corpus, "train"):
        key = _key(source)
        found[key] = found.get(key, True) and _fits(source, target)
    keys = sorted(key for key, fits in found.items() if fits)
    if len(keys) < 3:
        raise ShapeshiftError(
            f"has {len(keys)} different sentence{'s' * (len(keys) != 1)} with a translation; three"
            " or more are needed to take validation and test text out of them",
            path=find_file(next(split_files(corpus, "train"))[0]),
        )
    count = max(1, min(MAX_HELD_OUT, len(keys) // 20))
    valid, test = set(keys[:count]), set(keys[count : 2 * count])
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(path)) for path in paths]
        for source, target, *_ in read_split(corpus, "train"):
            key = _key(source)
            place = 2 if key in valid else 4 if key in test else 0
            files[place].write(f"{source}\n")
            files[place + 1].write(f"{target}\n")
    return corpus.model_copy(update={"root": Path(), **names})


def _is_lopsided(words: tuple[int, int]) -> bool:
    return max(words) > MAX_RATIO * min(words)


def _fits(source: str, target: str) -> bool:
    """Return whether a pair may become validation or test text."""
    if max(len(source), len(target)) > _MAX_HELD_OUT_CHARACTERS:
        return False
    words = count_words(source), count_words(target)
    return min(words) > 0 and max(words) <= MAX_HELD_OUT_WORDS and not _is_lopsided(words)


def _key(sentence: str) -> int:
    return int.from_bytes(blake2b(sentence.strip().encode(), digest_size=8).digest(), "big")
