"""Plans, how far they are, and what is written of them; the runs are records made by hand."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sacrebleu.tokenizers import tokenizer_ja_mecab

from shapeshift.cli import reproduce as command
from shapeshift.cli import run_plan
from shapeshift.config import parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.cell_folder import CellFolder, StepRecord
from shapeshift.lab.grid import Grid
from shapeshift.lab.launchers import InProcess, Slurm
from shapeshift.lab.measures import Measurement
from shapeshift.lab.runner import run_cells
from shapeshift.papers import catalogue, planning, preflight, reproduce
from shapeshift.papers.document import DocumentTable, ItemDocument, words
from shapeshift.papers.item import STUDIES, Content, Item, Paper

GRIDS = {
    "one": {
        "axes": {"position": {"ape": ["position=ape"], "shape": ["position=shape"]}},
        "scales": {"tiny": {"overrides": ["model.size=tiny"]}, "paper": {"seeds": [1]}},
        "seeds": [1, 2],
        "steps": ["score-test"],
    },
    "two": {
        "axes": {"position": {"rpe": ["position=rpe"]}},
        "scales": {"tiny": {}},
        "steps": [],
    },
}


def build(study):
    rows = [
        (*words(cell.name), study.entry(study.rows("BLEU", {"seed": cell.seed})))
        for cell in study.cells()
    ]
    return Content([DocumentTable(name="t", title="T", header=("a", "b"), rows=tuple(rows))])


def broken(study):
    raise ShapeshiftError("a file is damaged")


def grid(name, **documents):
    """Return one of `GRIDS`, or of other documents."""
    return Grid(Path(f"{name}.yaml"), documents.get(name, GRIDS[name]))


def paper(**documents):
    return Paper(
        "toy",
        "Toy",
        "nobody",
        {
            "table1": Item("Table 1", grid("one", **documents), build),
            "table2": Item("Table 2", grid("two", **documents), build),
            "sizes": Item("Sizes", grid("two", **documents), build, trained=False),
        },
    )


PAPER = paper()


def plan(*names, scale="tiny", paper=PAPER, **options):
    items = {name: paper.items[name] for name in names or paper.items}
    return planning.plan_items(paper, items, scale, command="typed", **options)


class Recording:
    """A launcher whose jobs are done at once; those of some settings fail."""

    num_slots = 1

    def __init__(self, failing=()):
        self.started, self.failing = [], failing

    def start(self, order, slot):
        name = order.config["position"]["name"]
        self.started.append((name, order.config["training"]["seed"], order.command))
        self.order, self.fails = order, name in self.failing
        return self

    def poll(self):
        config = parse_config(self.order.config)
        for step in ("train", *self.order.steps):
            found = (Measurement(metric="BLEU", value=config.training.seed, hypotheses="h"),)
            record = StepRecord(
                step=step, version="0", command=self.order.command, time="now", elapsed_s=0.0,
                checkpoint="c", text="t", measurements=found if step != "train" else (),
            )  # fmt: skip
            if not self.fails:
                CellFolder(self.order.folder).write_record(record, config)
        return int(self.fails)

    def interrupt(self):
        pass

    stop = interrupt

    def output(self):
        return ["it went wrong"]


def run(made, folder, launcher=None):
    launcher = launcher or Recording()
    report = run_cells(made.runs, folder / planning.CELLS, launcher, command=made.command)
    return launcher, report


def write(made, folder):
    documents, failures = reproduce.write(made, folder, prepared_root=folder / "prepared")
    assert not failures
    return documents


def test_a_plan_has_the_cells_of_its_items_and_trains_each_grid_once(tmp_path):
    made = plan()
    assert [cell.grid for cell in made.cells] == ["one"] * 4 + ["two"]
    assert made.runs == made.cells
    assert plan("sizes").runs == []
    launcher, report = run(made, tmp_path)
    assert [(name, seed) for name, seed, _ in launcher.started] == [
        ("ape", 1), ("ape", 2), ("shape", 1), ("shape", 2), ("rpe", 1)
    ]  # fmt: skip
    assert {typed for *_, typed in launcher.started} == {"typed"}
    assert report.ok
    again, _ = run(plan("table1"), tmp_path)
    assert again.started == []


def test_overrides_reach_every_cell_and_seeds_choose(tmp_path):
    made = plan("table1", overrides=["training.max_updates=7"], seeds=[2])
    assert [cell.seed for cell in made.cells] == [2, 2]
    assert {cell.config.training.max_updates for cell in made.cells} == {7}
    with pytest.raises(
        ShapeshiftError, match="no run of toy:table1 has the seed 5, 6; they have 1, 2"
    ):
        plan("table1", seeds=[5, 6])
    with pytest.raises(ShapeshiftError, match="has the seed 5; they have 1, 2"):
        plan("table1", seeds=[1, 5])


def test_an_item_runs_and_shows_its_own_cells_alone(tmp_path):
    some = Item("Some", grid("one"), build, axes={"position": ["shape"]})
    untrained = Item("Sizes", grid("one"), build, trained=False)
    items = {"some": some, "untrained": untrained}
    made = planning.plan_items(PAPER, items, "tiny", command="typed")
    launcher, _ = run(made, tmp_path)
    assert [(name, seed) for name, seed, _ in launcher.started] == [("shape", 1), ("shape", 2)]
    shown = {x.item: [row[0].text for row in x.tables[0].rows] for x in write(made, tmp_path)}
    assert shown == {
        "some": ["shape/1", "shape/2"],
        "untrained": ["ape/1", "ape/2", "shape/1", "shape/2"],
    }
    progress = planning.item_progress(PAPER, items, "tiny", tmp_path)
    assert [*progress.values()] == [(2, 2), (0, 0)]


def test_results_with_other_settings_are_kept_apart(tmp_path):
    first = plan("table1")
    run(first, tmp_path)
    write(first, tmp_path)
    write(first, tmp_path)
    other = ["training.max_updates=7"]
    with pytest.raises(
        ShapeshiftError, match=r"not with training.max_updates=7.*; name another --directory"
    ):
        write(plan("table1", overrides=other), tmp_path)
    [one] = write(plan("table1", overrides=other, label="other-grid"), tmp_path)
    assert one.labelled_scale == "tiny-other-grid"
    assert ItemDocument.load(tmp_path / "tiny-other-grid/toy/table1/item.json") == one
    assert ItemDocument.load(tmp_path / "tiny/toy/table1/item.json").settings == ()


def test_an_item_without_a_number_is_replaced_whatever_its_settings(tmp_path):
    run(plan("table1"), tmp_path, Recording(failing=["ape", "shape"]))
    [empty] = write(plan("table1"), tmp_path)
    assert empty.is_empty
    other = plan("table1", overrides=["training.max_updates=7"])
    run(other, tmp_path)
    [one] = write(other, tmp_path)
    assert not one.is_empty
    with pytest.raises(ShapeshiftError, match=r"was made with training.max_updates=7, not "):
        write(plan("table1"), tmp_path)


def missing(cells, prepared, hardware=True, **options):
    return preflight.missing(cells, prepared, hardware=hardware, **options)


def test_what_is_missing_is_named_once_for_all_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    item = catalogue.find_items("shape:table2")
    made = planning.plan_items(*item, "small", ["training.device=cuda"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert len(made.runs) == 27
    text, device = missing(made.runs, tmp_path)
    assert text.startswith("train.en: no such file")
    assert "training.device=cuda" in device
    monkeypatch.setitem(sys.modules, "comet", None)
    scored = planning.plan_items(*item, "small", ["training.validate_metrics=[bleu,comet]"])
    _, line = missing(scored.runs, tmp_path)
    assert line.startswith("COMET needs unbabel-comet")
    for name in ("train", "valid", "test"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("x\n")
    assert missing(made.runs, tmp_path, hardware=False) == []
    elsewhere = planning.plan_items(*item, "small", ["data.corpus.root=nowhere"])
    [text] = missing(elsewhere.runs, tmp_path)
    assert text.startswith("nowhere/train.en: no such file")


def test_the_text_of_all_runs_is_fetched_once(monkeypatch):
    made = planning.plan_items(*catalogue.find_items("shape:table2"), "paper")
    fetched = []
    monkeypatch.setattr(preflight, "fetch", lambda corpus, progress: fetched.append(corpus))
    preflight.fetch_text(made.runs)
    assert len(made.runs) == 22
    [corpus] = fetched
    assert corpus == made.runs[0].config.data.corpus


def test_text_that_cannot_be_fetched_ends_the_command_before_the_first_run(tmp_path, monkeypatch):
    def broken(corpus, progress):
        raise ShapeshiftError("no network")

    monkeypatch.setattr(preflight, "fetch", broken)
    made, launcher = plan("table1"), InProcess()
    monkeypatch.setattr(launcher, "start", None)
    with pytest.raises(ShapeshiftError, match="no network"):
        run_plan.run_cells(made, tmp_path, tmp_path / "prepared", launcher)


def test_runs_that_will_not_fit_on_the_disk_are_not_begun(tmp_path, monkeypatch):
    made = plan("table1")
    monkeypatch.setattr(preflight, "free_bytes", lambda path: 0)
    with pytest.raises(ShapeshiftError, match=r"the 4 runs that are left need .* 0 are free"):
        preflight.check_space(made.runs, tmp_path)
    for cell in made.runs:  # what is there already needs no more room
        folder = tmp_path / planning.CELLS / cell.key / "run"
        folder.mkdir(parents=True)
        with (folder / "weights").open("wb") as file:
            file.truncate(10**9)
    preflight.check_space(made.runs, tmp_path)


def test_an_item_without_a_run_that_was_asked_for_is_left_out(tmp_path):
    made = plan("table1", "table2", seeds=[2])  # table2's grid has seed 1 alone
    assert [*made.items] == ["table1"]
    assert {cell.grid for cell in made.cells} == {"one"}
    items = {name: PAPER.items[name] for name in ("table1", "table2")}
    progress = planning.item_progress(PAPER, items, "tiny", tmp_path, seeds=[2])
    assert [*progress.values()] == [(0, 2), None]


def test_a_scale_that_a_grid_does_not_have_is_an_error():
    with pytest.raises(ShapeshiftError, match="has no scale 'paper'"):
        plan("table2", scale="paper")


def test_an_item_says_what_is_not_finished(tmp_path):
    _, report = run(plan("table1"), tmp_path, Recording(failing=["shape"]))
    assert [cell.name for cell in report.failed] == ["shape/1", "shape/2"]
    [one] = write(plan("table1"), tmp_path)
    document = ItemDocument.load(tmp_path / "tiny/toy/table1/item.json")
    assert document == one
    assert document.unfinished == ("shape/1", "shape/2")
    assert len(document.configs) == 2
    assert document.command == "typed"
    assert [row.value for row in document.measurements] == [1.0, 2.0]
    [unneeded] = write(plan("sizes"), tmp_path)
    assert unneeded.unfinished == ()


def test_an_item_has_all_measurements_of_its_runs(tmp_path):
    run(plan(), tmp_path)
    write(plan("table1", "sizes"), tmp_path)
    with (tmp_path / "tiny/toy/table1/results.csv").open(encoding="utf-8") as file:
        found = [(x["axis:position"], x["seed"], float(x["value"])) for x in csv.DictReader(file)]
    assert found == [(position, str(n), n) for position in ("ape", "shape") for n in (1, 2)]
    assert not (tmp_path / "tiny/toy/sizes/results.csv").exists()


def test_what_cannot_be_made_or_written_does_not_stop_the_others(tmp_path):
    run(plan(), tmp_path)
    paper = Paper("toy", "Toy", "x", {"bad": Item("Bad", grid("two"), broken), **PAPER.items})
    made = planning.plan_items(paper, paper.items, "tiny")
    folder = tmp_path / "tiny" / "toy"
    folder.mkdir(parents=True)
    (folder / "table1").touch()
    found, errors = reproduce.write(made, tmp_path, prepared_root=tmp_path / "prepared")
    failures = {name: str(error) for name, error in errors.items()}
    assert [one.item for one in found] == ["table2", "sizes"]
    assert failures["bad"] == "a file is damaged"
    assert not (folder / "bad").exists()
    assert failures["table1"].startswith(f"{folder / 'table1'}/results.csv: cannot be written: ")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shap", "unknown paper 'shap'; did you mean 'shape'"),
        ("toy:table3", "toy has no item 'table3'; did you mean 'table"),
        ("toy:", "toy has no item ''"),
    ],
)
def test_a_paper_or_item_that_there_is_not_is_one_line(monkeypatch, target, message):
    real = catalogue.find_paper
    monkeypatch.setattr(
        catalogue, "find_paper", lambda name: PAPER if name == "toy" else real(name)
    )
    with pytest.raises(ShapeshiftError) as caught:
        catalogue.find_items(target)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("target", "item"),
    [
        ("nhk:table4", "figure3"),
        ("shape:table4,offsets", "offsets"),
    ],
)
def test_what_stands_in_another_item_is_found_by_its_own_name(target, item):
    paper, items = catalogue.find_items(target)
    assert items == {item: paper.items[item]}


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
    # Other runs, of which none is there.
    command.reproduce("toy", ["training.max_updates=3"], directory=tmp_path, show_list=True)
    assert "0/4" in capsys.readouterr().out


def launcher(jobs=None, overrides=()):
    return run_plan.choose_launcher(plan(overrides=overrides), Path("out"), jobs, None)


def threads(found):
    return {environment.get("OMP_NUM_THREADS") for environment in found._environments}


def test_where_runs_go(monkeypatch):
    """The launchers' own tests say which devices and cores each has."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(6))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert isinstance(launcher(jobs=0), InProcess)
    assert launcher(jobs=2).num_slots == 2
    assert threads(launcher()) == {"4"}
    assert threads(launcher(overrides=["model.size=tiny"])) == {"1"}
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launcher().num_slots == 3
    assert threads(launcher(overrides=["training.device=cpu", "model.size=tiny"])) == {"1"}


def test_a_cluster_gets_its_parameters_with_their_types(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(Slurm, "__init__", lambda self, *arguments: given.append(arguments))
    slurm = ["timeout_min=600", "slurm_partition=gpu"]
    run_plan.choose_launcher(plan(), tmp_path, None, slurm)
    parameters = {"timeout_min": 600, "slurm_partition": "gpu"}
    assert given == [(tmp_path / "slurm", run_plan.SLURM_JOBS, parameters)]
    with pytest.raises(command.typer.BadParameter, match="expected KEY=VALUE"):
        run_plan.choose_launcher(plan(), tmp_path, None, ["gpu"])


def test_a_run_that_could_not_be_scored_is_found_before_any_begins(tmp_path, monkeypatch, capsys):
    """One that is finished needs nothing; the grid that needs it is the second one."""
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    two = GRIDS["two"] | {"scales": {"tiny": {"overrides": ["evaluation.tokenize=ja-mecab"]}}}
    launcher, made = Recording(), plan(paper=paper(two=two))
    with pytest.raises(ShapeshiftError, match="install the extra ja"):
        run_plan.run_cells(made, tmp_path, tmp_path / "prepared", launcher)
    assert launcher.started == []
    run(made, tmp_path)
    assert run_plan.run_cells(made, tmp_path, tmp_path, launcher).ok
    assert launcher.started == []


def test_studies_have_files_of_their_own(tmp_path):
    def study(title, citation, item="table1"):
        paper = Paper(STUDIES, title, citation, {item: replace(PAPER.items["table1"], title=title)})
        return planning.plan_items(paper, paper.items, "tiny")

    run(study("A", "a.yaml"), tmp_path)
    folder = tmp_path / "tiny" / "studies"
    for name in ("table1", "other"):
        write(study("A", "a.yaml", name), tmp_path)
        assert (folder / name / "results.csv").is_file()
    for again in (study("changed", "a.yaml"), study("changed", "moved.yaml")):
        write(again, tmp_path)
    with pytest.raises(ShapeshiftError, match=r"table1: is 'changed' \(moved\.yaml\), another st"):
        write(study("B", "b/table1.yaml"), tmp_path)
