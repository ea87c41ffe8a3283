"""Finished runs in seconds: the papers' own grids, of the smallest models on the grammar."""

from dataclasses import replace
from functools import cache

import pytest

from shapeshift.run import costs
from shapeshift.run.measures import Result, keep_lines, mean_of
from shapeshift.run.record import MeasureRecord, RunFolder
from shapeshift.study.catalogue import find_grid, find_paper
from shapeshift.study.document import StudyDocument
from shapeshift.study.grid import with_training
from shapeshift.study.launchers import InProcess
from shapeshift.study.measured import Measured
from shapeshift.study.power import PlannedTest
from shapeshift.study.runner import run_all
from shapeshift.study.spec import ClaimSpec
from shapeshift.study.study import judge_claims

MINUSCULE = (
    "data.corpus.num_train=240",
    "data.corpus.num_valid=20",
    "data.corpus.num_test=30",
    "data.corpus.max_words=20",
    "data.subwords.vocab_size=200",
    "model.dim=16",
    "model.num_heads=2",
    "model.ff_dim=16",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "training.max_updates=4",
    "training.schedule.warmup_updates=3",
    "training.log_every=2",
    "training.checkpoint_every=2",
    "training.average_checkpoints=2",
    "training.keep_checkpoints=2",
    "training.precision=fp32",
    "training.device=cpu",
    "decoding.beam=1",
    "decoding.max_length_a=0",
    "decoding.max_length_b=12",
)
"""Settings for all runs of a grid in profile tiny."""

SPEEDS = {"ape": 1.0, "rpe": 0.75, "shape": 0.97}

EXTRA = {
    # Every slice has some pairs.
    "nhk:figure3": ("data.subwords.vocab_size=600", "data.corpus.num_train=600"),
    "nhk:table6": ("model.encoder_layers=6", "model.decoder_layers=6"),  # an axis
}
"""Grid → further settings."""


def given_speed(run, data):
    """Stands in for the measure `speed`, which takes time and never gives the same number."""
    value = SPEEDS.get(run.config.position.name, 0.5)
    return [Result(metric="speed", value=value, split="train")]


REFERENCES = [f"the cat number {n} sat on the red mat" for n in range(20)]


def result(metric, value, **rest):
    return Result(metric=metric, value=value, **rest)


BOTH = ("test", "valid")
MEANS = tuple(result("BLEU", 1.0, split=mean_of(split)) for split in BOTH)


def record_measure(folder, config, measure, found=(), checkpoint="c"):
    """Write the record of a measure into the folder of a run."""
    record = MeasureRecord(
        measure=measure, version="0", command="x", time="now", elapsed_s=0.0, checkpoint=checkpoint,
        text="t", results=tuple(found),
    )  # fmt: skip
    RunFolder(folder).write_record(record, config)


def put(root, planned, found=MEANS, *, hypotheses=None, checkpoint="c", measures=(), texts=BOTH):
    """Write by hand the records of a run's measures, and its translations of some texts."""
    folder, measures = root / planned.key, measures or ("train", *planned.measures)
    for measure in measures:
        own = found if measure == measures[-1] else ()
        record_measure(folder, planned.config, measure, own, checkpoint)
    if hypotheses is not None:
        run = RunFolder(folder).run
        for split in texts:
            keep_lines(run, split, "average", hypotheses)
            keep_lines(run, split, "references", REFERENCES)


def judged(measured, **claim):
    """The finding on a claim that is tested."""
    tested = PlannedTest(ClaimSpec(claim="It is.", **claim), True)
    [finding] = judge_claims([tested], measured, {})
    return finding


def document(tables, title="t"):
    """Return a study's document with these tables."""
    names = ("paper", "study", "citation", "profile", "command", "version", "time")
    return StudyDocument(title=title, tables=tuple(tables), **dict.fromkeys(names, "x"))


def texts(table):
    return [[entry.text for entry in row] for row in table.rows]


def table(content, name):
    return next(table for table in content.tables if table.name == name)


def column(table, title):
    """The fields of a column, by what the row's words say."""
    place = table.header.index(title)
    return {" ".join(e.text for e in row[:2] if e.value is None): row[place] for row in table.rows}


@cache
def planned_runs(grid, profile):
    """The runs of a grid of the papers, resolved once for all tests."""
    return find_grid(grid).runs(profile)


def find_study(name):
    paper, _, study = name.partition(":")
    return find_paper(paper).studies[study]


def is_done(planned):
    """Which runs are trained: enough for every kind of table and figure, with gaps."""
    axes, first = planned.axes, planned.seed == 1
    match planned.grid:
        case "shape:table2":
            return first or (axes["recipe"] == "interpolate" and axes["position"] != "rpe")
        case "shape:offsets":
            return first and axes["K"] in ("10", "40", "500")
        case "nhk:table2":
            return (axes["position"], planned.seed) in [
                ("original-qkv", 1), ("original-qkv", 2), ("original-qkv-cross-pe", 1)
            ]  # fmt: skip
        case "nhk:figure3":
            place = axes["lengths"], axes["position"]
            return first and axes["lengths"] != "middle" and place != ("short", "original-qkv")
        case "beyond:master":
            return first and axes["position"] in ("ape", "alibi")
        case "beyond:learning":
            return first and axes["position"] in ("ape", "shape-40")
        case "beyond:places":
            places = ("none", "self"), ("alibi", "self"), ("sinusoidal", "cross")
            return first and tuple(axes.values()) in places
    return first and planned.grid.startswith("shaw:")


@pytest.fixture(scope="session")
def studies(tmp_path_factory):
    """Grid → its study of two seeds; those of its runs that `is_done` are trained and measured."""
    root = tmp_path_factory.mktemp("papers")  # which all studies share as users' do

    @cache
    def make(name):
        grid = find_grid(name)
        given = {x.partition("=")[0]: x for x in (*MINUSCULE, *EXTRA.get(name, ()))}
        if "model" in grid.config.axes:  # else its settings would be one run
            del given["model.ff_dim"]
        first = (grid.config.profiles["tiny"].seeds or grid.config.seeds or (1,))[0]
        runs = [
            replace(planned, seed=seed, config=with_training(planned.config, seed=seed))
            for seed in (1, 2)  # the grid may have one alone
            for planned in grid.runs("tiny", [*given.values()])
            if planned.seed == first
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(costs, "measure_speed", given_speed)
            patch.setattr(costs, "DECODED_LENGTH", 6)
            own = {"prepared_root": root / "prepared", "poll_s": 0.0, "command": "pytest"}
            assert run_all(filter(is_done, runs), root / "runs", InProcess(), **own) == []
        return Measured(runs, root / "runs", root / "prepared")

    return make


@pytest.fixture(scope="session")
def build(studies):
    """Returns the content of a study, made of what is finished: `build("shape:table2")`."""

    def make(name):
        made = find_study(name)
        return made.build(studies(made.grid.name))

    return cache(make)
