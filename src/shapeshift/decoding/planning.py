"""Encoding lines of text for translation; lines that are too long are split or skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from shapeshift.data.subwords import Subwords, split_parts
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.splitting import split_text
from shapeshift.errors import ShapeshiftError


@dataclass(frozen=True, slots=True)
class Plan:
    """The encoded form of one line.

    Attributes:
        num_subwords: of the line.
        pieces: their ids: one piece, none where the line is skipped, several where it is split.
        joiners: the text after the translation of each piece except the last.
    """

    num_subwords: int
    pieces: list[list[int]]
    joiners: list[str]


class Planner:
    """Reads and encodes lines; applies `on_long` to those that are too long.

    Args:
        subwords: the subword models.
        config: `max_source_length` and `on_long` of it are read.
        positions_for: the most subwords of a source that the model has positions for.
        joined: each line is parts joined by ` <sep> `.

    Attributes:
        limit: the most subwords of a line: `config.max_source_length`, or `positions_for` if that
            is less; None if neither is a limit.
    """

    def __init__(
        self,
        subwords: Subwords,
        config: DecodingConfig,
        positions_for: int | None = None,
        *,
        joined: bool = False,
    ):
        self.subwords = subwords
        self.joined = joined
        self._on_long = config.on_long
        self.limit = config.max_source_length
        self._why = "max_source_length"
        if positions_for is not None and (self.limit is None or positions_for < self.limit):
            self.limit, self._why = positions_for, "the model has no positions for more"

    def read(
        self, lines: Iterator[str], size: int, number: int, name: str | Path
    ) -> tuple[list[Plan], ShapeshiftError | None]:
        """Plan the next `size` lines.

        Args:
            lines: source text; no more than `size` are taken.
            size: fewer plans mean the end of the text, or an error.
            number: of the first of them, counted from 1.
            name: of the text in errors.

        Returns:
            The plans, and the error of the line that follows them, if any: the error that reading
            it raised, or one that says that it is too long if `on_long` is `error`.
        """
        texts: list[str] = []
        fault: ShapeshiftError | None = None
        try:
            for line in islice(lines, size):
                texts.append(line)
        except ShapeshiftError as error:
            fault = error
        plans: list[Plan] = []
        for line, ids in zip(texts, self.encode(texts), strict=True):
            try:
                plans.append(self._plan(line, ids))
            except ShapeshiftError as error:
                return plans, ShapeshiftError(str(error), path=name, line=number + len(plans))
        return plans, fault

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the source ids of each line, none where it is blank."""
        # A blank line may still have ids, depending on how the subword model normalises.
        return self._encode(["" if line.isspace() else line.removesuffix("\n") for line in lines])

    def encode_target(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the target ids of each line."""
        texts = [line.removesuffix("\n") for line in lines]
        if self.joined:
            return self.subwords.encode_target_parts([split_parts(text) for text in texts])
        return self.subwords.encode_target(texts)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self.joined:
            return self.subwords.encode_source_parts([split_parts(text) for text in texts])
        return self.subwords.encode_source(texts)

    def _plan(self, line: str, ids: list[int]) -> Plan:
        limit = self.limit
        if limit is None or len(ids) <= limit:
            return Plan(len(ids), [ids], [])
        if self._on_long == "skip":
            return Plan(len(ids), [], [])
        if self._on_long == "error":
            raise ShapeshiftError(
                f"{len(ids):,} subwords, expected at most {limit:,} ({self._why}); cut such lines"
                " with --on-long split or leave them empty with --on-long skip (decoding.on_long)"
            )
        pieces = split_text(
            line.removesuffix("\n"),
            limit,
            lambda texts: [len(ids) for ids in self._encode(texts)],
            joined=self.joined,
        )
        ids_of_pieces = self._encode([piece.text for piece in pieces])
        return Plan(len(ids), ids_of_pieces, [piece.joiner for piece in pieces[:-1]])
