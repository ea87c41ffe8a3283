"""sacreBLEU's tokenizers for BLEU, by name and by language, and Moses's detokeniser.

Most languages have spaces between words, and 13a splits off the punctuation. Without
spaces, 13a reads a whole sentence as one word, and BLEU is near 0 for any translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sacrebleu.metrics.bleu import BLEU

from shapeshift.errors import ShapeshiftError, install_extra, nearest, reason, require

AUTO = "auto"
"""The tokenizer of the target language, see `BY_LANGUAGE`."""

DEFAULT = "13a"
"""sacreBLEU's default, for all languages that are not in `BY_LANGUAGE`."""

BY_LANGUAGE = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
"""Language → the tokenizer that sacreBLEU chooses for it."""

_TWO_LETTERS = {"zho": "zh", "cmn": "zh", "jpn": "ja", "kor": "ko"}

_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
"""Tokenizer → the extra of this package that it needs."""


def check_name(name: str) -> None:
    """Raise `ShapeshiftError` unless sacreBLEU has a tokenizer of this name."""
    if name not in BLEU.TOKENIZERS:
        raise ShapeshiftError(
            f"unknown tokenizer {name!r}: expected one of sacreBLEU's,"
            f" {', '.join(BLEU.TOKENIZERS)}" + nearest(name, BLEU.TOKENIZERS)
        )


def resolve(name: str, language: str) -> str:
    """Return the tokenizer that `name` means for a language.

    Args:
        name: of a tokenizer, or `AUTO`.
        language: of the text, such as `ja`, `jpn` or `zh-TW`.
    """
    if name != AUTO:
        return name
    code = re.split("[-_]", language.lower())[0]
    return BY_LANGUAGE.get(_TWO_LETTERS.get(code, code), DEFAULT)


def make_bleu(tokenizer: str = DEFAULT) -> BLEU:
    """Return sacreBLEU's BLEU with this tokenizer, with its other settings at their defaults.

    Args:
        tokenizer: its name, not `AUTO`. `flores101`, `flores200`, `spm` and `spBLEU-1K` are
            downloaded at their first use.

    Raises:
        ShapeshiftError: an unknown name, or a tokenizer that is not installed or cannot be
            downloaded.
    """
    check_name(tokenizer)
    try:
        return BLEU(tokenize=tokenizer)
    except (Exception, SystemExit) as error:  # of packages, of their dictionaries, of the network
        extra = _EXTRAS.get(tokenizer)
        remedy = install_extra(extra) if extra else "connect to the internet"
        raise ShapeshiftError(
            f"BLEU's tokenizer {tokenizer} cannot be used ({reason(error)}); {remedy}, or use"
            " another one (evaluation.tokenize=char, or --tokenize char)"
        ) from error


def moses(language: str) -> Callable[[str], str]:
    """Return a function that brings tokenised output into the form in which it is scored, by
    `sacremoses` (the extra `moses`), as SHAPE (Kiyono et al. 2021), section 3.1, does; parts joined
    by ` <sep> ` each by themselves.

    Args:
        language: of the text, such as `de`; some rules depend on it.
    """
    from shapeshift.data.subwords import SEPARATOR, split_parts

    detokenizer = require("moses", "sacremoses").MosesDetokenizer(lang=language)

    def detokenize(text: str) -> str:
        parts = (detokenizer.detokenize(part.split()) for part in split_parts(text))
        return SEPARATOR.join(parts)

    return detokenize
