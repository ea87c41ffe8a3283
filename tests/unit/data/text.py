"""Parallel text in files, English and German."""

from shapeshift.data.config import SPLITS, FilesCorpus


def write_pairs(folder, **texts):
    """Write pairs of lines to a folder: name → pairs."""
    folder.mkdir(exist_ok=True)
    for name, pairs in texts.items():
        for side, ending in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{ending}").write_text(text, "utf-8")


def files_corpus(root=".", **settings):
    """Return a corpus of `train`, `valid` and `test`, or of other entries."""
    splits = {split: [split] for split in SPLITS}
    return FilesCorpus(root=root, source="en", target="de", **(splits | settings))
