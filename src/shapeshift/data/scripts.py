"""Words and scripts of text without spaces between words, such as Chinese, Japanese and Thai."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u30ff\uff66-\uff9f"
_SOUTHERN = "\u0e01-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\uaa60-\uaa7f"

_WORD = re.compile(f"[{_HAN}{_KANA}{_SOUTHERN}]|[^\\s{_HAN}{_KANA}{_SOUTHERN}]+")
_LETTERS = {
    "han": re.compile(f"[{_HAN}]"),
    "kana": re.compile(f"[{_KANA}]"),
    "southern": re.compile(f"[{_SOUTHERN}]"),
    "hangul": re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7af]"),
}
_SPACED = re.compile(f"[{_HAN}{_KANA}] +[{_HAN}{_KANA}]")
_SAMPLE = 1_000  # lines that are looked at


def count_words(text: str) -> int:
    """Return the number of words; in a script without spaces, each character counts as one."""
    return len(text.split()) if text.isascii() else len(_WORD.findall(text))


def script(lines: Iterable[str]) -> str:
    """Return the script of at least half of the letters of a text: `han`, `kana` (Japanese,
    whatever its share of Han), `southern` (Thai, Lao, Khmer, Burmese, Tibetan), `hangul`, or
    `other`, which has spaces between words. The first thousand lines decide."""
    text = "".join(islice(lines, _SAMPLE))
    num_letters = sum(map(str.isalpha, text))
    counts = {name: len(pattern.findall(text)) for name, pattern in _LETTERS.items()}
    japanese = counts["han"] + counts["kana"]
    if 2 * japanese >= num_letters and japanese:
        return "kana" if 20 * counts["kana"] >= japanese else "han"
    found = (name for name in ("southern", "hangul") if 2 * counts[name] >= num_letters)
    return next((name for name in found if counts[name]), "other")


def is_tokenised(lines: Iterable[str]) -> bool:
    """Return whether Chinese or Japanese text has spaces between its words, in at least half of its
    first thousand lines."""
    sample = [line for line in islice(lines, _SAMPLE) if line.strip()]
    return bool(sample) and 2 * sum(map(bool, map(_SPACED.search, sample))) >= len(sample)
