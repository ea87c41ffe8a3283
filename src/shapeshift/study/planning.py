"""Plans the runs that a paper's studies need, reports their progress, and writes the studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import shapeshift
from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError
from shapeshift._system.files import free_bytes, make_directory, save, writing
from shapeshift._system.locks import locked
from shapeshift._system.own_modules import is_own
from shapeshift.config.files import PATHS, from_here
from shapeshift.data.corpora import fetch
from shapeshift.data.sources.download import Progress
from shapeshift.run.folder import prepared_directory
from shapeshift.run.measures import find_function, usable
from shapeshift.run.record import RunFolder
from shapeshift.run.requirements import missing_requirements
from shapeshift.study.document import FILE, StudyDocument
from shapeshift.study.grid import PlannedRun, distinct
from shapeshift.study.measured import Measured
from shapeshift.study.power import LEAST, plan_tests
from shapeshift.study.results import csv_text, tabulate
from shapeshift.study.study import Paper
from shapeshift.study.write import write_study
from shapeshift.training.estimate import count_parameters, disk_bytes
from shapeshift.training.precision import check_hardware

RUNS = "runs"
"""Folder of the runs: one for all papers and profiles, since a run is named by its settings."""

LOCK = ".lock"
"""Held while studies are written: of two commands the second finds what the first has computed."""


@dataclass(frozen=True)
class Plan:
    """The runs and studies of one command.

    Attributes:
        paper: with what is to be made: of the studies that were asked for, those that have runs.
        profile: of all runs.
        runs: that some study needs, grid after grid.
        seeds: of the runs to train; of all if there are none.
        overrides: settings for all runs.
        command: what was typed, for the records.
        label: of the results: the name of the grid, if it is not the studies' own.
    """

    paper: Paper
    profile: str
    runs: Sequence[PlannedRun]
    overrides: Sequence[str]
    seeds: Sequence[int] = ()
    command: str = ""
    label: str = ""

    def folder(self, directory: Path) -> Path:
        """Return the folder in which studies are written."""
        return directory / "-".join(filter(None, (self.profile, self.label))) / self.paper.name

    def check_folder(self, directory: Path) -> None:
        """Raise a `ShapeshiftError` if a study with numbers is there already that was made with
        other settings or from another study: it would be replaced."""
        wanted = self.paper.source(directory), _listed(self.overrides)
        for name in self.paper.studies:
            path = self.folder(directory) / name
            if not (path / FILE).is_file():
                continue
            document = StudyDocument.load(path / FILE)
            made = document.citation, _listed(document.settings)
            if made != wanted and not document.is_empty:
                raise ShapeshiftError(
                    f"was made from {' with '.join(made)}, not from {' with '.join(wanted)}; name"
                    " another --directory, or remove this folder, and finished runs stay",
                    path=path,
                )

    def open_folder(self, directory: Path) -> Path:
        """Create the folder of the studies if needed, and return it.

        Raises:
            ShapeshiftError: it cannot be made; or see `check_folder`.
        """
        folder = self.folder(directory)
        with writing(folder):
            make_directory(folder)
        self.check_folder(directory)
        return folder

    @property
    def untested(self) -> str:
        """Return a note on how many claims the profile cannot test; empty if it can test all."""
        every = [
            each
            for study in self.paper.studies.values()
            for each in plan_tests(study.spec.claims, study.grid, self.profile)
        ]
        num_untested = sum(not each.is_made for each in every)
        if not num_untested:
            return ""
        note = (
            f"profile {self.profile} tests {len(every) - num_untested} of {len(every)} claims;"
            " the others are shown as not tested in this profile"
        )
        if all(each.claim.effect is None for each in every):
            return note
        return (
            f"{note} (its runs would not find an effect as large as the paper's with a power of"
            f" {LEAST:g}; reproduce --list --claims shows the power)"
        )

    @cached_property
    def to_train(self) -> list[PlannedRun]:
        """The runs that have to be run, with the measures that can be taken here."""
        studies = [study for study in self.paper.studies.values() if study.spec.trained]
        return [
            replace(planned, measures=tuple(usable(planned.measures)[0]))
            for planned in self.runs
            if not self.seeds or planned.seed in self.seeds
            if any(study.needs(planned) for study in studies)
        ]

    def unfinished(self, directory: Path) -> list[PlannedRun]:
        """Return the runs that are not finished."""
        return [
            planned
            for planned in self.to_train
            if RunFolder(directory / RUNS / planned.key).missing(planned.measures, planned.config)
        ]

    def progress(self, directory: Path) -> dict[str, tuple[int, int]]:
        """Return study → how many of its runs are finished, and how many it needs: none where
        prepared data suffice."""
        unfinished = {(planned.grid, planned.key) for planned in self.unfinished(directory)}
        found = {}
        for name, study in self.paper.studies.items():
            needed = {
                (x.grid, x.key) for x in self.to_train if study.spec.trained and study.needs(x)
            }
            found[name] = len(needed - unfinished), len(needed)
        return found


def plan_studies(
    paper: Paper,
    profile: str,
    overrides: Sequence[str] = (),
    seeds: Sequence[int] = (),
    command: str = "",
    label: str = "",
) -> Plan:
    """Resolve the runs that the studies need; studies without runs are left out.

    Args:
        paper: from `catalogue.find_studies`.
        profile: a profile of its grids.
        overrides: settings for all runs, such as `data.corpus.root=PATH`.
        seeds: only train runs with these; by default all of the grid's. The studies are made from
            all runs that are finished.
        command: what was typed, for the records.
        label: of the results, see `Plan`.

    Raises:
        ShapeshiftError: missing modules of the user's own, an unknown profile and wrong
            settings, all in one error; nothing to run; or settings that leave an axis open, see
            `Study.check`.
    """
    studies = paper.studies
    every: list[PlannedRun] = []
    problems = _missing_modules(paper)
    for grid in paper.grids.values():
        try:
            every += grid.runs(profile, overrides)
        except ShapeshiftError as error:
            problems.append(str(error))
    if problems:
        raise ShapeshiftError("; ".join(dict.fromkeys(problems)))
    needed = [
        planned for planned in every if any(study.needs(planned) for study in studies.values())
    ]
    if not needed:
        raise ShapeshiftError(
            f"no run of profile {profile} is left for {paper.name}:{','.join(studies)}; look at"
            " `only` of the study, and at `exclude` and the settings of its axes in the grid"
        )
    known = {planned.seed for planned in needed}
    if unknown := set(seeds) - known:
        lacking, there = (", ".join(map(str, sorted(seeds))) for seeds in (unknown, known))
        raise ShapeshiftError(
            f"no run of {paper.name}:{','.join(studies)} has the seed {lacking}; they have {there}"
        )
    chosen = {name: study for name, study in studies.items() if any(map(study.needs, needed))}
    for study in chosen.values():
        study.check([*filter(study.needs, needed)])
    return Plan(replace(paper, studies=chosen), profile, needed, overrides, seeds, command, label)


def _missing_modules(paper: Paper) -> list[str]:
    """Return an error for each of the user's own measures and analyses that cannot be imported."""
    named = [(x, "measure", y.path) for y in paper.grids.values() for x in y.config.measures]
    named += [(x, "analysis", y.path) for y in paper.studies.values() for x in y.spec.analyses]
    problems = []
    for name, what, path in named:
        try:
            if is_own(name) and not name.startswith(f"{shapeshift.__name__}."):
                find_function(name, what, path)
        except ShapeshiftError as error:
            problems.append(str(error))
    return problems


def get_ready(
    runs: Sequence[PlannedRun],
    directory: Path,
    prepared_root: Path,
    on_progress: Progress | None = None,
    *,
    hardware: bool = True,
) -> None:
    """Check the requirements of all runs before any begins, and download their text.

    Args:
        runs: the runs.
        directory: of all results.
        prepared_root: see `run.train.train`.
        on_progress: of the text that is fetched.
        hardware: whether they run on this machine.

    Raises:
        ShapeshiftError: requirements are missing, all in one error; the disk has too little
            room for the runs; or some text cannot be downloaded.
    """
    lines, needed = list[str](), 0
    configs = {planned.key: planned.config for planned in runs}
    for config in configs.values():
        lines += missing_requirements(config, prepared_directory(config.data, prepared_root))
        try:
            if hardware:
                check_hardware(config.training)
        except ShapeshiftError as error:
            lines.append(str(error))
    if lines:
        raise ShapeshiftError("; ".join(dict.fromkeys(lines)))
    for key, config in configs.items():
        vocab_size = config.data.subwords.vocab_size
        num_parameters = count_parameters(config.model, config.position.scheme, vocab_size)
        needed += disk_bytes(config.training, num_parameters, directory / RUNS / key / "run")
    if needed > (free := free_bytes(directory)):
        raise ShapeshiftError(
            f"the {len(configs)} runs that are left need {needed:,} bytes on the disk, and {free:,}"
            " are free; make room, name another --directory, or choose fewer runs",
            path=directory,
        )
    corpora = [config.data.corpus for config in configs.values()]
    for corpus in {each.model_dump_json(): each for each in corpora}.values():
        fetch(corpus, on_progress)


def write_studies(
    plan: Plan, directory: Path, prepared_root: Path
) -> tuple[list[StudyDocument], dict[str, ShapeshiftError]]:
    """Write the studies from what is finished; return them, and the error of each that failed.

    Studies are written to `DIRECTORY/PROFILE/PAPER/STUDY` (PROFILE-GRID with another grid), each
    with all results of its runs as `results.csv`.

    Args:
        plan: the studies and their runs.
        directory: of all results.
        prepared_root: see `run.train.train`.

    Raises:
        ShapeshiftError: see `Plan.open_folder`.
    """
    folder = plan.open_folder(directory)
    written: list[StudyDocument] = []
    failures: dict[str, ShapeshiftError] = {}
    with locked(directory / LOCK, wait=True):
        plan.check_folder(directory)  # again: another command may just have written a study
        for name, study in plan.paper.studies.items():
            measured = Measured([*filter(study.needs, plan.runs)], directory / RUNS, prepared_root)
            try:
                content, runs = study.build(measured), measured.runs()
                done = [x for x in runs if not study.spec.trained or measured.is_finished(x)]
                document = StudyDocument(
                    paper=plan.paper.name,
                    study=name,
                    title=study.spec.title,
                    citation=plan.paper.source(directory),
                    profile=plan.profile,
                    command=plan.command,
                    version=__version__,
                    time=datetime.now(UTC).isoformat(timespec="seconds"),
                    tables=tuple(
                        table.with_overrides(plan.overrides)
                        for table in content.tables
                        if table.rows
                    ),
                    findings=tuple(content.findings),
                    configs={planned.key: planned.config.to_yaml() for planned in done},
                    unfinished=tuple(x.name for x in distinct(x for x in runs if x not in done)),
                    settings=tuple(plan.overrides),
                    seeds=tuple(sorted({x.seed for x in done})) if study.spec.trained else (),
                    label=plan.label,
                    paper_title=plan.paper.title if plan.paper.is_own else "",
                )
                if document.is_empty and (folder / name / FILE).is_file():
                    there = StudyDocument.load(folder / name / FILE)
                    if not there.is_empty:
                        raise ShapeshiftError(
                            "none of its runs is finished with all measures, so what is there is"
                            " kept; finish a run, or remove the folder to replace it",
                            path=folder / name,
                        )
                if study.spec.trained:
                    save(folder / name / "results.csv", csv_text(tabulate(measured.results)))
                write_study(document, folder / name)
                written.append(document)
            except ShapeshiftError as error:
                failures[name] = error
    return written, failures


def _listed(settings: Sequence[str]) -> str:
    """Return settings on one line, sorted, with paths in normal form."""
    pairs = [setting.partition("=") for setting in settings]
    listed = [
        f"{key}={from_here(value) if tuple(key.split('.')) in PATHS else value}"
        for key, _, value in pairs
    ]
    return " ".join(sorted(listed)) or "the grid's own settings"
