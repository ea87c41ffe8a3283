"""From a corpus configuration to sentence pairs, and to a fingerprint of its text."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.hashes import hash_file
from shapeshift._system.schema import expand_home
from shapeshift.data.config import (
    SACREBLEU,
    SPLITS,
    FilesCorpus,
    GrammarCorpus,
    HubCorpus,
    Split,
    is_test_set,
    label,
)
from shapeshift.data.sources import hub
from shapeshift.data.sources.download import Progress, download, unpack, watched
from shapeshift.data.sources.files import find_file, read_lines, read_parallel, reading
from shapeshift.data.sources.testsets import fetch_test_set, find_test_set

# A hash of the English sentence selects one of ten groups; two of them are valid and test.
_HELD_OUT: dict[int, Split] = {0: "valid", 1: "test"}
_PROGRESS_EVERY = 1_000


def read_split(corpus: FilesCorpus, split: Split) -> Iterator[tuple[str, ...]]:
    """Yield the lines of one split, its entries one after the other: source, target, and, where the
    corpus has `references` for the split, the text that a translation is scored against."""
    for paths in split_files(corpus, split):
        yield from read_parallel(*paths)


def file_ends(corpus: FilesCorpus, split: Split) -> list[int]:
    """Return the cumulative number of pairs at the end of each entry of a split."""
    files = split_files(corpus, split)
    return [*accumulate(sum(1 for _ in read_lines(source)) for source, *_ in files)]


def split_files(corpus: FilesCorpus, split: Split) -> Iterator[list[Path]]:
    """Yield the files of each entry of a split: source, target and reference, if the corpus has
    `references`. The files of a prefix may be missing, or gzipped with `.gz` after their names.

    Raises:
        ShapeshiftError: an unknown test set.
    """

    def files(entry: str) -> list[Path]:
        if is_test_set(entry):
            return find_test_set(entry.removeprefix(SACREBLEU), corpus.source, corpus.target)[2]
        return _paths(corpus, entry)

    references = corpus.references(split)
    for number, entry in enumerate(corpus.prefixes(split)):
        yield [*files(entry), *(files(references[number])[1:] if references else ())]


class Places:
    """Maps the pairs of a split to files and line numbers."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._files: list[list[Path]] = []

    def read(self, corpus: FilesCorpus, split: Split) -> Iterator[tuple[str, ...]]:
        """Yield the lines of `read_split`, and record which file each is from."""
        number = 0
        for paths in split_files(corpus, split):
            self._starts.append(number)
            self._files.append(paths)
            for lines in read_parallel(*paths):
                number += 1
                yield lines

    def file_of(self, number: int) -> int:
        """Return which entry of the split a pair that was read is from."""
        return bisect_right(self._starts, number) - 1

    def count_by_file(self, numbers: Iterable[int]) -> tuple[int, ...]:
        """Return how many of some pairs each entry has."""
        counts = Counter(map(self.file_of, numbers))
        return tuple(counts[entry] for entry in range(len(self._starts)))

    def find(self, number: int, side: int = 0) -> str:
        """Return `FILE:LINE` of a pair that was read, of its source (0) or its target (1)."""
        entry = self.file_of(number)
        return f"{find_file(self._files[entry][side])}:{number - self._starts[entry] + 1}"


def fetch(
    corpus: FilesCorpus | HubCorpus | GrammarCorpus, on_progress: Progress | None = None
) -> FilesCorpus | GrammarCorpus:
    """Download the text of a corpus unless it is on this machine; return the corpus of local files.

    Raises:
        ShapeshiftError: something cannot be downloaded; see `download`, `hub` and `testsets`.
    """
    if isinstance(corpus, GrammarCorpus):
        return corpus
    if isinstance(corpus, HubCorpus):
        corpus = hub.export(corpus, on_progress)
    for split in SPLITS:
        for entry in filter(is_test_set, (*corpus.prefixes(split), *corpus.references(split))):
            fetch_test_set(entry.removeprefix(SACREBLEU), corpus.source, corpus.target)
    missing = missing_files(corpus)
    if corpus.archive is not None and missing:
        inside = [x.relative_to(corpus.root) for x in missing if x.is_relative_to(corpus.root)]
        wanted = {f"{name.as_posix()}{packed}" for name in inside for packed in ("", ".gz")}
        archive = download(corpus.archive, corpus.root, on_progress)
        unpack(archive, corpus.root, wanted.__contains__)
        require_files(corpus)
    return corpus


def local_corpus(corpus: FilesCorpus | HubCorpus) -> FilesCorpus:
    """Return the corpus of local files; nothing is downloaded."""
    return hub.exported(corpus) if isinstance(corpus, HubCorpus) else corpus


def labels(corpus: FilesCorpus | HubCorpus | GrammarCorpus, split: Split) -> list[str]:
    """Return what results call the entries of a split; none of the grammar. No text is read."""
    if isinstance(corpus, GrammarCorpus):
        return []
    files = hub.as_files(corpus) if isinstance(corpus, HubCorpus) else corpus
    entries = files.prefixes(split)
    named = zip(entries, files.references(split) or entries, strict=True)
    return [label(reference if is_test_set(reference) else entry) for entry, reference in named]


def missing_files(corpus: FilesCorpus) -> list[Path]:
    """Return the files of the corpus's prefixes that are not there, plain or gzipped."""
    needed: list[Path] = []
    for split in SPLITS:
        for first, entries in enumerate((corpus.prefixes(split), corpus.references(split))):
            for entry in (x for x in entries if not is_test_set(x)):
                needed += _paths(corpus, entry)[first:]  # of a reference the target side alone
    return [path for path in needed if not path.exists() and not Path(f"{path}.gz").exists()]


def require_files(corpus: FilesCorpus) -> None:
    """Raise a `ShapeshiftError` for the first of the `missing_files`, if there is one."""
    missing = missing_files(corpus)
    if not missing:
        return
    prefix = missing[0].with_suffix("")
    files = map(str, (prefix if prefix.is_dir() else prefix.parent).glob("*.*"))
    there = ", ".join(get_close_matches(str(missing[0]), files, n=5, cutoff=0))
    root = "the folder of the text (by default that of the file that names it)"
    remedy = f"there are {there}" if there else f"set data.corpus.root=PATH, {root}"
    raise ShapeshiftError(
        "no such file, plain or gzipped; expected text as NAME, for the files"
        f" NAME.{corpus.source} and NAME.{corpus.target}; {remedy}",
        path=missing[0],
    )


def check_text(corpus: FilesCorpus, on_progress: Progress | None = None) -> dict[Split, int]:
    """Read all text of a corpus once to check it; return the number of pairs of each split.

    Raises:
        ShapeshiftError: a file cannot be read as text, has another number of lines than its
            partner or its references, or a split has no lines.
    """
    sizes: dict[Split, int] = {}
    for split in ("test", "valid", "train"):  # train last: a fault in the others shows sooner
        lines = watched(read_split(corpus, split), "check the text", None, on_progress)
        sizes[split] = sum(1 for _ in lines)
        require_lines(corpus, split, sizes[split])
    return sizes


def require_lines(corpus: FilesCorpus, split: Split, num_pairs: int) -> None:
    """Raise a `ShapeshiftError` that names a file if a split has no pairs."""
    if not num_pairs:
        name = {"train": "training", "valid": "validation", "test": "test"}[split]
        path = find_file(next(split_files(corpus, split))[0])
        raise ShapeshiftError(f"has no lines; expected {name} text, one sentence a line", path=path)


def write_grammar(
    config: GrammarCorpus, directory: Path, on_progress: Progress | None = None
) -> FilesCorpus:
    """Generate the grammar's three splits as text files `<directory>/<split>.{en,de}`.

    A hash of the English sentence selects its split, so that no sentence is in two splits and
    held-out sentences have the same lengths as the others. (To draw valid and test from sentences
    that train lacks would leave them hardly a short one: train has nearly all of those.)

    Raises:
        ShapeshiftError: the word limits allow too few different sentences.
    """
    from shapeshift.data.grammar import generate  # its lexicon is of no use to other corpora

    missing = {split: config.num_pairs(split) for split in SPLITS}
    total = sum(missing.values())
    expected = 10 * max(config.num_train // 8 + 1, config.num_valid, config.num_test)
    # Five times the average need; a split that is still not full then has no sentences left.
    words = {"min_words": config.min_words, "max_words": config.max_words}
    pairs = generate(5 * expected + 10_000, seed=config.seed, **words)
    with ExitStack() as stack:
        files = {
            (split, side): stack.enter_context((directory / f"{split}.{side}").open("wb"))
            for split in SPLITS
            for side in ("en", "de")
        }
        while left := sum(missing.values()):
            if (pair := next(pairs, None)) is None:
                raise ShapeshiftError(
                    f"the grammar has too few different sentences of {config.min_words} to "
                    f"{config.max_words} words for three splits; raise data.corpus.max_words"
                )
            if on_progress is not None and left % _PROGRESS_EVERY == 0:
                on_progress("generate", total - left, total)
            digest = hashlib.blake2b(pair[0].encode(), digest_size=8).digest()
            split = _HELD_OUT.get(int.from_bytes(digest, "little") % 10, "train")
            if missing[split]:
                missing[split] -= 1
                for side, text in zip(("en", "de"), pair, strict=True):
                    files[split, side].write(f"{text}\n".encode())
    source, target = ("de", "en") if config.reverse else ("en", "de")
    names = {split: [split] for split in SPLITS}
    return FilesCorpus(root=directory, source=source, target=target, **names)


def corpus_fingerprint(corpus: FilesCorpus | HubCorpus | GrammarCorpus) -> str:
    """Return the SHA-256 of the text of a corpus, in hexadecimal. It depends on the bytes of the
    files and their order, not on their paths; for the grammar, on the settings and on
    `GRAMMAR_VERSION`.

    Raises:
        ShapeshiftError: a file is missing or cannot be read, has not been fetched, or is not what
            was fetched from the hub.
    """
    digest = hashlib.sha256()
    if isinstance(corpus, GrammarCorpus):
        from shapeshift.data.grammar import GRAMMAR_VERSION  # as in `write_grammar`

        digest.update(f"{GRAMMAR_VERSION} {corpus.model_dump_json()}".encode())
        return digest.hexdigest()
    corpus = local_corpus(corpus)
    require_files(corpus)
    with ThreadPoolExecutor() as threads:
        for split in SPLITS:
            digest.update(split.encode())
            for paths in split_files(corpus, split):
                for each in threads.map(_hash, paths):
                    digest.update(bytes.fromhex(each))
    return digest.hexdigest()


def _hash(path: Path) -> str:
    found = find_file(path)
    with reading(found):
        return hash_file(found)


def _paths(corpus: FilesCorpus, prefix: str) -> list[Path]:
    return [corpus.root / expand_home(f"{prefix}.{x}") for x in (corpus.source, corpus.target)]
