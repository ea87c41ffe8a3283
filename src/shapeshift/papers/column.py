"""Columns of BLEU in which every field is tested against one baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import LEVEL, MARK, Comparison
from shapeshift.papers.document import Entry
from shapeshift.papers.entries import missing, number
from shapeshift.papers.verdicts import holm


@dataclass(frozen=True)
class Column:
    """The systems of a column against their baseline.

    Attributes:
        comparisons: from `Study.comparisons`, of one group; empty where too little is finished.
    """

    comparisons: Sequence[Comparison]

    @cached_property
    def significant(self) -> set[str]:
        """The systems that differ from the baseline, all tests of the column taken together."""
        differ = {each.system for each in self.comparisons if each.difference}  # 0 and 0 do not
        return holm({each.system: each.p_value for each in self.comparisons}) & differ

    def mark(self, system: str) -> str:
        """Return what stands behind a system's score: `MARK` if it differs, else nothing."""
        return MARK * (system in self.significant)

    def entry(self, system: str, cells: Sequence[Cell]) -> Entry:
        """Return a system's mean over the seeds that it shares with the baseline, marked where it
        differs; a dash where it has none.

        Args:
            system: or the baseline.
            cells: its finished runs.
        """
        own = [each for each in self.comparisons if system in (each.system, each.baseline)]
        if not own:
            return missing()
        each = max(own, key=lambda one: len(one.p_values))  # the baseline is in all
        score = each.score if each.system == system else each.baseline_score
        found = number(score, cells=[cell for cell in cells if cell.seed in each.p_values])
        return found.model_copy(update={"text": found.text + self.mark(system)})


def note(baseline: str) -> str:
    """Return what the mark means, to stand below a table."""
    return (
        f"{MARK} differs from {baseline}: p < {LEVEL} over all tests of the column together (Holm),"
        " paired bootstrap for each seed, twice the mean"
    )
