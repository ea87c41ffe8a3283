"""Where the text of a corpus is, or where it will come from; nothing is fetched."""

from __future__ import annotations

from shapeshift.data.config import SACREBLEU, FilesCorpus, GrammarCorpus, HubCorpus, is_test_set
from shapeshift.data.corpora import entries, missing_files
from shapeshift.data.sources.hub import is_exported
from shapeshift.data.sources.testsets import local_test_set
from shapeshift.errors import ShapeshiftError

HERE, MISSING = "on this machine", "missing"


def origins(corpus: FilesCorpus | HubCorpus | GrammarCorpus) -> dict[str, str]:
    """Return part of a corpus (files, an archive, a dataset, a test set) → where it is: `HERE`,
    `will be fetched from …`, or `MISSING`.

    Raises:
        ShapeshiftError: a test set that sacreBLEU does not have.
    """
    if isinstance(corpus, GrammarCorpus):
        return {"the built-in grammar": HERE}
    if isinstance(corpus, HubCorpus):
        named = [*corpus.valid, *corpus.test]
        what = " ".join(filter(None, ("dataset", corpus.repo, corpus.subset)))
        where = f"huggingface.co/datasets/{corpus.repo}"
        parts = {what: _state(is_exported(corpus), where)}
    else:
        named, missing = entries(corpus), missing_files(corpus)
        files = {str(path): MISSING for path in missing}
        archives = ((corpus.root / archive.name, archive.url) for archive in corpus.archives)
        if missing and corpus.archives:
            files = {str(path): _state(path.is_file(), url) for path, url in archives}
        folder = "this folder" if str(corpus.root) == "." else f"the folder {corpus.root}"
        parts = files or {f"all files, in {folder}": HERE}
    for name in (entry.removeprefix(SACREBLEU) for entry in filter(is_test_set, named)):
        try:
            local_test_set(name, corpus.source, corpus.target)
            here = True
        except ShapeshiftError as error:
            if error.path is None:  # there is none of this name
                raise
            here = False
        what = f"test set {name} {corpus.source}-{corpus.target}"
        parts[what] = _state(here, "sacreBLEU's servers")
    return parts


def _state(here: bool, where: str) -> str:
    return HERE if here else f"will be fetched from {where}"
