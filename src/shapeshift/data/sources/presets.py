"""The papers' corpora by name: `data.corpus: wmt14-en-de`.

docs/paper-scale.md says where the text is from and how it differs from the papers'.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from shapeshift.errors import ShapeshiftError, nearest

_WMT14 = "b199e406369ec1b7634206d3ded5ba45de2fe696"
_SPLIT = "newstest{}.tok.bpe.32000"

CORPORA: dict[str, dict[str, Any]] = {
    # SHAPE: tokenised, and split by a joint BPE of 32,000 merges, by Ott et al. (2018, "Scaling
    # Neural Machine Translation"); what is scored is sacreBLEU's raw text of the same sentences.
    "wmt16-en-de": {
        "corpus": "files",
        "root": "corpora/wmt16_en_de",
        "source": "en",
        "target": "de",
        "train": ["train.tok.clean.bpe.32000"],
        "valid": [_SPLIT.format(year) for year in (2010, 2011, 2012, 2013)],
        "test": [_SPLIT.format(year) for year in (2014, 2015, 2016)],
        "valid_references": [f"sacrebleu:wmt{year}" for year in (10, 11, 12, 13)],
        "test_references": ["sacrebleu:wmt14/full", "sacrebleu:wmt15", "sacrebleu:wmt16"],
        "archives": [
            {
                "url": "https://drive.usercontent.google.com/download"
                "?id=0B_bZck-ksdkpM25jRUN2X2UxMm8&export=download&confirm=t",
                "file": "wmt16_en_de.tar.gz",
                "md5": "874ab6bbfe9c21ec987ed1b9347f95ec",  # as torchtext published it
            }
        ],
    },
    # Shaw et al.: the organisers' text as it is.
    "wmt14-en-de": {
        "corpus": "hub",
        "repo": "wmt/wmt14",
        "subset": "de-en",
        "revision": _WMT14,
        "source": "en",
        "target": "de",
        "valid": ["sacrebleu:wmt13"],
        "test": ["sacrebleu:wmt14/full"],
    },
    "wmt14-en-fr": {
        "corpus": "hub",
        "repo": "wmt/wmt14",
        "subset": "fr-en",
        "revision": _WMT14,
        "source": "en",
        "target": "fr",
        "valid": ["sacrebleu:wmt13"],
        "test": ["sacrebleu:wmt14/full"],
    },
    # Miyazaki et al.: WMT22 is on no hub. mtdata writes these files from the organisers' list.
    "wmt22-fr-de": {
        "corpus": "files",
        "root": "corpora/wmt22",
        "source": "fr",
        "target": "de",
        "train": ["fr-de/train"],
        "valid": ["sacrebleu:wmt21"],
        "test": ["sacrebleu:wmt22"],
    },
    "wmt22-ja-en": {
        "corpus": "files",
        "root": "corpora/wmt22",
        "source": "ja",
        "target": "en",
        "train": ["ja-en/train"],
        "valid": ["sacrebleu:wmt21"],
        "test": ["sacrebleu:wmt22"],
    },
    # What the hub has in their stead.
    "wmt19-fr-de": {
        "corpus": "hub",
        "repo": "wmt/wmt19",
        "subset": "fr-de",
        "source": "fr",
        "target": "de",
        "valid": ["sacrebleu:wmt21"],
        "test": ["sacrebleu:wmt22"],
    },
    "opus100-ja-en": {
        "corpus": "hub",
        "repo": "Helsinki-NLP/opus-100",
        "subset": "en-ja",
        "source": "ja",
        "target": "en",
        "valid": ["sacrebleu:wmt21"],
        "test": ["sacrebleu:wmt22"],
    },
}
"""Name → the section `data.corpus`."""


def expand_corpus(name: str) -> dict[str, Any]:
    """Return the corpus `name` spelled out as a configuration.

    Raises:
        ShapeshiftError: there is none of this name.
    """
    if name not in CORPORA:
        raise ShapeshiftError(
            f"unknown corpus {name!r}{nearest(name, CORPORA)} (known: {', '.join(CORPORA)})"
        )
    return deepcopy(CORPORA[name])
