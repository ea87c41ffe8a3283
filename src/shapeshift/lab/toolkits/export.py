"""Prepared text as files of tokens, for toolkits that read such files.

A token is written as its number in our vocabulary, since some characters of pieces are separators
elsewhere; unknown ones are `<unk>`, which every toolkit knows. `<s>`, `</s>` and padding are each
toolkit's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shapeshift.data.config import SPLITS, Split
from shapeshift.data.prepared import Prepared
from shapeshift.data.subwords import SEP, UNK
from shapeshift.disk import save
from shapeshift.errors import ShapeshiftError

UNKNOWN = "<unk>"
Side = Literal["src", "tgt"]
SIDES: tuple[Side, Side] = ("src", "tgt")


@dataclass(frozen=True)
class Text:
    """Files `train.src`, `train.tgt`, and so on, in a folder.

    Attributes:
        directory: where they are.
        vocabularies: the tokens of each side, most of them numbers, without those that every
            toolkit adds; the same for both sides if they share one.
        joint: whether they do.
        num_train: training pairs.
    """

    directory: Path
    vocabularies: dict[Side, list[str]]
    joint: bool
    num_train: int

    def file(self, split: Split, side: Side) -> Path:
        """Return a file of tokens."""
        return self.directory / f"{split}.{side}"


def export(data: Prepared, directory: Path) -> Text:
    """Write all splits. Pairs with an empty side are left out: toolkits do not agree on them."""
    counts = {}
    for split in SPLITS:
        store = data.store(split)
        pairs = [store[number] for number in range(len(store))]
        pairs = [pair for pair in pairs if len(pair[0]) and len(pair[1])]
        counts[split] = len(pairs)
        for column, side in enumerate(SIDES):
            lines = "".join(_line(pair[column]) + "\n" for pair in pairs)
            save(directory / f"{split}.{side}", lines)
    subwords = data.subwords
    sizes = {"src": subwords.source_size, "tgt": subwords.target_size}
    vocabularies: dict[Side, list[str]] = {
        side: [str(number) for number in range(SEP, sizes[side])] for side in SIDES
    }
    return Text(directory, vocabularies, subwords.joint, counts["train"])


def join(lines: Sequence[str], data: Prepared, split: Split) -> list[str]:
    """Return the text of translations that a toolkit wrote, one for each pair of the split; empty
    where the pair was left out.

    Raises:
        ShapeshiftError: their number is wrong, or a word is no token of ours.
    """
    store = data.store(split)
    exported = [number for number in range(len(store)) if all(len(side) for side in store[number])]
    if len(lines) != len(exported):
        raise ShapeshiftError(
            f"the toolkit wrote {len(lines)} translations of {split}, expected {len(exported)}"
        )
    texts = [""] * len(store)
    for number, line in zip(exported, lines, strict=True):
        texts[number] = data.subwords.decode_target(_ids(line))
    return texts


def _line(ids: Iterable[int]) -> str:
    return " ".join(UNKNOWN if number == UNK else str(number) for number in map(int, ids))


def _ids(line: str) -> list[int]:
    words = line.split()
    unknown = [word for word in words if word != UNKNOWN and not word.isdecimal()]
    if unknown:
        raise ShapeshiftError(f"the toolkit wrote {unknown[0]!r}, which is no token of the text")
    return [UNK if word == UNKNOWN else int(word) for word in words]
