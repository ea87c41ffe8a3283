"""A study: the runs that it needs, its tables and figures, and its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from os.path import relpath
from pathlib import Path
from tempfile import TemporaryDirectory

from shapeshift._system.errors import ShapeshiftError
from shapeshift.evaluation.scores import FEW_SEGMENTS
from shapeshift.run.measures import find_function
from shapeshift.study.by_length import bounds_label, length_bounds, ranges, values_by_length
from shapeshift.study.check import check_results
from shapeshift.study.document import Content, Finding
from shapeshift.study.grid import Grid, PlannedRun
from shapeshift.study.measured import Bounds, Measured, fits
from shapeshift.study.power import PlannedTest, plan_tests
from shapeshift.study.spec import ALL, ClaimSpec, StudySpec, Where
from shapeshift.study.tables import TableBuilder, curves, published_table
from shapeshift.study.verdicts import Part, findings

OWN = "studies"
"""Stands for a paper's name where the study is a study of one's own."""


@dataclass(frozen=True)
class Study:
    """One table or figure of a paper, or several that are made from the same runs.

    Attributes:
        name: of its tables that have no other.
        spec: what is made.
        grid: of its runs.
        path: of its file, or of the grid that `on` gives it.
    """

    name: str
    spec: StudySpec
    grid: Grid
    path: Path

    def needs(self, planned: PlannedRun) -> bool:
        """Return whether the study uses this run."""
        return planned.grid == self.grid.name and fits(planned.axes, planned.seed, self.spec.only)

    def on(self, grid: Grid) -> Study:
        """Return the study with another grid's runs, without the notes on its own grid's profiles.

        Raises:
            ShapeshiftError: the grid has other axes than the study's own.
        """
        needed, there = self.grid.config.axes, grid.config.axes
        if needed.keys() != there.keys():
            raise ShapeshiftError(
                f"has the axes {', '.join(there)}, but what is made of {self.grid.name} needs"
                f" {', '.join(sorted(needed))}",
                path=grid.path,
            )
        tables = tuple(x.model_copy(update={"profile_notes": {}}) for x in self.spec.tables)
        spec = self.spec.model_copy(update={"tables": tables})
        return replace(self, spec=spec, grid=grid, path=grid.path)

    def check(self, runs: Sequence[PlannedRun]) -> None:
        """Compute what needs no trained run, to find errors early.

        Raises:
            ShapeshiftError: runs lack what is measured on them; or settings take different models
                for seeds of one.
        """
        check_results(self.spec, self.grid, runs, self.path)
        # Nothing is prepared: what prepared data suffice for is made of no run that is finished.
        spec = self.spec.model_copy(update={"analyses": (), "trained": True})
        with TemporaryDirectory() as empty:
            try:
                replace(self, spec=spec).build(Measured(runs, Path(empty), Path(empty)))
            except ShapeshiftError as error:
                if error.path is not None:
                    raise
                raise ShapeshiftError(str(error), path=self.path) from error

    def build(self, measured: Measured) -> Content:
        """Make tables, figures and findings from the finished runs."""
        spec, content, published = self.spec, Content(), []
        for table in spec.tables:
            builder = TableBuilder(table, measured, trained=spec.trained)
            content.add(Content([builder.table(table.name or self.name)]))
            if table.published:
                published.append(published_table(table, table.published, content.tables[-1]))
        for figure in spec.by_length:
            content.add(values_by_length(measured, figure, figure.name or self.name))
        if spec.curves:
            content.add(curves(measured, spec.curves, self.name))
        for each in spec.analyses:
            content.add(find_function(each, "analysis")(measured))
        content.add(Content(published))
        content.findings += judge_claims(
            plan_tests(spec.claims, self.grid, measured.profile), measured, content.values
        )
        return content


@dataclass(frozen=True)
class Paper:
    """A paper and its studies, or those of them that are asked for, in the paper's order.

    Attributes:
        name: of the folder of its studies, such as `shape`.
        title: for people.
        citation: authors, year, title, venue.
        studies: name → study.
        path: of the file of a study, or the folder of a paper, of one's own, or of the
            configuration that is compared.
        aliases: another name → the study that holds this table or figure too.
    """

    name: str
    title: str
    citation: str
    studies: dict[str, Study]
    path: Path | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    def source(self, directory: Path) -> str:
        """Return where the studies are from: the citation, and the file as it is seen from the
        folder of results, whatever the current folder is."""
        if self.path is None:
            return self.citation
        shipped = self.path.is_relative_to(str(files("shapeshift")))
        file = self.path.stem if shipped else relpath(self.path.resolve(), directory.resolve())
        return f"{self.citation}, {file}"

    @property
    def is_own(self) -> bool:
        """Whether it is the folder of a paper of one's own."""
        return self.path is not None and self.path.is_dir()

    @property
    def grids(self) -> dict[str, Grid]:
        """The grids of all studies by their names."""
        return {study.grid.name: study.grid for study in self.studies.values()}

    @property
    def profiles(self) -> set[str]:
        """The profiles of all grids."""
        return {profile for grid in self.grids.values() for profile in grid.config.profiles}

    def with_profile(self, profile: str) -> Paper:
        """Return the paper with those studies whose grid has a profile, or with all if none has."""
        known = {name: x for name, x in self.studies.items() if profile in x.grid.config.profiles}
        return replace(self, studies=known or self.studies)


def judge_claims(
    claims: Sequence[PlannedTest], measured: Measured, values: Mapping[str, Mapping[int, float]]
) -> list[Finding]:
    """Return a finding for each claim of a study; `values` are those of its analyses: name → seed →
    value."""

    def parts(test: PlannedTest) -> dict[str, Part]:
        if test.claim.metric in values:
            return {test.claim.metric: Part(values[test.claim.metric])}
        if test.claim.rule == "threshold":
            return _measured(test.claim, measured, [*values])
        return _compared(test.claim, measured, is_tested=test.is_made)

    return findings([(test, parts(test)) for test in claims])


def _compared(claim: ClaimSpec, measured: Measured, *, is_tested: bool) -> dict[str, Part]:
    """Compare runs on their stored translations."""
    parts = {}
    for label, test, against in _pairs(claim, measured, is_tested=is_tested):
        for side in (test, against):
            measured.require_one_model(side, _remedy(claim))
        if claim.minus:
            label += f", {claim.metric} lost from {claim.split} to {claim.minus}"
        runs = measured.finished(test)
        try:
            every = _lengths(claim, measured.runs(test)[0])
        except ShapeshiftError as error:
            if is_tested:
                raise
            parts[label] = Part({}, reason=str(error))
            continue
        if runs:
            every = [x for x in every if not x or not measured.has_few(runs[0], claim.split, x)]
        if not every:
            parts[label] = Part({}, reason=f"fewer than {FEW_SEGMENTS} sentences of these lengths")
        for bounds in every:
            at = label + (f", source lengths {bounds_label(bounds)}" if bounds else "")
            sides = test, against, claim.split
            parts[at] = measured.compare(
                *sides, metric=claim.metric, lengths=bounds, minus=claim.minus
            )
    return parts


def _lengths(claim: ClaimSpec, planned: PlannedRun) -> list[Bounds | None]:
    """Return the source lengths that a claim's comparison is about; `None` for all lengths."""
    if claim.lengths is None:
        return [None]
    if claim.lengths == "each":
        return [*ranges(planned.config.evaluation.length_buckets)]
    found = length_bounds(planned.config, claim.lengths)
    if found is None:
        raise ShapeshiftError(
            f"the claim {claim.claim!r} is about lengths {claim.lengths} those in training, which"
            f" the run {planned.name} does not limit, or on both sides; test other runs, or leave"
            " lengths out"
        )
    return [found]


def _pairs(
    claim: ClaimSpec, measured: Measured, *, is_tested: bool
) -> Iterator[tuple[str, Where, Where]]:
    """Yield label, tested settings and baseline settings of each comparison that has runs in this
    profile."""
    found = []
    for place, (test, against) in product(_combinations(claim, measured), claim.comparisons):
        sides = place | test, place | test | against
        if sides[0] == sides[1] or not measured.runs(sides[0]):
            continue
        if is_tested:
            measured.require_baseline(sides[1], f"the claim {claim.claim!r}")
        if measured.runs(sides[1]):
            found.append(((place, test, against), sides))
    count = Counter(_label(*given) for given, _ in found)
    for given, sides in found:
        label = _label(*given)
        yield label if count[label] == 1 else _label(*given, named=True), *sides


def _label(place: Where, test: Where, against: Where, *, named: bool = False) -> str:
    """Return a label such as `small shape against ape`, with the names of the axes if it would be
    ambiguous."""
    where, *names = (
        " ".join(f"{axis}={x}" if named else x for axis, x in each.items())
        for each in (place, test, against)
    )
    return f"{where} {names[0] or 'other'} against {names[1]}".lstrip()


def _measured(claim: ClaimSpec, measured: Measured, of_analyses: Sequence[str]) -> dict[str, Part]:
    """Return a result that the runs measured; analyses returned the values `of_analyses`."""
    parts, reason = {}, "not measured"
    is_declared = any(x.name == claim.metric for x in measured.declared)
    if of_analyses and not is_declared:
        reason += f"; the analyses return {', '.join(of_analyses)}"
    for place in _combinations(claim, measured):
        settings = place | claim.test
        values = measured.values(claim.metric, settings, claim.split)
        if is_declared or values:  # of another, an analysis may not have made the values yet
            measured.require_one_model(settings, _remedy(claim))
        label = " ".join([claim.metric, *place.values()])
        parts[label] = Part(values, reason="" if values else reason)
    return parts


def _remedy(claim: ClaimSpec) -> str:
    return f"add it to each or test of the claim {claim.claim!r}"


def _combinations(claim: ClaimSpec, measured: Measured) -> list[Where]:
    settings = [
        measured.settings(axis) if wanted == (ALL,) else wanted
        for axis, wanted in claim.each.items()
    ]
    return [dict(zip(claim.each, values, strict=True)) for values in product(*settings)]
