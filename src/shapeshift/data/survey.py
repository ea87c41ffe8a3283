"""A look at parallel text before it is used: how much there is, how long, and what is wrong."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import fmean

from shapeshift.data.config import SPLITS, FilesCorpus, Split
from shapeshift.data.corpora import no_lines, read_split, require_lines
from shapeshift.data.sources.files import find_file, read_parallel
from shapeshift.disk import replacing
from shapeshift.errors import ShapeshiftError

MAX_HELD_OUT = 1_000
"""Source sentences of validation and of test text that are taken out of the training text, but no
more than one in twenty each."""

_MISREAD = re.compile("[ÃÂ][\u0080-\u00bf]|â€|\ufffd")
"""UTF-8 that was read as Latin-1 or Windows-1252 and saved again, or a replacement character."""

_UNEVEN = 9
"""Times as many words on one side as on the other, as in Moses' clean-corpus-n."""


@dataclass
class Survey:
    """What was found in the pairs of one split.

    Attributes:
        num_pairs: of sentences.
        empty: pairs with an empty side.
        identical: pairs whose sides are the same.
        repeated: pairs whose source was in the split before.
        uneven: pairs with over nine times as many words on one side as on the other.
        misread: pairs with characters that a wrong encoding leaves.
        in_training: pairs whose source is also in the training text.
        source_words, target_words: words of each sentence.
        sources: hashes of the source sentences.
    """

    num_pairs: int = 0
    empty: int = 0
    identical: int = 0
    repeated: int = 0
    uneven: int = 0
    misread: int = 0
    in_training: int = 0
    source_words: array[int] = field(default_factory=lambda: array("i"))
    target_words: array[int] = field(default_factory=lambda: array("i"))
    sources: set[int] = field(default_factory=set)

    @property
    def mean_words(self) -> float:
        """Mean length of the longer side."""
        return fmean(map(max, self.source_words, self.target_words)) if self.num_pairs else 0.0


def survey(pairs: Iterable[tuple[str, str]], training: Collection[int] = ()) -> Survey:
    """Look at the pairs of a split.

    Args:
        pairs: (source, target).
        training: hashes of the source sentences of the training text (`Survey.sources`).
    """
    result = Survey()
    for source, target in pairs:
        result.num_pairs += 1
        key, words = _key(source), (len(source.split()), len(target.split()))
        result.source_words.append(words[0])
        result.target_words.append(words[1])
        result.empty += not min(words)
        if not min(words):
            continue
        result.identical += source == target
        result.uneven += max(words) > _UNEVEN * min(words)
        result.misread += bool(_MISREAD.search(source) or _MISREAD.search(target))
        result.repeated += key in result.sources
        result.in_training += key in training
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


def hold_out(train: Sequence[str], folder: Path, languages: tuple[str, str]) -> list[Path]:
    """Split text into training, validation and test text; no source sentence is in two of them.

    The split depends on the sentences alone: the same text is always split in the same way.

    Args:
        train: of the files to split, without the ending of a language.
        folder: of the files that are written.
        languages: what the names of source and target files end with.

    Raises:
        ShapeshiftError: there are fewer than three sentences, or a file of this name is there
            already, which may be the text itself; or see `read_parallel`.
    """
    prefixes = [folder / split for split in SPLITS]
    paths = [Path(f"{prefix}.{language}") for prefix in prefixes for language in languages]
    for path in paths:
        if os.path.lexists(path):
            raise ShapeshiftError(
                "exists already, and the text that is split would be written here; name another"
                " file with --output",
                path=path,
            )

    def pairs() -> Iterator[tuple[str, str]]:
        for prefix in train:
            yield from read_parallel(*(f"{prefix}.{language}" for language in languages))

    keys = sorted({_key(source) for source, _ in pairs()})
    if not keys:
        raise no_lines(f"{train[0]}.{languages[0]}", "train")
    if len(keys) < 3:
        raise ShapeshiftError(
            f"has {len(keys)} different sentences; three or more are needed to take validation and"
            " test text out of them",
            path=find_file(f"{train[0]}.{languages[0]}"),
        )
    count = max(1, min(MAX_HELD_OUT, len(keys) // 20))
    valid, test = set(keys[:count]), set(keys[count : 2 * count])
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(path)) for path in paths]
        for source, target in pairs():
            key = _key(source)
            place = 2 if key in valid else 4 if key in test else 0
            files[place].write(f"{source}\n")
            files[place + 1].write(f"{target}\n")
    return prefixes


def _key(sentence: str) -> int:
    return int.from_bytes(blake2b(sentence.strip().encode(), digest_size=8).digest(), "big")
