"""Which claims the runs of a profile can test: the power of each test, known before any run.

The power of a test is the probability that it finds an effect that is there. It depends on the
size of the effect, here that of the paper, on the number of seeds, and on how much results vary
over seeds and sentences, which earlier runs of the profile show (`studies/spread.csv`). Only their
spread counts, not what they found. A claim of a paper is tested where the power is 0.8 or more, and
in the profile `paper`, whose runs are the paper's own.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, ndtri, stdtrit

from shapeshift.study.grid import Grid
from shapeshift.study.significance import LEVEL, MIN_SEEDS
from shapeshift.study.spec import ALL, ClaimSpec

PAPER_PROFILE = "paper"
"""The profile whose runs have the paper's settings."""

LEAST = 0.8
"""The power below which a claim is not tested."""

SPREADS = Path(str(files("shapeshift"))) / "studies" / "spread.csv"

_SHARES = (np.arange(2000) + 0.5) / 2000


@dataclass(frozen=True)
class Spread:
    """How much the results of the claims of a grid's studies vary.

    Attributes:
        profile, grid: of the runs.
        quantity: what the claims compare, see `quantity`.
        seeds: standard deviation over seeds, of differences paired by seed.
        sentences: standard error over sentences of the mean over seeds.
        degrees: degrees of freedom of `seeds`: seeds − 1 for each comparison.
    """

    profile: str
    grid: str
    quantity: str
    seeds: float
    sentences: float
    degrees: int


def quantity(claim: ClaimSpec) -> str:
    """Return what a claim is about, whose results vary in one way."""
    lost, lengths = " lost" * bool(claim.minus), f", {claim.lengths} lengths" * bool(claim.lengths)
    return f"{claim.metric}{lost}{lengths}"


def pooled(spreads: Iterable[Spread]) -> Spread | None:
    """Return several spreads as one: variances are averaged, weighted by degrees of freedom."""
    found = [*spreads]
    if not found:
        return None
    weights = [each.degrees for each in found]
    seeds, sentences = (
        math.sqrt(np.average([getattr(each, name) ** 2 for each in found], weights=weights))
        for name in ("seeds", "sentences")
    )
    return replace(found[0], seeds=seeds, sentences=sentences, degrees=sum(weights))


@cache
def read_spreads(path: Path = SPREADS) -> tuple[Spread, ...]:
    """Return the spreads that earlier runs have shown."""
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return tuple(
        Spread(profile, grid, of, float(seeds), float(sentences), int(degrees))
        for profile, grid, of, seeds, sentences, degrees in rows
    )


def write_spreads(spreads: Iterable[Spread], path: Path = SPREADS) -> None:
    """Write the file that `read_spreads` reads."""
    ordered = sorted(spreads, key=lambda each: (each.profile, each.grid, each.quantity))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([each.name for each in fields(Spread)])
        for each in ordered:
            *names, seeds, sentences, degrees = astuple(each)
            writer.writerow([*names, f"{seeds:.4g}", f"{sentences:.4g}", degrees])


def find_spread(profile: str, grid: str, of: str) -> Spread | None:
    """Return the spread of a quantity in the runs of a grid; where none is known, that of the
    profile's other grids."""
    every = [x for x in read_spreads() if x.profile == profile and x.quantity == of]
    return pooled([x for x in every if x.grid == grid] or every)


def power(
    claim: ClaimSpec,
    spread: Spread,
    num_seeds: int,
    *,
    effect: float | None = None,
    num_parts: int = 1,
    level: float = LEVEL,
) -> float:
    """Return the probability that runs support a claim whose differences are as large as an effect.

    Args:
        claim: its rule and margin decide what has to be shown; see `verdicts`.
        spread: of the results.
        num_seeds: of the runs.
        effect: by default the claim's; the distance to the limit of `threshold`.
        num_parts: for each of which it has to be shown; they count as independent.
        level: of significance.
    """
    if num_seeds < MIN_SEEDS:
        return 0.0
    effect = effect if effect is not None else claim.effect or 0.0
    freedom, root = num_seeds - 1, math.sqrt(num_seeds)
    # The deviation that is measured has a chi distribution around the true one.
    measured = spread.seeds * np.sqrt(chdtri(freedom, _SHARES) / freedom)
    half = np.hypot(
        stdtrit(freedom, level / 2) * measured / root, ndtri(level / 2) * spread.sentences
    )
    error = max(math.hypot(spread.seeds / root, spread.sentences), 1e-12)
    low, high = (0.0, math.inf) if claim.rule == "threshold" else claim.limits
    shown = ndtr((high - half - effect) / error) - ndtr((low + half - effect) / error)
    return float(np.clip(shown, 0, 1).mean()) ** num_parts


def detectable(claim: ClaimSpec, spread: Spread, num_seeds: int) -> float | None:
    """Return the smallest effect, or for `equivalent` and `no worse` the smallest margin, that a
    claim's test finds with a power of 0.8; None if there are too few seeds for a test."""
    if num_seeds < MIN_SEEDS:
        return None

    def lacking(size: float) -> float:
        if not claim.has_margin:
            return power(claim, spread, num_seeds, effect=size) - LEAST
        wider = claim.model_copy(update={"margin": size})
        return power(wider, spread, num_seeds, effect=0.0) - LEAST

    largest = 100 * math.hypot(spread.seeds, spread.sentences) + 1e-9
    return float(brentq(lacking, 0.0, largest))


@dataclass(frozen=True)
class PlannedTest:
    """Whether a claim is tested in a profile.

    Attributes:
        claim: what is claimed.
        is_made: whether it is tested.
        spread: of earlier results; None if there are none.
        num_seeds: of the grid in this profile.
        power: of the test; None if `spread` or the paper's effect is unknown.
    """

    claim: ClaimSpec
    is_made: bool
    spread: Spread | None = None
    num_seeds: int = 0
    power: float | None = None


def plan_tests(claims: Sequence[ClaimSpec], grid: Grid, profile: str) -> list[PlannedTest]:
    """Return for each claim of a study whether it is tested, and with what power.

    A claim that names its profiles is tested there. A claim with the paper's effect is tested in
    the profile `paper`, and in others if the power is 0.8 or more, also after Holm's correction
    over the study's claims that have it. Where the spread of its results is not known, it is tested
    if the paper gives an effect.
    """
    found = [_test(claim, grid, profile) for claim in claims]
    num_tested = sum(each.is_made for each in found) or 1
    return [_test(claim, grid, profile, LEVEL / num_tested) for claim in claims]


def _test(claim: ClaimSpec, grid: Grid, profile: str, level: float = LEVEL) -> PlannedTest:
    if claim.effect is None:
        return PlannedTest(claim, not claim.profiles or profile in claim.profiles)
    own = grid.config.profiles[profile]
    num_seeds = len(own.seeds or grid.config.seeds or (0,))
    spread = find_spread(profile, grid.name, quantity(claim))
    has_size = bool(claim.effect) or claim.has_margin
    found = None
    if spread and has_size:
        axes = grid.config.axes
        each = (len(axes[x]) if y == (ALL,) else len(y) for x, y in claim.each.items())
        num_parts = max(1, len(claim.comparisons)) * math.prod(each)  # at most
        found = power(claim, spread, num_seeds, num_parts=num_parts, level=level)
    is_made = has_size if found is None else found >= LEAST
    return PlannedTest(claim, profile == PAPER_PROFILE or is_made, spread, num_seeds, found)
