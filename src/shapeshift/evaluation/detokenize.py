"""From tokenised output to text as people write it, before it is scored: Moses's detokeniser, by
`sacremoses` (the extra `moses`).

SHAPE (Kiyono et al. 2021), section 3.1, scores its output after it.
"""

from __future__ import annotations

from collections.abc import Callable

from shapeshift.data.subwords import SEPARATOR, split_parts
from shapeshift.errors import require


def moses(language: str) -> Callable[[str], str]:
    """Return a function that detokenises a text; parts joined by ` <sep> ` each by themselves.

    Args:
        language: of the text, such as `de`; some rules depend on it.
    """
    detokenizer = require("moses", "sacremoses").MosesDetokenizer(lang=language)

    def detokenize(text: str) -> str:
        parts = (detokenizer.detokenize(part.split()) for part in split_parts(text))
        return SEPARATOR.join(parts)

    return detokenize
