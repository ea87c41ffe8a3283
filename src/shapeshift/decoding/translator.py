"""From lines of text to lines of translation, in batches, in order, as the input comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from shapeshift.data.subwords import EOS, Subwords
from shapeshift.decoding.running import Runner
from shapeshift.decoding.search import Hypothesis
from shapeshift.decoding.splitting import split_text
from shapeshift.errors import ShapeshiftError, is_text


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
        num_subwords: of the source.
        exceeded: the limit of subwords that the line was over, and so was split or skipped, if it
            was. (It has one piece if white space alone made it too long.)
        num_pieces: of the line: 1, more if it was split, 0 if it was skipped.
    """

    candidates: list[Translation]
    num_subwords: int
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
        limit: the most subwords of a line: `max_source_length` of the runner's settings, or what
            the model has positions for if that is less; None if neither is a limit.
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
        limits = (runner.config.max_source_length, runner.capacity.source_subwords)
        self.limit = min((limit for limit in limits if limit is not None), default=None)

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
        """Return the source ids of each line, none where it is blank."""
        # A blank line may still have ids, depending on how the subword model normalises.
        texts = ["" if line.isspace() else line.removesuffix("\n") for line in lines]
        return self.subwords.encode_source(texts, joined=self._joined)

    def _read(
        self, lines: Iterator[str], size: int, number: int, name: str | Path
    ) -> tuple[list[tuple[int, Pieces]], ShapeshiftError | None]:
        """Take and encode the next `size` lines, of which the first has this number: return the
        subwords and the pieces of each. Fewer mean the end of the text, or an error: that of the
        line after them."""
        texts: list[str] = []
        fault: ShapeshiftError | None = None
        try:
            for line in islice(lines, size):
                if not is_text(line):
                    problem = f"not UTF-8 text: {line[:100]!r}"
                    raise ShapeshiftError(problem, path=name, line=number + len(texts))
                texts.append(line)
        except ShapeshiftError as error:
            fault = error
        plans: list[tuple[int, Pieces]] = []
        for line, ids in zip(texts, self.encode(texts), strict=True):
            try:
                plans.append((len(ids), self._pieces(line, ids)))
            except ShapeshiftError as error:
                return plans, ShapeshiftError(str(error), path=name, line=number + len(plans))
        return plans, fault

    def _pieces(self, line: str, ids: list[int]) -> Pieces:
        """Split, skip or refuse a line that is too long."""
        limit, on_long = self.limit, self.runner.config.on_long
        if limit is None or len(ids) <= limit:
            return [(ids, "")]
        if on_long == "skip":
            return []
        if on_long == "error":
            own = limit == self.runner.config.max_source_length
            why = "decoding.max_source_length" if own else "the model has no positions for more"
            raise ShapeshiftError(
                f"{len(ids):,} subwords, expected at most {limit:,} ({why}); cut such lines with"
                " --on-long split or leave them empty with --on-long skip (decoding.on_long)"
            )
        pieces = split_text(
            line.removesuffix("\n"),
            limit,
            lambda texts: [len(ids) for ids in self.encode(texts)],
            joined=self._joined,
        )
        texts, joiners = zip(*pieces, strict=True)
        return [*zip(self.encode(texts), joiners, strict=True)]

    def _answer(
        self, plans: list[tuple[int, Pieces]], n_best: int, each_token: bool
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
            fits = self.limit is None or num_subwords <= self.limit
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
