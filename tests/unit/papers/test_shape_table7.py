"""Table 7: what stands in it, given what was measured."""

from itertools import chain

import pytest

from shapeshift.lab.measures import mean_of
from shapeshift.lab.results import Results, Row
from shapeshift.lab.toolkits.baseline import Baseline
from shapeshift.lab.toolkits.export import Text
from shapeshift.lab.toolkits.measure import FAIRSEQ, OPENNMT
from shapeshift.papers.planning import find_grid
from shapeshift.papers.shape import PAPER, table7
from shapeshift.papers.study import Study

SETS = {"valid/newstest2010": 24.0, "valid/newstest2011": 22.0, "test/newstest2016": 34.0}


def rows(name, offset, seed=1, sets=SETS):
    """BLEU of an implementation: that of `sets`, and so much more."""
    return [
        Row(
            metric="BLEU", value=value + offset, dataset=dataset, seed=seed,
            bucket=None if name == table7.OURS else name,
            grid=table7.GRID, scale="tiny", cell=f"cell{seed}", measure="score-test",
            axes={"dataset": "vanilla", "position": "ape"},
            checkpoint="0", command="", version="0", time="0",
        )
        for dataset, value in {**sets, mean_of("test"): 99.0}.items()
    ]  # fmt: skip


@pytest.fixture
def build(tmp_path, monkeypatch):
    def make(*measured):
        cells = {table7.GRID: find_grid(table7.GRID).cells("tiny")}
        study = Study(cells, {table7.GRID: ()}, tmp_path, tmp_path)
        monkeypatch.setattr(Study, "results", Results(tuple(chain(*measured))))
        return table7.build(study)

    return make


def texts(table):
    return {row[1].text: [entry.text for entry in row[2:]] for row in table.rows}


def test_each_toolkit_has_a_row_and_each_test_set_a_column(build):
    content = build(rows("Shapeshift", 0.0), rows("fairseq", 0.3))
    [ours, paper] = content.tables
    assert ours.header[2:] == ("newstest2010", "newstest2011", "newstest2016", "average")
    assert texts(ours)["Shapeshift"][-1] == "26.67"
    assert texts(ours)["fairseq"][-1] == "26.97"
    assert texts(ours)["OpenNMT-py"] == ["–"] * 4
    assert texts(paper)["fairseq"][-1] == "26.59"
    [finding] = content.findings
    assert finding.verdict == "not tested at this scale"
    assert "Shapeshift minus fairseq: -0.300 (1 seed)" in finding.measured
    assert "minus OpenNMT-py: no seed was trained in both" in finding.measured


def test_the_average_is_over_seeds_and_sets_and_wants_all_of_them(build):
    both = [*rows("Shapeshift", 0.0), *rows("Shapeshift", 1.0, seed=2)]
    lacking = rows("fairseq", 0.0, sets={"valid/newstest2010": 24.0})
    [ours, _] = build(both, lacking).tables
    assert texts(ours)["Shapeshift"][-1] == "27.17"
    assert texts(ours)["fairseq"][0] == "24.00"
    assert texts(ours)["fairseq"][-1] == "–"


def test_without_files_the_two_splits_stand_in_the_columns(build):
    [ours, _] = build(rows("Shapeshift", 0.0, sets={"valid": 20.0, "test": 30.0})).tables
    assert ours.header[2:] == ("valid", "test", "average")
    assert texts(ours)["Shapeshift"][-1] == "25.00"


def test_nothing_measured_is_a_table_of_dashes(build):
    content = build([])
    assert {text for row in texts(content.tables[0]).values() for text in row} == {"–"}
    assert content.findings[0].verdict == "not tested at this scale"


def test_a_toolkit_that_is_not_there_is_named_below_the_table(build, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    [ours, _] = build([]).tables
    assert any("fairseq-preprocess is not on the PATH" in note for note in ours.notes)


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_every_toolkit_can_repeat_the_cells(scale, tmp_path):
    text = Text(tmp_path, {"src": ["4"], "tgt": ["4"]}, joint=True, num_train=1)
    for cell in find_grid(table7.GRID).cells(scale):
        run = Baseline(cell.config, text, tmp_path, gpu=True)
        for measure in (FAIRSEQ, OPENNMT):
            programs = {name: tmp_path / name for name in measure.toolkit.programs}
            for program in programs.values():
                program.touch()
            commands = measure.toolkit.commands(run, programs)
            assert [command.name for command in commands][-1] == "translate-test"


def test_cells_are_those_of_table_2_and_the_paper_has_the_item():
    own = {cell.key for cell in find_grid(table7.GRID).cells("paper")}
    assert own <= {cell.key for cell in find_grid("shape-table2").cells("paper")}
    assert PAPER.items["table7"] is table7.ITEM


@pytest.mark.parametrize(("offset", "verdict"), [(0.1, "supported"), (3.0, "contradicted")])
def test_as_strong_means_within_half_a_point_over_three_seeds(build, offset, verdict, monkeypatch):
    monkeypatch.setattr(Study, "scale", "paper")
    spread = {1: 0.0, 2: 0.1, 3: 0.2}
    ours = [row for seed in spread for row in rows("Shapeshift", 0.0, seed)]
    others = [
        row
        for name in ("fairseq", "OpenNMT-py")
        for seed, more in spread.items()
        for row in rows(name, offset + more, seed)
    ]
    assert build(ours, others).findings[0].verdict == verdict
    assert build(ours, others[:-12]).findings[0].verdict in ("one run", "two runs", "not run")
