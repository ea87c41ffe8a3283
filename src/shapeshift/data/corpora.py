"""From a corpus configuration to sentence pairs, and to a fingerprint of its text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from shapeshift.data.config import SPLITS, FilesCorpus, GrammarCorpus, Split
from shapeshift.data.files import find_file, read_parallel
from shapeshift.errors import ShapeshiftError

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much, where that is known."""

# Tenths of all English sentences, by a hash of the sentence, that belong to valid and to test.
_HELD_OUT: dict[int, Split] = {0: "valid", 1: "test"}
_PROGRESS_EVERY = 1_000


def read_split(corpus: FilesCorpus, split: Split) -> Iterator[tuple[str, str]]:
    """Yield the (source, target) pairs of one split, its files one after the other."""
    for prefix in corpus.prefixes(split):
        yield from read_parallel(
            _side(corpus, prefix, corpus.source), _side(corpus, prefix, corpus.target)
        )


def write_grammar(
    config: GrammarCorpus, directory: Path, on_progress: Progress | None = None
) -> FilesCorpus:
    """Generate the grammar's three splits as text files `<directory>/<split>.{en,de}`.

    A hash of the English sentence says which split it belongs to, so that no sentence stands in
    two splits and held-out sentences are as short and as long as the others. (Skipping what train
    holds would leave hardly a short sentence in valid and test: train has nearly all of them.)

    Args:
        config: how many pairs, of which lengths, from which seed.
        directory: an existing folder.
        on_progress: hears how many pairs are written.

    Returns:
        The corpus that reads these files.

    Raises:
        ShapeshiftError: the word limits allow too few different sentences.
    """
    from shapeshift.data.grammar import generate  # its lexicon is of no use to other corpora

    missing = {split: config.num_pairs(split) for split in SPLITS}
    total = sum(missing.values())
    expected = 10 * max(config.num_train // 8 + 1, config.num_valid, config.num_test)
    # Five times what it takes on average: beyond that, some split has no sentence to be had.
    stream = generate(
        5 * expected + 10_000,
        seed=config.seed,
        min_words=config.min_words,
        max_words=config.max_words,
    )
    with ExitStack() as stack:
        files = {
            split: [stack.enter_context(_create(directory / f"{split}.{x}")) for x in ("en", "de")]
            for split in SPLITS
        }
        for english, german in stream:
            split = _split_of(english)
            if not missing[split]:
                continue
            missing[split] -= 1
            files[split][0].write(english + "\n")
            files[split][1].write(german + "\n")
            left = sum(missing.values())
            if on_progress is not None and left % _PROGRESS_EVERY == 0:
                on_progress("generate", total - left, total)
            if not left:
                break
        else:
            raise ShapeshiftError(
                f"the grammar has too few different sentences of {config.min_words} to "
                f"{config.max_words} words for three splits; raise data.corpus.max_words"
            )
    return FilesCorpus(
        root=directory, source="en", target="de", train=["train"], valid=["valid"], test=["test"]
    )


def corpus_fingerprint(corpus: FilesCorpus | GrammarCorpus) -> str:
    """SHA-256 (hexadecimal) of what the text of a corpus depends on.

    For files: the bytes of every file and their order, wherever they stand. For the grammar: its
    settings and its source code.

    Raises:
        ShapeshiftError: a file is missing or cannot be read.
    """
    digest = hashlib.sha256()
    if isinstance(corpus, GrammarCorpus):
        digest.update(corpus.model_dump_json().encode())
        for path in sorted(Path(__file__).parent.glob("grammar*.py")):
            digest.update(_file_digest(path))
        return digest.hexdigest()
    for split in SPLITS:
        digest.update(split.encode())
        for prefix in corpus.prefixes(split):
            for side in (corpus.source, corpus.target):
                digest.update(_file_digest(find_file(_side(corpus, prefix, side))))
    return digest.hexdigest()


def _side(corpus: FilesCorpus, prefix: str, language: str) -> Path:
    return corpus.root / f"{prefix}.{language}"


def _create(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")


def _split_of(english: str) -> Split:
    digest = hashlib.blake2b(english.encode(), digest_size=8).digest()
    return _HELD_OUT.get(int.from_bytes(digest, "little") % 10, "train")


def _file_digest(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise ShapeshiftError(f"cannot be read: {error.strerror or error}", path=path) from error
