"""From tokenised output to text as people write it, before it is scored: Moses's detokeniser, by
`sacremoses` (the extra `moses`).

SHAPE (Kiyono et al. 2021), section 3.1, scores its output after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shapeshift.data.subwords import SEPARATOR, Subwords, split_parts
from shapeshift.errors import ShapeshiftError


def moses(language: str) -> Callable[[str], str]:
    """Return what detokenises one text; parts joined by ` <sep> ` each by themselves.

    Args:
        language: of the text, such as `de`; some rules depend on it.

    Raises:
        ShapeshiftError: sacremoses is not installed.
    """
    try:
        from sacremoses import MosesDetokenizer
    except ImportError as error:
        raise ShapeshiftError(
            "evaluation.detokenize=moses needs sacremoses: pip install 'shapeshift[moses]'"
        ) from error
    detokenizer = MosesDetokenizer(lang=language)

    def detokenize(text: str) -> str:
        parts = (detokenizer.detokenize(part.split()) for part in split_parts(text))
        return SEPARATOR.join(parts)

    return detokenize


class Detokenizing:
    """Subword models whose target text comes out detokenised.

    Args:
        subwords: the models.
        detokenize: makes text of what they decode to.
    """

    def __init__(self, subwords: Subwords, detokenize: Callable[[str], str]):
        self._subwords = subwords
        self._detokenize = detokenize

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Subwords`."""
        return self._subwords.encode_source(texts)

    def encode_source_parts(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        """See `Subwords`."""
        return self._subwords.encode_source_parts(texts)

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Subwords`."""
        return self._subwords.encode_target(texts)

    def encode_target_parts(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        """See `Subwords`."""
        return self._subwords.encode_target_parts(texts)

    def decode_target(self, ids: Sequence[int]) -> str:
        """Return the detokenised text of target ids."""
        return self._detokenize(self._subwords.decode_target(ids))
