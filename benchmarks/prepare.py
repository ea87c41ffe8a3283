"""How fast text is prepared, next to SentencePiece alone, and how much memory that takes.

    python benchmarks/prepare.py --pairs 4500000 --folder text

The text is generated once (1.1 GB for 4.5 million pairs), then prepared from files as
`shapeshift prepare` does it: check, learn subwords, encode, filter, write. SentencePiece alone
encodes the same training pairs, block by block, with a thread for each core. Rates are of the
training pairs; the two take turns, `--rounds` times. Memory is what the process holds while it
encodes, after a tenth of the pairs and at the end, and its peak.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import sentencepiece

from shapeshift.data.config import DataConfig, FilesCorpus, Split, SubwordsConfig
from shapeshift.data.grammar import generate
from shapeshift.data.prepare import prepare

SIDES = ("en", "de")
BLOCK = 10_000


def write_text(folder: Path, pairs: int) -> FilesCorpus:
    """Generate the splits, unless they are there, and return the corpus."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[Split, int] = {"train": pairs, "valid": 1000, "test": 1001}
    names: dict[Split, str] = {split: f"{split}-{number}" for split, number in numbers.items()}
    for split, name in names.items():
        paths = [folder / f"{name}.{side}" for side in SIDES]
        if all(path.exists() for path in paths):
            continue
        parts = [path.with_name(f"{path.name}.part") for path in paths]
        with (
            parts[0].open("w", encoding="utf-8") as one,
            parts[1].open("w", encoding="utf-8") as two,
        ):
            for source, target in generate(numbers[split], seed=numbers[split]):
                one.write(source + "\n")
                two.write(target + "\n")
        for part, path in zip(parts, paths, strict=True):
            part.rename(path)
    splits = {split: [name] for split, name in names.items()}
    return FilesCorpus(root=folder, source=SIDES[0], target=SIDES[1], **splits)


def resident_mib() -> float:
    """Return what this process holds now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watch:
    """Takes times and memory as `prepare` reports its progress."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.seconds: dict[str, float] = {}
        self.held: list[float] = []

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        now = time.perf_counter()
        self.seconds[stage] = now - self.began.setdefault(stage, now)
        if stage == "encode train":
            self.held.append(resident_mib())


def blocks(corpus: FilesCorpus) -> Iterator[list[str]]:
    paths = [corpus.root / f"{corpus.train[0]}.{side}" for side in SIDES]
    with paths[0].open(encoding="utf-8") as one, paths[1].open(encoding="utf-8") as two:
        while sources := list(islice(one, BLOCK)):
            yield sources
            yield list(islice(two, BLOCK))


def sentencepiece_alone(corpus: FilesCorpus, model: Path) -> float:
    """Return the seconds that SentencePiece takes for all training pairs, reading them included."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    began = time.perf_counter()
    for texts in blocks(corpus):
        processor.encode([text.rstrip("\n") for text in texts], num_threads=os.cpu_count())
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, default=Path("text"), help="of the generated text")
    parser.add_argument("--vocabulary", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    corpus = write_text(args.folder, args.pairs)
    config = DataConfig(corpus=corpus, subwords=SubwordsConfig(vocab_size=args.vocabulary))
    ratios = []
    for number in range(args.rounds):
        watch = Watch()
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            prepare(config, Path(folder) / "prepared", watch)
            alone = sentencepiece_alone(corpus, Path(folder) / "prepared/subwords/joint.model")
        own = watch.seconds["encode train"]
        ratios.append(alone / own)
        held = watch.held[len(watch.held) // 10], watch.held[-1]
        stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in watch.seconds.items())
        print(
            f"round {number + 1}: {args.pairs / own:,.0f} pairs/s, SentencePiece alone"
            f" {args.pairs / alone:,.0f}, ratio {ratios[-1]:.2f}; resident {held[0]:,.0f} then"
            f" {held[1]:,.0f} MiB ({stages})",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"ratio {statistics.median(ratios):.2f} of {len(ratios)}; peak {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
