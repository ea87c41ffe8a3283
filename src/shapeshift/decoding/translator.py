"""Translates lines of text in batches and in order, as the input arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from shapeshift._system.errors import ShapeshiftError, is_text
from shapeshift.data.filter import MAX_CHARACTERS
from shapeshift.data.subwords import EOS, Subwords
from shapeshift.decoding.running import Runner
from shapeshift.decoding.search import Hypothesis
from shapeshift.decoding.splitting import split_text

_COUNTED = 1_000
"""Texts that are encoded together where only their lengths are wanted."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One translation of a line: its text, never with a newline, log p(y | x), and that divided by
    the length penalty. A blank line has one, empty, with both 0.

    `at_limit`: it has as many tokens as allowed, so that its end may be missing. `tokens`: where
    they were asked for, its subwords with their log-probabilities, the `</s>` among them.
    """

    text: str
    log_prob: float
    score: float
    at_limit: bool = False
    tokens: list[tuple[str, float]] | None = None


@dataclass(frozen=True, slots=True)
class TranslatedLine:
    """The result of one line.

    Attributes:
        candidates: its translations, best score first. Where the line was split, the k-th one joins
            the k-th of each piece, and its numbers are sums.
        num_subwords: of the source; None where it has too many characters to be encoded.
        exceeded: the limit of subwords that the line was over, and so was split or skipped, if it
            was. (It has one piece if white space alone made it too long.)
        num_pieces: of the line: 1, more if it was split, 0 if it was skipped.
    """

    candidates: list[Translation]
    num_subwords: int | None
    exceeded: int | None
    num_pieces: int


Pieces = list[tuple[list[int], str]]
"""A line as it is translated, one piece, or none where it is skipped, or several where it is split:
their ids, and the text between the translation of each and that of the next one."""


class Translator:
    """Translates text with a model.

    Args:
        runner: the model, and how it searches.
        subwords: the subword models that it was trained with.
        joined: each line is parts joined by ` <sep> `, as in the Interpolate datasets.
        detokenize: applied to the text of each translation.

    Attributes:
        limit: the most subwords of a line: `most_source_subwords` of the runner's settings, or what
            the model has positions for if that is less.
    """

    def __init__(
        self,
        runner: Runner,
        subwords: Subwords,
        *,
        joined: bool = False,
        detokenize: Callable[[str], str] = str,
    ):
        self.runner = runner
        self.subwords = subwords
        self._joined = joined
        self._detokenize = detokenize
        own, room = runner.config.most_source_subwords, runner.capacity.source_subwords
        self.limit = own if room is None else min(own, room)

    def translate(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the best translation of every line: one line out for each line in, in order.

        Args:
            lines: source text; a newline at the end is dropped, a blank line stays blank.

        Raises:
            ShapeshiftError: as `translate_lines`.
        """
        for line in self.translate_lines(lines):
            yield line.candidates[0].text

    def translate_lines(
        self,
        lines: Iterable[str],
        n_best: int = 1,
        *,
        name: str | Path = "<lines>",
        stream: bool = False,
        each_token: bool = False,
    ) -> Iterator[TranslatedLine]:
        """Yield the result of every line, in order.

        Before an error of a line is raised, the results of all lines before it are yielded.

        Args:
            lines: see `translate`.
            n_best: candidates of each line.
            name: of the text in errors, such as its file.
            stream: answer each line before the next is read, for a person who waits, instead of
                `config.buffer_size` lines at a time.
            each_token: also return the subwords of each candidate and their log-probabilities,
                for which the model reads it once more.

        Raises:
            ShapeshiftError: reading `lines` raises it; a line is too long and `config.on_long` is
                `error`; `n_best` exceeds the beam; the model gives NaN; memory runs out.
        """
        lines, size = iter(lines), 1 if stream else self.runner.config.buffer_size
        for first in count(1, size):
            plans, fault = self._read(lines, size, first, name)
            yield from self._answer(plans, n_best, each_token)
            if fault is not None:
                raise fault
            if len(plans) < size:
                return

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the source ids of each line, none where it is blank.

        Raises:
            ShapeshiftError: a line has so many characters that it must exceed the limit; the
                subword model would need much memory to say so.
        """
        encoded = [ids for ids in self._ids(lines) if ids is not None]
        if len(encoded) < len(lines):
            raise self._too_long(None)
        return encoded

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        # A blank line may still have ids, depending on how the subword model normalises.
        texts = ["" if line.isspace() else line.removesuffix("\n") for line in lines]
        return self.subwords.encode_source(texts, joined=self._joined)

    def _ids(self, lines: Sequence[str | None]) -> list[list[int] | None]:
        """Return the source ids of each line, None where it is too long to be encoded or kept."""
        texts = [None if line is None or self._is_huge(line) else line for line in lines]
        encoded = iter(self._encode([text for text in texts if text is not None]))
        return [None if text is None else next(encoded) for text in texts]

    def _read(
        self, lines: Iterator[str], size: int, number: int, name: str | Path
    ) -> tuple[list[tuple[int | None, Pieces]], ShapeshiftError | None]:
        """Read and encode the next `size` lines, starting at this line number; return the subwords
        and the pieces of each. Fewer lines mean the end of the text, or an error in the line after
        them."""
        texts: list[str | None] = []  # None: too long to be kept
        fault: ShapeshiftError | None = None
        skips = self.runner.config.on_long == "skip"
        try:
            for line in islice(lines, size):
                if not is_text(line):
                    problem = f"not UTF-8 text: {line[:100]!r}"
                    raise ShapeshiftError(problem, path=name, line=number + len(texts))
                texts.append(None if skips and self._is_huge(line) else line)
        except ShapeshiftError as error:
            fault = error
        plans: list[tuple[int | None, Pieces]] = []
        for text, ids in zip(texts, self._ids(texts), strict=True):
            try:
                pieces = [] if text is None else self._pieces(text, ids)
            except ShapeshiftError as error:
                return plans, ShapeshiftError(str(error), path=name, line=number + len(plans))
            plans.append((None if ids is None else len(ids), pieces))
        return plans, fault

    def _is_huge(self, line: str) -> bool:
        """Return whether a line has more characters than `limit` subwords can have, not counting
        white space between words. A run of unknown characters is one subword, and counts fully
        here."""
        most = MAX_CHARACTERS * self.limit
        return len(line) > most and len(" ".join(line.split())) > most

    def _too_long(self, num_subwords: int | None) -> ShapeshiftError:
        limit, config = self.limit, self.runner.config
        why = "the model has no positions for more"
        if limit == config.most_source_subwords:
            why = "decoding.max_source_length, which may be raised"
        expected = f"{num_subwords or 0:,} subwords, expected at most {limit:,}"
        if num_subwords is None:
            expected = f"over {MAX_CHARACTERS * limit:,} characters, expected {limit:,} subwords"
        return ShapeshiftError(
            f"{expected} ({why}); set decoding.on_long=split,"
            " which cuts such lines, or skip, which leaves them empty (`shapeshift translate"
            " --on-long`)"
        )

    def _count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of subwords of each text; limit + 1 for one that is too long to
        encode."""
        chunks = (texts[start : start + _COUNTED] for start in range(0, len(texts), _COUNTED))
        encoded = (ids for chunk in chunks for ids in self._ids(chunk))
        return [self.limit + 1 if ids is None else len(ids) for ids in encoded]

    def _pieces(self, line: str, ids: list[int] | None) -> Pieces:
        """Split, skip or refuse a line that is too long, whose `ids` may be None."""
        limit, on_long = self.limit, self.runner.config.on_long
        if ids is not None and len(ids) <= limit:
            return [(ids, "")]
        if on_long == "skip":
            return []
        if on_long == "error":
            raise self._too_long(None if ids is None else len(ids))
        pieces = split_text(line.removesuffix("\n"), limit, self._count, joined=self._joined)
        texts, joiners = zip(*pieces, strict=True)
        return [*zip(self._encode(texts), joiners, strict=True)]

    def _answer(
        self, plans: list[tuple[int | None, Pieces]], n_best: int, each_token: bool
    ) -> Iterator[TranslatedLine]:
        sources = [ids for _, pieces in plans for ids, _ in pieces]
        found = self.runner.search(sources, n_best)
        pairs = [
            (ids, hypothesis.tokens)
            for ids, hypotheses in zip(sources, found, strict=True)
            for hypothesis in hypotheses
            if ids
        ]
        scores = iter(self.runner.score(*zip(*pairs, strict=True)) if each_token and pairs else [])
        nothing = Translation("", 0.0, 0.0, tokens=[] if each_token else None)
        candidates = (
            [self._translation(ids, each, next(scores, None)) for each in hypotheses if ids]
            for ids, hypotheses in zip(sources, found, strict=True)
        )
        for num_subwords, pieces in plans:
            parts = [each or [nothing] for each in islice(candidates, len(pieces))]
            joined = _join(parts or [[nothing]], [joiner for _, joiner in pieces])
            fits = num_subwords is not None and num_subwords <= self.limit
            exceeded = None if fits else self.limit
            yield TranslatedLine(joined, num_subwords, exceeded, len(pieces))

    def _translation(
        self, source: list[int], hypothesis: Hypothesis, log_probs: list[float] | None
    ) -> Translation:
        text, tokens = "", None
        if hypothesis.tokens:
            text = self._detokenize(self.subwords.decode_target(hypothesis.tokens))
        if log_probs is not None:
            pieces = self.subwords.target_pieces([*hypothesis.tokens, EOS])
            tokens = [*zip(pieces, log_probs, strict=True)]
        return Translation(
            text.replace("\n", " "),
            hypothesis.log_prob,
            hypothesis.score,
            at_limit=hypothesis.length >= self.runner.length_limit(len(source)),
            tokens=tokens,
        )


def _join(parts: list[list[Translation]], joiners: list[str]) -> list[Translation]:
    """Return the candidates of a line from those of its pieces."""
    candidates = []
    for rank in range(max(map(len, parts))):
        # A piece with fewer candidates than another repeats its last one.
        first, *others = chosen = [part[min(rank, len(part) - 1)] for part in parts]
        text, tokens = first.text, first.tokens
        for joiner, part in zip(joiners, others, strict=False):
            # An empty translation adds no space.
            text += joiner * bool(joiner.strip() or (text and part.text)) + part.text
            tokens = None if tokens is None else tokens + (part.tokens or [])
        candidates.append(
            Translation(
                text,
                sum(part.log_prob for part in chosen),
                sum(part.score for part in chosen),
                at_limit=any(part.at_limit for part in chosen),
                tokens=tokens,
            )
        )
    return candidates
