"""Write docs/results.md from the runs in docs/results/, which hold everything but weights.

    shapeshift reproduce shape
    python docs/generate_results.py --pack reproduced    # keeps the finished studies' runs
    python docs/generate_results.py                      # makes every study again, then the page
    python docs/generate_results.py --unpack reproduced  # `shapeshift reproduce` goes on from there

An archive, PROFILE.PAPER.tar.xz, holds the settings, logs, translations and measured results of
each run, and what was computed from these and from weights. Of runs on text that is not ours, it
has no translations and references, only what was computed from them, and nothing for tables that
count the text. From it `shapeshift reproduce PAPER --profile PROFILE --no-run` makes every other
table, figure and verdict again, and this script the page, byte for byte, the figures, and the
spread of results by which power is computed (`shapeshift.study.power`).
"""

from __future__ import annotations

import argparse
import io
import math
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from PIL import Image

from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.run.machine import Machine
from shapeshift.run.record import MeasureRecord, RunFolder
from shapeshift.study import power
from shapeshift.study.catalogue import PAPERS, find_paper
from shapeshift.study.document import DocumentTable, Entry, StudyDocument
from shapeshift.study.planning import RUNS, plan_studies, write_studies
from shapeshift.study.report.collect import PROFILES, collect
from shapeshift.study.study import Paper

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
PAGE = DOCS / "results.md"
KEPT = (
    "measures/*",
    "run/results/*",
    "run/config.yaml",
    "run/log.jsonl",
    "run/machine.json",
    "run/SHA256SUMS",
)
"""Of a run's folder: all but weights, subword models and what the processes printed."""

NO_TEXT = ("*.detokenize.txt", "*.files.txt")
"""Files in `run/results` that hold neither references nor translations."""

TABLES = {"shape": "table2", "shaw": "table2", "nhk": "table2", "beyond": "master"}
"""Paper → the study whose first table the page shows, next to the paper's."""

ON_TEXT = "small"
"""The profile of real text, whose table the page shows as well."""

FIGURES = {
    ("shape", "figure3-extrapolate"): "what SHAPE and RPE gain over APE, by source length",
    ("shaw", "table2"): "BLEU by clipping distance",
    ("nhk", "figure3"): "BLEU by source length of models trained on a slice of the lengths",
    ("beyond", "lengths"): "BLEU by source length, beyond the lengths of training",
    ("beyond", "learning"): "how shift invariance is learned, for APE and SHAPE with several K",
}
"""Paper, figure → what there is to see."""

Documents = dict[tuple[str, str], list[StudyDocument]]
"""Paper, profile → its studies."""


def pack(directory: Path) -> None:
    """Keep the runs of the studies that `shapeshift reproduce` has written to a folder."""
    runs = directory / RUNS
    configs = defaultdict[tuple[str, str], dict[str, str]](dict)
    for study in chain.from_iterable(paper.studies for paper in collect(directory)):
        document = study.document
        others = [x for x in document.settings if not x.startswith("data.corpus.root=")]
        if document.paper in PAPERS and not document.label and not others:
            configs[document.profile, document.paper] |= document.configs
    computed = [*(runs / "computed").glob("*.json")]
    for (profile, paper), own in configs.items():
        files = chain.from_iterable(_kept(runs / key, config) for key, config in own.items())
        with tarfile.open(RESULTS / f"{profile}.{paper}.tar.xz", "w:xz", preset=9) as archive:
            for path in sorted([*files, *computed]):
                entry = tarfile.TarInfo(path.relative_to(directory).as_posix())
                content = path.read_bytes()
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _kept(run: Path, config: str) -> Iterator[Path]:
    """Yield the files of a run's folder that are kept."""
    is_ours = yaml.safe_load(config)["data"]["corpus"]["corpus"] == "grammar"
    for path in chain.from_iterable(run.glob(pattern) for pattern in KEPT):
        if is_ours or path.suffix != ".txt" or any(map(path.match, NO_TEXT)):
            yield path


def unpack(directory: Path) -> None:
    """Write the runs that were kept into a folder."""
    for path in sorted(RESULTS.glob("*.tar.xz")):
        with tarfile.open(path) as archive:
            archive.extractall(directory, filter="data")


def make(directory: Path) -> Documents:
    """Make the studies of the runs that were kept, in the folder that they were written into."""
    found: Documents = {}
    for path in sorted(RESULTS.glob("*.tar.xz")):
        profile, name, *_ = path.name.split(".")
        plan = plan_studies(find_paper(name).with_profile(profile), profile)
        found[name, profile], failures = write_studies(plan, directory, directory / "prepared")
        for study, error in failures.items():
            print(f"{name}:{study} in {profile} is left out: {error}", file=sys.stderr)
    return found


def spreads(documents: Documents) -> Iterator[power.Spread]:
    """Yield how much the results of each grid vary."""
    for (name, profile), own in documents.items():
        studies = find_paper(name).studies
        parts = defaultdict[tuple[str, str], list[power.Spread]](list)
        for document in own:
            study = studies[document.study]
            for claim, finding in zip(study.spec.claims, document.findings, strict=True):
                if finding.spread:
                    place = study.grid.name, power.quantity(claim)
                    parts[place].append(power.Spread(profile, *place, *finding.spread))
        yield from filter(None, map(power.pooled, parts.values()))


def page(documents: Documents, directory: Path) -> str:
    """Return the page, from studies and the folder of their runs."""
    parts = [(RESULTS / "introduction.md").read_text(encoding="utf-8")]
    for name in PAPERS:
        paper = find_paper(name)
        own = {x: documents[name, x] for x in PROFILES if (name, x) in documents}
        if not own:
            continue
        parts.append(f"## {paper.title}\n\n{paper.citation[0].upper()}{paper.citation[1:]}.\n")
        first = min(reversed([*own.values()]), key=partial(_num_missing, paper))
        on_text = [x for profile, x in own.items() if profile == ON_TEXT and x is not first]
        parts += _tables(paper, [*first, *chain.from_iterable(on_text)])
        for (owner, figure), caption in FIGURES.items():
            if owner == name and (profile := _profile_of_figure(documents, name, figure)):
                parts.append(f"![{figure}](results/{name}-{figure}.png)\n")
                parts.append(f"*{figure}, {profile}: {caption}*\n")
        findings = [
            (x.study, x.profile, y.claim, y.verdict, y.measured, _shown(y.power), y.paper)
            for each in own.values()
            for x in each
            for y in x.findings
            if "seed" in y.measured  # of how many; the others have no finished run
        ]
        if findings:
            header = ("study", "profile", "claim", "verdict", "measured", "power", "in the paper")
            parts.append(_markdown(header, findings) + "\n")
    parts += ["## What the runs can find\n", _powers() + "\n"]
    parts += ["## What the runs took\n", _costs(documents, directory) + "\n"]
    return "\n".join(parts)


def _shown(value: float | None, digits: int = 2) -> str:
    return NO_VALUE if value is None else f"{value:.{digits}f}"


def _num_missing(paper: Paper, own: Sequence[StudyDocument]) -> float:
    """Return how many runs the study of the paper's table lacks."""
    return min((len(x.unfinished) for x in own if x.study == TABLES[paper.name]), default=math.inf)


def _tables(paper: Paper, own: Sequence[StudyDocument]) -> Iterator[str]:
    """Yield our tables of a study, and the paper's."""
    found = [x for x in own if x.study == TABLES[paper.name]]
    ours = [(x, x.tables[0]) for x in found if _measured(x.tables[0])]
    theirs = [(found[0], table) for table in found[0].tables if table.origin == "paper"]
    for document, table in (*ours, *theirs):
        where = "in the paper" if table.origin == "paper" else f"{document.profile}, ours"
        yield f"**{table.title} ({paper.name}:{document.study}, {where})**\n"
        rows = [[entry.text for entry in row] for row in _measured(table)]
        yield _markdown(table.header, rows) + "\n"
        if table.notes:
            yield "; ".join(table.notes) + "\n"


def _measured(table: DocumentTable) -> list[tuple[Entry, ...]]:
    return [row for row in table.rows if any(entry.value is not None for entry in row)]


def _powers() -> str:
    """Return the table of the power of each claim of the papers in each profile that has runs."""
    profiles = [x for x in PROFILES if any(each.profile == x for each in power.read_spreads())]
    rows = []
    for name in PAPERS:
        for study in find_paper(name).studies.values():
            planned = {
                profile: power.plan_tests(study.spec.claims, study.grid, profile)
                for profile in profiles
                if profile in study.grid.config.profiles
            }
            for number, claim in enumerate(study.spec.claims):
                sizes = []
                for profile in profiles:
                    test = planned[profile][number] if profile in planned else None
                    found = NO_VALUE
                    if test and test.spread:
                        least = power.detectable(claim, test.spread, test.num_seeds)
                        found = f"{_shown(least)}, {_shown(test.power)}"
                    sizes.append(found)
                is_close = claim.rule in ("equivalent", "no worse")
                effect = f"within {claim.margin:g}" if is_close else f"{claim.effect or NO_VALUE}"
                rows.append((f"{name}:{study.name}", claim.claim, effect, *sizes))
    header = ("study", "claim", "in the paper", *profiles)
    about = (
        "For each claim: the difference in the paper, and for each profile the smallest difference"
        " (of `within`: the smallest margin) that the grid's seeds find with a power of 0.8, and"
        " the power for a difference as large as the paper's, after Holm's correction.\n\n"
    )
    return about + _markdown(header, [row for row in rows if {*row[3:]} != {NO_VALUE}])


def _costs(documents: Documents, directory: Path) -> str:
    """Return the table of what the runs of each study's grid took, each run once."""
    rows, seen = [], set[str]()
    for (name, profile), own in documents.items():
        grids = defaultdict[str, set[str]](set)
        for document in own:
            grids[find_paper(name).studies[document.study].grid.name].update(document.configs)
        for grid, keys in grids.items():
            new = keys - seen
            seen |= keys
            records, hours = list[tuple[MeasureRecord, Machine]](), 0.0
            for folder in (RunFolder(directory / RUNS / key) for key in new):
                machine = Machine.read(folder.run)
                if machine is None:
                    continue  # of a study of prepared data alone
                for path in folder.measures.glob("*.json"):
                    with suppress(ValueError):  # values of examples
                        record = MeasureRecord.model_validate_json(path.read_bytes())
                        records.append((record, machine))
                        hours += record.elapsed_s * machine.threads / 3600
            named = (
                {machine.precision for _, machine in records},
                {machine.hardware for _, machine in records},
                {record.version for record, _ in records},
                {record.time[:10] for record, _ in records},
            )
            listed = ("; ".join(sorted(each)) for each in named)
            if records:
                rows.append((grid, profile, str(len(new)), f"{hours:.1f}", *listed))
    header = ("grid", "profile", "runs", "core-hours", "precision", "hardware", "version", "days")
    about = (
        "Each run once, with all its measures, on machines that also did other work: on an idle"
        " machine, runs take less.\n\n"
    )
    return about + _markdown(header, rows)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_row(header), "|---" * len(header) + "|", *map(_row, rows)])


def _row(fields: Sequence[str]) -> str:
    texts = (text.replace("|", r"\|").replace("\n", " ") for text in fields)
    return f"| {' | '.join(texts)} |"


def _keep_figures(documents: Documents, directory: Path) -> None:
    for name, figure in FIGURES:
        if profile := _profile_of_figure(documents, name, figure):
            [file] = (directory / profile / name).glob(f"*/{figure}.png")
            target = RESULTS / f"{name}-{figure}.png"
            Image.open(file).quantize(128).save(target, optimize=True)  # a third of the bytes


def _profile_of_figure(documents: Documents, name: str, figure: str) -> str | None:
    """Return the profile whose figure is shown, None if there is none."""
    for profile in ("medium", "tiny"):
        tables = (table for each in documents.get((name, profile), ()) for table in each.tables)
        if any(table.name == figure and table.figure for table in tables):
            return profile
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pack", type=Path, help="keep the runs of this folder")
    parser.add_argument("--unpack", type=Path, help="write the kept runs into this folder")
    arguments = parser.parse_args()
    if arguments.unpack:
        unpack(arguments.unpack)
        return
    if arguments.pack:
        pack(arguments.pack)
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        unpack(directory)
        documents = make(directory)
        power.write_spreads(spreads(documents))
        power.read_spreads.cache_clear()
        documents = make(directory)  # with verdicts by these spreads
        _keep_figures(documents, directory)
        PAGE.write_text(page(documents, directory), encoding="utf-8")


if __name__ == "__main__":
    main()
