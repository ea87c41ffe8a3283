"""sacreBLEU's tokenizers for BLEU, by name, by language and by script, and Moses's detokeniser.

Most languages have spaces between words, and 13a splits off the punctuation. Without
spaces, 13a reads a whole sentence as one word, and BLEU is near 0 for any translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sacrebleu.metrics.bleu import BLEU

from shapeshift._system.errors import ShapeshiftError, install_extra, nearest, reason, require
from shapeshift.data.scripts import is_tokenised, script

AUTO = "auto"  # the tokenizer of the target language, see `BY_LANGUAGE`
DEFAULT = "13a"  # sacreBLEU's, for all languages that are not in `BY_LANGUAGE`

_LANGUAGES = {
    "zh": "zh zho chi cmn cn chs cht yue wuu lzh gan hak hsn",
    "ja-mecab": "ja jpn jp",
    "ko-mecab": "ko kor kr",
    "char": "th tha lo lao km khm my mya bur bo bod tib dz dzo shn",
}
BY_LANGUAGE = {code: name for name, codes in _LANGUAGES.items() for code in codes.split()}
"""Language → the tokenizer that sacreBLEU chooses for it, and single characters for the other
languages without spaces. `cn`, `jp` and `kr` are no codes of languages but stand for them."""

_BY_SCRIPT = {"han": "zh", "kana": "ja-mecab", "hangul": "ko-mecab", "southern": "char"}

_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}  # of this package, which they need


def check_name(name: str) -> None:
    """Raise `ShapeshiftError` unless sacreBLEU has a tokenizer of this name."""
    if name not in BLEU.TOKENIZERS:
        known = f"{', '.join(BLEU.TOKENIZERS)}{nearest(name, BLEU.TOKENIZERS)}"
        raise ShapeshiftError(f"unknown tokenizer {name!r}: expected one of sacreBLEU's, {known}")


def resolve(name: str, language: str) -> str:
    """Return the tokenizer that `name`, which may be `AUTO`, means for a language, such as `ja`,
    `jpn` or `zh-TW`."""
    if name != AUTO:
        return name
    return BY_LANGUAGE.get(re.split("[-_]", language.lower())[0], DEFAULT)


def by_text(language: str, references: Sequence[str]) -> str:
    """Return the tokenizer that a run chooses for a language, which is what the names of its files
    end with. If it is unknown or has no tokenizer of its own, the script of the text decides."""
    named = resolve(AUTO, language)
    return named if named != DEFAULT else _BY_SCRIPT.get(script(references), DEFAULT)


def misfit(tokenizer: str, references: Sequence[str]) -> str | None:
    """Return why BLEU with this tokenizer is meaningless for a text, and which tokenizer to use;
    `None` if it fits."""
    fitting = _BY_SCRIPT.get(script(references), DEFAULT)
    needs_spaces = tokenizer in (DEFAULT, "intl", "none")
    if not needs_spaces or fitting in (DEFAULT, "ko-mecab") or is_tokenised(references):
        return None
    return (
        f"the references have no spaces between words, so that BLEU with the tokenizer {tokenizer}"
        f" is near 0 for any translation; use {fitting}"
    )


def tokenised(language: str, lines: Sequence[str]) -> str | None:
    """Return a warning if text of a language without spaces has spaces between its words, else
    `None`."""
    if not is_tokenised(lines):
        return None
    return (
        f"the {language} text has spaces between Chinese or Japanese words: it is already"
        " tokenised. A model reads and writes such text, and its scores do not compare with those"
        " on raw text; better take the raw text, or name raw references"
        " (data.corpus.test_references) and set evaluation.detokenize=moses"
    )


def one_is_tokenised(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """Return a warning if, in Chinese or Japanese, only the translations or only the references
    have spaces between words."""
    sides = {"translations": hypotheses, "references": references}
    tokenised = [name for name, lines in sides.items() if is_tokenised(lines)]
    if len(tokenised) != 1:
        return None
    [other] = sides.keys() - tokenised
    return (
        f"the {tokenised[0]} have spaces between words (they are tokenised) and the {other} have"
        " none, which lowers the scores; score raw text against raw text"
    )


def make_bleu(tokenizer: str = DEFAULT) -> BLEU:
    """Return sacreBLEU's BLEU with this tokenizer, which is not `AUTO`, and its other settings at
    their defaults. `flores101`, `flores200`, `spm` and `spBLEU-1K` are downloaded at first use.

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
            " another one (evaluation.tokenize=char, or `shapeshift score --tokenize char`)"
        ) from error


def moses(language: str) -> Callable[[str], str]:
    """Return a function that detokenises output with `sacremoses` (the extra `moses`) before
    scoring, as in SHAPE (Kiyono et al. 2021), section 3.1. Some rules depend on the language. Parts
    joined by ` <sep> ` are detokenised separately."""
    from shapeshift.data.subwords import SEPARATOR, split_parts

    detokenizer = require("moses", "sacremoses").MosesDetokenizer(lang=language)

    def detokenize(text: str) -> str:
        parts = (detokenizer.detokenize(part.split()) for part in split_parts(text))
        return SEPARATOR.join(parts)

    return detokenize
