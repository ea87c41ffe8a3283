"""Plans, how far they are, and what is written of them; the runs are records made by hand."""

import csv
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.filesize import decimal
from sacrebleu.tokenizers import tokenizer_ja_mecab

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli import reproduce as command
from shapeshift.cli import run_plan
from shapeshift.run.measures import Result, mean_of
from shapeshift.study import catalogue, planning, power
from shapeshift.study.compare import comparison
from shapeshift.study.document import Content, DocumentTable, StudyDocument, number
from shapeshift.study.grid import Grid, distinct
from shapeshift.study.launchers import InProcess, Slurm
from shapeshift.study.runner import run_all
from shapeshift.study.spec import StudySpec
from shapeshift.study.study import OWN, Paper, Study
from shapeshift.training import estimate

from .conftest import record_measure

GRIDS = {
    "one": {
        "axes": {"position": {"ape": ["position=ape"], "shape": ["position=shape"]}},
        "profiles": {"tiny": {"overrides": ["model.size=tiny"]}, "paper": {"seeds": [1]}},
        "seeds": [1, 2],
        "measures": ["score-test"],
    },
    "two": {"axes": {"position": {"rpe": ["position=rpe"]}}, "profiles": {"tiny": {}}},
}
TABLE = {"title": "t", "rows": ["position"], "columns": {"BLEU": {"split": "test"}}}


def study(title, grid, document=None, **more):
    """Return a study with a table, of one of `GRIDS` or of another document."""
    spec = {"title": title, "grid": grid, "tables": [TABLE], **more}
    found = Grid(Path(f"{grid}.yaml"), document or GRIDS[grid])
    return Study("t", StudySpec.model_validate(spec), found, found.path)


def paper(two=None, **studies):
    shipped = {
        "table1": study("Table 1", "one"),
        "table2": study("Table 2", "two", two),
        "sizes": study("Sizes", "two", two, trained=False),
    }
    return Paper("toy", "Toy", "nobody", shipped | studies)


PAPER = paper()


def plan(*names, profile="tiny", paper=PAPER, **options):
    asked = replace(paper, studies={name: paper.studies[name] for name in names or paper.studies})
    return planning.plan_studies(asked, profile, command="typed", **options)


class Recording:
    """A launcher whose jobs are done at once; those of some settings fail."""

    num_slots, max_threads = 1, None

    def __init__(self, failing=()):
        self.started, self.failing = [], failing

    def start(self, order, slot):
        config = order.config
        name, seed = config.position.name, config.training.seed
        self.started.append((name, seed, order.command))
        fails = name in self.failing
        bleu = Result(metric="BLEU", value=seed, split=mean_of("test"))
        for measure in () if fails else ("train", *order.measures):
            record_measure(order.folder, config, measure, [bleu] if measure != "train" else [])
        return SimpleNamespace(poll=lambda: int(fails), output=lambda: ["it went wrong"])


def run(made, folder, launcher=None):
    launcher = launcher or Recording()
    report = run_all(made.to_train, folder / planning.RUNS, launcher, command=made.command)
    return launcher, report


def write(made, folder):
    documents, failures = planning.write_studies(made, folder, folder / "prepared")
    assert not failures
    return documents


def saved(folder):
    return StudyDocument.load(folder / "study.json")


def test_a_plan_has_the_cells_of_its_items_and_trains_each_grid_once(tmp_path):
    made = plan()
    assert [planned.grid for planned in made.runs] == ["one"] * 4 + ["two"]
    assert made.to_train == made.runs
    assert plan("sizes").to_train == []
    launcher, report = run(made, tmp_path)
    names = [("ape", 1), ("ape", 2), ("shape", 1), ("shape", 2), ("rpe", 1)]
    assert launcher.started == [(*name, "typed") for name in names]
    assert report == []
    assert run(plan("table1"), tmp_path)[0].started == []


def test_overrides_reach_every_cell_and_seeds_choose():
    made = plan("table1", overrides=["training.max_updates=7"], seeds=[2])
    assert [planned.seed for planned in made.to_train] == [2, 2]
    assert [planned.seed for planned in made.runs] == [1, 2, 1, 2]  # tables have all
    assert {planned.config.training.max_updates for planned in made.runs} == {7}
    with pytest.raises(ShapeshiftError, match="toy:table1 has the seed 5, 6; they have 1, 2"):
        plan("table1", seeds=[1, 5, 6])
    with pytest.raises(ShapeshiftError, match="has no profile 'paper'"):
        plan("table2", profile="paper")
    with pytest.raises(ShapeshiftError, match="no run of profile tiny is left for toy:none; look"):
        plan("none", paper=paper(none=study("t", "one", only={"position": "gone"})))
    assert [*plan("table1", "table2", seeds=[2]).paper.studies] == ["table1", "table2"]


SIZES = {
    "axes": {
        "position": {"ape": ["position=ape"], "shape": ["position=shape"]},
        "size": {"tiny": ["model.size=tiny"], "small": ["model.size=small"]},
    },
    "measures": ["score-valid", "score-test", "speed"],
}
CLAIM = {"claim": "c", "test": {"position": "shape"}}
BETTER = {**CLAIM, "rule": "better", "against": {"position": "ape"}}
FAST = {**CLAIM, "rule": "threshold", "metric": "speed", "at_least": 1}
BY_LENGTH = {"title": "l", "lines": "position"}
PLOT = {"title": "p", "x": "position", "y": "BLEU"}


@pytest.mark.parametrize(
    ("opened", "remedy", "closed"),
    [
        ({"tables": [TABLE]}, "rows, across or only of the table 't'", [
            {"tables": [{**TABLE, "rows": ["position", "size"]}]},
            {"tables": [{**TABLE, "across": "size", "plot": PLOT}]},
            {"tables": [{**TABLE, "only": {"size": "tiny"}}]},
            {"tables": [{**TABLE, "columns": {"pairs": {"count": "kept"}}}]},
            {"only": {"size": ["tiny"]}, "tables": [TABLE]},
        ]),
        ({"tables": [{**TABLE, "rows": ["position", "size"], "plot": PLOT}]}, "across", []),
        ({"tables": [{**TABLE, "columns": {"BLEU": {"split": "each set"}}}]}, "across", [
            {"tables": [{**TABLE, "across": "size", "columns": {"": {"split": "each set"}}}]},
        ]),
        ({"claims": [BETTER]}, "each or test of the claim 'c'", [
            {"claims": [{**BETTER, "each": {"size": "*"}}]},
            {"claims": [{**BETTER, "test": {"position": "shape", "size": "tiny"}}]},
        ]),
        ({"claims": [FAST]}, "each or test of the claim 'c'", [
            {"claims": [{**FAST, "each": {"size": "*"}}]},
        ]),
        ({"by_length": [BY_LENGTH]}, "only of by_length 'l', or give it as panels", [
            {"by_length": [{**BY_LENGTH, "only": {"size": "tiny"}}]},
            {"by_length": [{**BY_LENGTH, "panels": "size"}]},
        ]),
    ],
)  # fmt: skip
def test_an_axis_that_is_left_open_is_named_before_any_run(opened, remedy, closed):
    def planned(given):
        rows = {**TABLE, "rows": ["position", "size"]}
        mine = study("t", "mine", SIZES, **{"tables": [rows], **given})
        return plan("mine", paper=paper(mine=mine), profile="full")

    with pytest.raises(ShapeshiftError, match=r"'size' is left open \(tiny, small\)") as error:
        planned(opened)
    assert remedy in str(error.value)
    for given in closed:
        assert planned(given).runs


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tables": [{**TABLE, "baseline": {"position": "ape"}}]}, "the table 't'"),
        ({"tables": [TABLE], "claims": [BETTER]}, "the claim 'c'"),
        ({"tables": [TABLE], "by_length": [{**BY_LENGTH, "gain_over": "ape"}]}, "by_length 'l'"),
    ],
)
def test_a_baseline_without_a_run_is_refused_before_any_run(given, named):
    def planned(**only):
        return plan("mine", paper=paper(mine=study("t", "one", **given, **only)))

    assert planned().runs
    told = f"{named}: its baseline .position = ape. has no run in the profile tiny; add it to the"
    with pytest.raises(ShapeshiftError, match=told):
        planned(only={"position": ["shape"]})


def test_each_file_of_a_dataset_of_the_hub_has_a_column_before_it_is_fetched(tmp_path):
    table = {**TABLE, "columns": {"": {"split": "each set"}}}
    corpus = f"data.corpus={{corpus: hub, repo: a/b, source: en, target: de, root: {tmp_path},"
    corpus += " test: [test, 'sacrebleu:wmt14/full']}"
    both = GRIDS["one"] | {"measures": ["score-valid", "score-test"]}
    own = paper(mine=study("t", "one", both, tables=[table]))
    [document] = write(plan("mine", paper=own, overrides=[corpus]), tmp_path)
    sets = ("valid", "test/test-test", "test/newstest2014", "average")
    assert document.tables[0].header == ("position", *sets)


def test_an_item_runs_and_shows_its_own_cells_alone(tmp_path):
    some = study("Some", "one", only={"position": ["shape"]})
    untrained = study("Sizes", "one", trained=False)
    made = plan("some", "untrained", paper=paper(some=some, untrained=untrained))
    launcher, _ = run(made, tmp_path)
    assert [started[:2] for started in launcher.started] == [("shape", 1), ("shape", 2)]
    shown = {x.study: [row[0].text for row in x.tables[0].rows] for x in write(made, tmp_path)}
    assert shown == {"some": ["shape"], "untrained": ["ape", "shape"]}
    assert made.progress(tmp_path) == {"some": (2, 2), "untrained": (0, 0)}


def test_results_with_other_settings_are_kept_apart_unless_they_are_empty(tmp_path):
    run(plan("table1"), tmp_path, Recording(failing=["ape", "shape"]))
    [empty] = write(plan("table1"), tmp_path)
    assert empty.is_empty
    other = plan("table1", overrides=["training.max_updates=7"])
    run(other, tmp_path)
    for _ in range(2):
        [one] = write(other, tmp_path)
    assert one.tables[0].overrides == ("training.max_updates=7",)
    with pytest.raises(ShapeshiftError, match=r"with training.max_updates=7, .* --directory"):
        write(plan("table1"), tmp_path)
    [labelled] = write(plan("table1", label="other-grid"), tmp_path)
    assert labelled.labelled_profile == "tiny-other-grid"
    assert saved(tmp_path / "tiny-other-grid/toy/table1") == labelled
    assert saved(tmp_path / "tiny/toy/table1") == one


def test_a_study_does_not_replace_another_whose_file_has_the_same_name(tmp_path):
    def measured(title, citation):
        made = Paper(OWN, title, citation, {"mine": study(title, "one")})
        return planning.plan_studies(made, "tiny")

    run(measured("A", "a/mine.yaml"), tmp_path)
    for title in ("A", "changed"):
        write(measured(title, "a/mine.yaml"), tmp_path)
    other = measured("changed", "b/mine.yaml")
    for act in (write, partial(run_plan.run_plan, prepared=tmp_path, dry_run=True)):
        with pytest.raises(ShapeshiftError, match=r"was made from a/mine.yaml .*name another"):
            act(other, tmp_path)


def test_a_study_that_another_command_writes_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    run(plan("table1"), tmp_path)
    other = plan("table1", overrides=["training.max_updates=7"])
    run(other, tmp_path)

    @contextmanager
    def locked_later(*arguments, **options):
        monkeypatch.undo()
        write(plan("table1"), tmp_path)  # while we wait for the lock
        yield

    monkeypatch.setattr(planning, "locked", locked_later)
    with pytest.raises(ShapeshiftError, match="name another --directory"):
        write(other, tmp_path)


def test_numbers_are_not_replaced_by_dashes(tmp_path):
    run(plan("table1"), tmp_path)
    [one] = write(plan("table1"), tmp_path)
    changed = study("Table 1", "one", GRIDS["one"] | {"base": {"training": {"max_updates": 7}}})
    made = plan("table1", paper=paper(table1=changed))
    _, failures = planning.write_studies(made, tmp_path, tmp_path / "prepared")
    assert "none of its runs is finished" in str(failures["table1"])
    assert saved(tmp_path / "tiny/toy/table1") == one
    run(made, tmp_path)
    assert write(made, tmp_path)[0].configs != one.configs


def test_what_is_missing_is_named_once_for_all_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "comet", None)

    def get_ready(*overrides, **options):
        found = catalogue.find_studies("shape:table2")
        runs = planning.plan_studies(found, "small", ["training.device=cuda", *overrides]).to_train
        assert len(runs) == 27
        planning.get_ready(runs, tmp_path, tmp_path, **options)

    with pytest.raises(ShapeshiftError, match=r"^train\.en: no such file") as error:
        get_ready("training.validate_metrics=[bleu,comet]")
    for problem in ("no such file", "this needs comet", "training.device=cuda"):
        assert str(error.value).count(problem) == 1
    for name in ("train", "valid", "test"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("x\n")
    get_ready(hardware=False)


def test_text_is_fetched_once_and_runs_that_will_not_fit_on_the_disk_are_not_begun(
    tmp_path, monkeypatch
):
    runs, fetched = plan("table1").to_train, []
    monkeypatch.setattr(planning, "fetch", lambda corpus, progress: fetched.append(corpus))
    planning.get_ready(runs, tmp_path, tmp_path)
    assert fetched == [runs[0].config.data.corpus]
    monkeypatch.setattr(planning, "free_bytes", lambda path: 0)
    with pytest.raises(ShapeshiftError, match=r"the 4 runs that are left need .* 0 are free"):
        planning.get_ready(runs, tmp_path, tmp_path)
    for planned in runs:  # what is there already needs no more room
        folder = tmp_path / planning.RUNS / planned.key / "run"
        folder.mkdir(parents=True)
        with (folder / "weights").open("wb") as file:
            file.truncate(10**9)
    planning.get_ready(runs, tmp_path, tmp_path)


def test_an_item_says_what_is_not_finished_and_has_all_measurements(tmp_path):
    _, report = run(plan("table1"), tmp_path, Recording(failing=["shape"]))
    assert [planned.name for planned, _ in report] == ["shape/1", "shape/2"]
    [one, unneeded] = write(plan("table1", "sizes"), tmp_path)
    assert saved(tmp_path / "tiny/toy/table1") == one
    assert one.unfinished == ("shape/1", "shape/2")
    assert len(one.configs) == 2
    assert one.command == "typed"
    assert [row[1].value for row in one.tables[0].rows] == [1.5, None]
    with (tmp_path / "tiny/toy/table1/results.csv").open(encoding="utf-8") as file:
        found = [(x["axis:position"], x["seed"], float(x["value"])) for x in csv.DictReader(file)]
    assert found == [("ape", "1", 1), ("ape", "2", 2)]
    assert unneeded.unfinished == ()
    assert not (tmp_path / "tiny/toy/sizes/results.csv").exists()


def broken_analysis(measured):
    raise ShapeshiftError("cannot be made")


def test_what_cannot_be_made_or_written_does_not_stop_the_others(tmp_path):
    run(plan(), tmp_path)
    analyses = [f"{broken_analysis.__module__}:broken_analysis"]
    made = plan(paper=paper(bad=study("Bad", "two", analyses=analyses)))
    folder = tmp_path / "tiny" / "toy"
    folder.mkdir(parents=True)
    (folder / "table1").touch()
    found, errors = planning.write_studies(made, tmp_path, tmp_path / "prepared")
    assert [one.study for one in found] == ["table2", "sizes"]
    assert str(errors["bad"]) == "cannot be made"
    assert "table1/results.csv: cannot be written: " in str(errors["table1"])


def test_one_configuration_by_another_path_is_the_same_comparison(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text("model: {dim: 16, num_heads: 2}")
    systems = {"ape": ["position=ape"], "rope": ["position=rope"]}
    results = tmp_path / "compared"
    root = f"data.subwords.models={tmp_path / 'run'}"

    def planned(path, override):
        return planning.plan_studies(comparison(path, systems, 1), "mine", [override])

    monkeypatch.chdir(tmp_path)
    values = Content([DocumentTable(name="t", title="t", header=("a",), rows=((number(1.0),),))])
    monkeypatch.setattr(Study, "build", lambda *_: values)
    assert len(write(planned("here/mine.yaml", root), results)) == 1
    monkeypatch.chdir(tmp_path / "there")
    for path in ("../here/mine.yaml", tmp_path / "here" / "mine.yaml"):
        planned(path, "data.subwords.models=../run").check_folder(Path("../compared"))
    with pytest.raises(ShapeshiftError, match=r"was made from .*here/mine\.yaml with"):
        planned("mine.yaml", root).check_folder(results)


def test_papers_and_items_are_found_by_name_and_alias():
    for target, message in (
        ("shap", "unknown paper 'shap'; did you mean 'shape'"),
        ("shape:tabel2", "shape has no study 'tabel2'; did you mean 'table2"),
        ("shape:", "shape has no study ''"),
    ):
        with pytest.raises(ShapeshiftError, match=message):
            catalogue.find_studies(target)
    for target, name in (("nhk:table4", "figure3"), ("shape:table4,offsets", "offsets")):
        assert [*catalogue.find_studies(target).studies] == [name]


def test_the_list_shows_finished_runs_at_a_scale(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(catalogue, "PAPERS", {"toy": "toy"})
    monkeypatch.setattr(catalogue, "find_paper", lambda name: PAPER)
    run(plan("table1", seeds=[1]), tmp_path)
    command.reproduce(directory=tmp_path, show_list=True)
    shown = [line.split() for line in capsys.readouterr().out.splitlines() if "toy:" in line]
    assert shown == [
        ["toy:table1", "Table", "1", "2/4"],
        ["toy:table2", "Table", "2", "0/1"],
        ["toy:sizes", "Sizes", "needs", "none"],
    ]


def test_the_list_takes_no_options_of_runs(tmp_path):
    for option in ({"grid": "x"}, {"jobs": 0}, {"run": False}, {"seed": [1]}, {"dry_run": True}):
        with pytest.raises(command.typer.BadParameter, match="has no effect"):
            command.reproduce(directory=tmp_path, show_list=True, **option)


def test_another_grid_has_the_axes_and_the_measurements():
    made = study("Mine", "one")
    untested = study("Mine", "one", GRIDS["two"] | {"measures": ["score-valid"]}).grid
    with pytest.raises(ShapeshiftError, match=r"^one.yaml: .*BLEU needs the measure score-test"):
        plan("mine", paper=paper(mine=made.on(untested)))
    shipped = catalogue.find_paper("shape").studies["table2"]
    assert shipped.spec.tables[0].profile_notes["tiny"].startswith("shape: K = 10")
    elsewhere = shipped.on(catalogue.find_grid("beyond:master")).spec.tables[0]
    assert (elsewhere.profile_notes, elsewhere.notes) == ({}, shipped.spec.tables[0].notes)
    other = GRIDS["one"] | {"axes": {"K": {"1": ["position=ape"]}}}
    with pytest.raises(ShapeshiftError, match="has the axes K, but what is made of one needs pos"):
        made.on(study("Mine", "one", other).grid)


def test_where_runs_go(monkeypatch, tmp_path):
    """The launchers' own tests say which devices, cores and threads each has."""

    def launcher(jobs=None, slurm=None, overrides=()):
        return run_plan.choose_launcher(plan(overrides=overrides), tmp_path, jobs, slurm)

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert isinstance(launcher(jobs=0), InProcess)
    assert launcher(jobs=2).num_slots == 2
    cpu = launcher(overrides=["training.device=cpu", "model.size=tiny"])
    assert cpu.num_slots >= 1
    given = []
    monkeypatch.setattr(Slurm, "__init__", lambda self, *arguments: given.append(arguments))
    launcher(slurm=["timeout_min=600", "slurm_partition=gpu"])
    parameters = {"timeout_min": 600, "slurm_partition": "gpu"}
    assert given == [(tmp_path / "slurm", run_plan.SLURM_JOBS, parameters)]
    for wrong, told in ((["gpu"], "expected KEY=VALUE"), (["a=1", "a=2"], "give each KEY once")):
        with pytest.raises(command.typer.BadParameter, match=told):
            launcher(slurm=wrong)


def test_a_run_that_could_not_be_scored_is_found_before_any_begins(tmp_path, monkeypatch):
    """One that is finished needs nothing; the grid that needs it is the second one."""
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    two = GRIDS["two"] | {"profiles": {"tiny": {"overrides": ["evaluation.tokenize=ja-mecab"]}}}
    launcher, made = Recording(), plan(paper=paper(two))
    with pytest.raises(ShapeshiftError, match="install the extra ja"):
        run_plan.run_all(made, tmp_path, tmp_path / "prepared", launcher)
    assert launcher.started == []
    run(made, tmp_path)
    assert run_plan.run_all(made, tmp_path, tmp_path, launcher) == []
    assert launcher.started == []


def test_a_plan_says_which_claims_its_profile_cannot_test(monkeypatch):
    spread = power.Spread("tiny", "shape:table2", "BLEU", 0.9, 0.3, 30)
    both = spread, replace(spread, quantity="BLEU lost")
    monkeypatch.setattr(power, "read_spreads", lambda: both)
    shape = catalogue.find_studies("shape:table1,table2")
    assert planning.plan_studies(shape, "paper", seeds=[1]).untested == ""
    told = planning.plan_studies(shape, "tiny", seeds=[1]).untested
    assert told.startswith("profile tiny tests 2 of 8 claims")
    assert "with a power of 0.8; reproduce --list --claims shows the power" in told
    claim = {"claim": "c", "rule": "threshold", "at_least": 1, "profiles": ["paper"]}
    claim["test"] = {"position": "ape"}
    own = plan("own", paper=paper(own=study("t", "one", claims=[claim])))
    assert own.untested.endswith(
        "tests 0 of 1 claims; the others are shown as not tested in this profile"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shape", "shaw", "nhk"])
def test_the_page_about_the_papers_profile_has_the_programs_own_estimates(name):
    """Runs and disk space, as a dry run adds them up."""
    num_parameters = dict[str, int]()
    runs = distinct(planning.plan_studies(catalogue.find_studies(name), "paper").to_train)
    disk = 0
    for config in (planned.config for planned in runs):
        model = config.model, config.position.scheme, config.data.subwords.vocab_size
        if str(model) not in num_parameters:
            num_parameters[str(model)] = estimate.count_parameters(*model)
        disk += estimate.disk_bytes(config.training, num_parameters[str(model)])
    page = (Path(__file__).parents[3] / "docs" / "paper-scale.md").read_text(encoding="utf-8")
    assert f"\n| `{name}` | {len(runs)} | {decimal(disk)} |\n" in page
