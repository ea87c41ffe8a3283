"""Where the text of a corpus is, or where it will come from; nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from shapeshift.data.config import SACREBLEU, FilesCorpus, GrammarCorpus, HubCorpus, is_test_set
from shapeshift.data.corpora import entries, missing_files
from shapeshift.data.sources.hub import is_exported
from shapeshift.data.sources.testsets import local_test_set
from shapeshift.errors import ShapeshiftError


class Origin(NamedTuple):
    """A part of a corpus.

    Attributes:
        what: a file, an archive, a dataset, a test set.
        where: where it is fetched from; None for what nobody fetches.
        here: whether it is on this machine.
    """

    what: str
    where: str | None
    here: bool

    @property
    def state(self) -> str:
        """For people: `on this machine`, `will be fetched from …`, or `missing`."""
        if self.here:
            return "on this machine"
        return "missing" if self.where is None else f"will be fetched from {self.where}"


def origins(corpus: FilesCorpus | HubCorpus | GrammarCorpus) -> list[Origin]:
    """Return the parts of a corpus.

    Raises:
        ShapeshiftError: a test set that sacreBLEU does not have.
    """
    if isinstance(corpus, GrammarCorpus):
        return [Origin("the built-in grammar", None, here=True)]
    if isinstance(corpus, HubCorpus):
        named = [entry for split in ("valid", "test") for entry in corpus.prefixes(split)]
        what = " ".join(filter(None, ("dataset", corpus.repo, corpus.subset)))
        dataset = Origin(what, f"huggingface.co/datasets/{corpus.repo}", is_exported(corpus))
        return [dataset, *_test_sets(corpus, named)]
    missing = missing_files(corpus)
    if not missing:
        folder = "this folder" if corpus.root == Path() else f"the folder {corpus.root}"
        parts = [Origin(f"all files, in {folder}", None, here=True)]
    elif corpus.archives:
        parts = [
            Origin(str(path := corpus.root / archive.name), archive.url, path.is_file())
            for archive in corpus.archives
        ]
    else:
        parts = [Origin(str(path), None, here=False) for path in missing]
    return parts + _test_sets(corpus, entries(corpus))


def _test_sets(corpus: FilesCorpus | HubCorpus, named: list[str]) -> list[Origin]:
    parts = []
    for entry in dict.fromkeys(filter(is_test_set, named)):
        name = entry.removeprefix(SACREBLEU)
        try:
            local_test_set(name, corpus.source, corpus.target)
            here = True
        except ShapeshiftError as error:
            if error.path is None:  # there is none of this name
                raise
            here = False
        what = f"test set {name} {corpus.source}-{corpus.target}"
        parts.append(Origin(what, "sacreBLEU's servers", here))
    return parts
