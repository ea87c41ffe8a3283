"""The tokens that every preset scores higher than APE: Kiyono et al. (2021), Figure 4, for all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from shapeshift.analysis import token_gain
from shapeshift.analysis.token_gain import TokenGain
from shapeshift.experiments.grid import Cell
from shapeshift.papers.beyond.judge import LATER
from shapeshift.papers.beyond.master import BASELINE, DATASETS, max_length, relative
from shapeshift.papers.claims import NOT_MEASURED, all_of, finding
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape import figure4
from shapeshift.papers.shape.figure4 import CLEARLY, RARE, share
from shapeshift.papers.study import Study

_EXTRAPOLATE, _INTERPOLATE = "extrapolate", "interpolate"

Gains = Mapping[str, Mapping[int, TokenGain]]
"""Position → seed → where it scores tokens higher than the baseline."""

Share = Callable[[TokenGain], float | None]


def build(study: Study) -> Content:
    """Make a table of shares, a heat map for each position, and judge who is ahead where."""
    content = Content()
    longest = max_length(study)
    gains = {}
    for dataset in (_EXTRAPOLATE, _INTERPOLATE):
        trained = longest if dataset == _EXTRAPOLATE else None
        pairs = _pairs(study, dataset)
        gains[dataset] = {
            name: {seed: _compared(study, pair, trained) for seed, pair in own.items()}
            for name, own in pairs.items()
        }
        content.tables.append(_shares(dataset, gains[dataset], pairs, trained))
        drawn = {name: total for name, own in gains[dataset].items() if (total := _sum(own))}
        name = f"tokens-{dataset}"
        content.tables.append(_cells(name, dataset, drawn, pairs))
        if drawn:
            content.figures.append(_figure(name, dataset, drawn, trained))
    content.findings.extend(_findings(study, gains, longest))
    return content


def _pairs(study: Study, dataset: str) -> dict[str, dict[int, tuple[Cell, Cell]]]:
    """Return position → seed → the runs of the baseline and of the position, where both are
    finished; positions without such a seed are there too."""
    found: dict[str, dict[int, Cell]] = {
        cell.axes["position"]: {} for cell in study.cells(DATASETS, {"dataset": dataset})
    }
    for cell in study.finished(DATASETS, {"dataset": dataset}):
        found[cell.axes["position"]][cell.seed] = cell
    base = found.pop(BASELINE)
    return {
        name: {seed: (base[seed], own[seed]) for seed in sorted(base.keys() & own.keys())}
        for name, own in found.items()
    }


def _compared(study: Study, pair: tuple[Cell, Cell], trained: int | None) -> TokenGain:
    return figure4.compare(study, pair, figure4.position_edges(study, pair[0], trained))


def _sum(gains: Mapping[int, TokenGain]) -> TokenGain | None:
    return figure4.add_up([*gains.values()])


def _parts(trained: int | None) -> dict[str, Share]:
    """Return title → the share of some tokens."""
    found: dict[str, Share] = {"all": share}
    if trained is not None:
        seen = trained + 1  # at this position stands the </s> of the longest targets
        found["positions of training"] = lambda gain: share(gain, end=seen)
        found["unseen positions"] = lambda gain: share(gain, begin=seen)
    found[f"under {RARE:,} occurrences"] = lambda gain: share(gain, below=RARE)
    found["others"] = lambda gain: share(gain, below=-RARE)
    return found


def _shares(
    dataset: str,
    gains: Gains,
    pairs: Mapping[str, Mapping[int, tuple[Cell, Cell]]],
    trained: int | None,
) -> DocumentTable:
    parts = _parts(trained)
    rows = []
    for name, own in gains.items():
        total = _sum(own)
        cells = [cell for pair in pairs[name].values() for cell in pair]
        values = (None if total is None else part(total) for part in parts.values())
        rows.append((*words(name), *(number(value, ".1f", cells) for value in values)))
    return DocumentTable(
        name=f"shares-{dataset}",
        title=f"Tokens that a position scores higher than {BASELINE} (%), {dataset.capitalize()}",
        header=("position", *parts),
        rows=tuple(rows),
        notes=(
            "validation tokens, those of all seeds together; a tie counts one half",
            "position: target tokens before; occurrences: in the training data",
        ),
    )


def _cells(
    name: str,
    dataset: str,
    totals: Mapping[str, TokenGain],
    pairs: Mapping[str, Mapping[int, tuple[Cell, Cell]]],
) -> DocumentTable:
    rows: list[tuple[Entry, ...]] = []
    for position, total in totals.items():
        cells = [cell for pair in pairs[position].values() for cell in pair]
        rows += ((*words(position), *row) for row in figure4.rows_of(total, cells))
    return DocumentTable(
        name=name,
        title=f"The same by frequency and by position in the decoder, {dataset.capitalize()}",
        header=("system", *figure4.HEADER),
        rows=tuple(rows),
    )


def _figure(name: str, dataset: str, totals: Mapping[str, TokenGain], trained: int | None) -> Drawn:
    told = ", ".join(f"{position} {total.overall():.1f}" for position, total in totals.items())
    about = DocumentFigure(
        name=name,
        title=f"Tokens that a position scores higher than {BASELINE}, {dataset.capitalize()}",
        table=name,
        alt=f"Heat maps of the percentage of validation tokens of {dataset} that a position scores"
        f" higher than {BASELINE}, by position in the decoder and by occurrences in training. Over"
        f" all tokens: {told}.",
    )
    return Drawn(about, token_gain.plot_panels([*totals.values()], trained))


def _findings(study: Study, gains: Mapping[str, Gains], longest: int) -> list[Finding]:
    invariant = relative(study, DATASETS)
    outside, rare = f"after more than {longest} others", f"with fewer than {RARE:,} occurrences"
    return [
        _finding(
            study,
            "On Extrapolate kinds that are shift invariant score more than half of the tokens"
            f" higher than {BASELINE} at positions that training has not shown.",
            figure4.judge_over_half,
            [_parts(longest)["unseen positions"]],
            outside,
            {name: own for name, own in gains[_EXTRAPOLATE].items() if name in invariant},
            "Figure 4a, of SHAPE: ahead, most of all beyond the training lengths",
        ),
        _finding(
            study,
            "On Interpolate kinds that are shift invariant score more than half of the tokens"
            f" higher than {BASELINE}.",
            figure4.judge_over_half,
            [share],
            "all",
            {name: own for name, own in gains[_INTERPOLATE].items() if name in invariant},
            "Figure 4b, of SHAPE: consistently ahead",
        ),
        _finding(
            study,
            "On Interpolate the lead of kinds that are shift invariant is larger among rare"
            " tokens.",
            figure4.judge_rare,
            [*_parts(None).values()][1:],
            f"{rare}, and others",
            {name: own for name, own in gains[_INTERPOLATE].items() if name in invariant},
            "Figure 4b, of SHAPE: the difference is largest for infrequent tokens",
        ),
    ]


def _finding(
    study: Study,
    claim: str,
    judge: Callable[..., Verdict],
    parts: Collection[Share],
    which: str,
    gains: Gains,
    paper: str,
) -> Finding:
    """Judge a claim of several systems by the shares of each.

    Args:
        study, claim, paper: see `claims.finding`.
        judge: takes the shares of each of `parts`, of all seeds.
        parts: of the tokens.
        which: tokens these are, for people.
        gains: of the systems of the claim.
    """
    shares = {
        name: [[part(gain) for gain in own.values()] for part in parts]
        for name, own in gains.items()
    }
    told = [
        f"{name} {' and '.join(map(_percent, found))}" for name, found in shares.items() if found[0]
    ]
    return finding(
        study,
        claim=claim,
        verdict=all_of(judge(*found) for found in shares.values()),
        measured=f"of the tokens {which}: {'; '.join(told)}. No test: {CLEARLY:g} point or more in"
        " every seed"
        if told
        else NOT_MEASURED,
        paper=paper,
        elsewhere=LATER.get(study.scale, ""),
    )


def _percent(shares: Collection[float | None]) -> str:
    return "/".join("too few" if each is None else f"{each:.1f}" for each in shares) + " %"


ITEM = Item(
    "Tokens that every preset scores higher than APE",
    (DATASETS,),
    build,
    axes={"dataset": (_EXTRAPOLATE, _INTERPOLATE)},
)
