"""Prepared data: what is in their folder, and opening it.

    prepared.json              configuration, counts, length statistics, fingerprint, versions
    subwords/                  the subword models
    train/ valid/ test/        token stores
    valid.source.txt …         raw text of valid and test after building, source and target
    corpus/                    the generated text, for the built-in grammar
    SHA256SUMS                 hashes of all these files, see `integrity`

The references are raw text where the corpus has some; else, where text is already split, they are
its pieces joined. The files are compared with their hashes when the folder is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import read
from shapeshift._system.hashes import SUMS, verify
from shapeshift._system.own_modules import outside
from shapeshift._system.schema import Strict, added
from shapeshift.data.config import SPLITS, DataConfig, Split
from shapeshift.data.sources.files import read_lines, reading
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import Subwords

REPORT = "prepared.json"
REPORT_OF_RUN = "data.json"  # the copy of a report in the folder of a run
IMPORTED_FROM = "imported from"
"""Among the versions of a report: the model that `shapeshift import` read, whose text is not
known."""
FORMAT: Literal[1] = 1


class LengthStatistics(Strict):
    """Lengths of one side of a split, in subwords. All zero where there is no pair."""

    min: int
    mean: float
    max: int


class SplitReport(Strict):
    """Counts of a split: pairs read, kept and dropped, with lengths.

    Attributes:
        read: pairs of the corpus.
        kept: pairs of the corpus that the recipe keeps.
        built: prepared pairs: `kept`, or fewer where several were joined into one.
        dropped: pairs left out, by reason.
        noticed: pairs that are kept and may spoil scores, by reason.
        first: `FILE:LINE` of the first pair of each reason; pairs of the grammar have none.
        source_length, target_length: of the prepared pairs.
        longest: `FILE:LINE` of the longest source and of the longest target; nothing for the
            grammar.
        files: except for train, prepared pairs by file of the corpus.
    """

    read: int
    kept: int
    built: int
    dropped: dict[str, int]
    noticed: dict[str, int] = added({})
    first: dict[str, str] = added({})
    source_length: LengthStatistics
    target_length: LengthStatistics
    longest: tuple[str, ...] = added(())
    files: tuple[int, ...] = added(())


class Report(Strict):
    """The file `prepared.json`.

    Attributes:
        fingerprint: SHA-256 of the configuration and of the corpus text, wherever it is.
        config: what was asked for.
        subwords: SHA-256 of the subword models.
        splits: counts and lengths of train, valid and test.
        versions: of what the result may depend on.
    """

    format: Literal[1] = FORMAT
    fingerprint: str
    config: DataConfig
    subwords: str
    splits: dict[Split, SplitReport]
    versions: dict[str, str]

    def notices(self) -> list[str]:
        """Return a line for each split of which pairs are left out or may spoil scores."""
        lines = []
        for name, split in self.splits.items():
            first = {reason: f" (first: {place})" for reason, place in split.first.items()}
            for what, counts in (("left out", split.dropped), ("kept", split.noticed)):
                if counts:
                    found = ", ".join(f"{counts[x]:,} {x}{first.get(x, '')}" for x in counts)
                    lines.append(f"{name}: of {split.read:,} pairs {what}: {found}")
        return lines

    @classmethod
    def read(cls, path: Path, remedy: str) -> Report:
        """Read a report."""
        try:
            with reading(path), outside(path.parent):
                return cls.model_validate_json(read(path))
        except ValidationError as error:
            message = f"is damaged, or of another version; {remedy}"
            raise ShapeshiftError(message, path=path) from error


class Prepared:
    """Prepared data, opened for reading.

    Attributes:
        directory: where it is.
        report: configuration, counts, statistics, versions.
        subwords: the subword models.
        train, valid, test: token stores.
    """

    def __init__(self, directory: str | Path):
        """Open what `prepare` wrote."""
        self.directory = Path(directory)
        self.report = read_report(self.directory)
        remedy = _remedy(self.directory)
        verify(self.directory, remedy=remedy, sums_remedy=remedy)
        self.subwords = Subwords.load(self.directory / "subwords")
        self.train, self.valid, self.test = (TokenStore(self.directory / x) for x in SPLITS)

    def store(self, split: Split) -> TokenStore:
        """The token store of a split."""
        store: TokenStore = getattr(self, split)
        return store

    def text(self, split: Literal["valid", "test"]) -> tuple[list[str], list[str]]:
        """Return the source texts, as the corpus has them, and the references of a split, in the
        order of its store. The parts of joined texts are separated by ` <sep> `."""
        source, target = text_paths(self.directory, split)
        return list(read_lines(source)), list(read_lines(target))


def text_paths(directory: Path, split: Split) -> list[Path]:
    """Return the paths of the source texts and the references of a split."""
    return [directory / f"{split}.{side}.txt" for side in ("source", "target")]


def read_report(directory: Path) -> Report:
    """Read the report of prepared data, after checking its hash."""
    path, remedy = directory / REPORT, _remedy(directory)
    if not (directory / SUMS).exists():
        raise ShapeshiftError(
            f"holds no {REPORT} and {SUMS}: not prepared data, or not copied whole; name one that"
            " `shapeshift prepare` wrote, or a new one to prepare in",
            path=directory,
        )
    verify(directory, REPORT, remedy=remedy, sums_remedy=remedy)
    return Report.read(path, remedy)


def _remedy(directory: Path) -> str:
    return f"remove the folder {directory} and run the command again, which prepares the data anew"
