"""Items as data: what their files may say, and that those that are shipped fit their grids."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from shapeshift.config_errors import key_paths
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation import metrics as evaluation
from shapeshift.lab.measures import MEASURES
from shapeshift.papers.catalogue import ITEMS, PAPERS, find_grid, find_paper, read_study
from shapeshift.papers.metrics import FACTS, METRICS
from shapeshift.papers.names import check_names
from shapeshift.papers.spec import ItemSpec, read_spec
from shapeshift.papers.study import Study

SHIPPED = sorted(path for path in ITEMS.glob("*.yaml") if path.stem != "papers")

STUDY = """\
title: Positions on my text
grid:
  axes:
    position: {ape: [position=ape], shape: [position=shape], rope: [position=rope]}
  seeds: [1, 2, 3]
  steps: [score-valid, score-test]
tables:
  - title: BLEU by position
    rows: [position]
    columns: {valid BLEU: {split: valid}, test BLEU: {split: test}}
    baseline: {position: ape}
    plot: {title: Test BLEU by position, x: position, y: test BLEU}
claims:
  - claim: SHAPE is better.
    rule: better
    test: {position: shape}
    against: {position: ape}
    expected: none
"""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_item_fits_its_grid_and_stands_in_its_paper(path):
    spec = read_spec(path)
    check_names(spec, find_grid(spec.grid).config, path)
    paper, _, name = path.stem.partition("-")
    assert find_paper(paper).items[name].grid.name == spec.grid


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_equality_is_judged_at_the_scale_of_the_papers_alone(path):
    for claim in read_spec(path).claims:
        assert claim.rule not in ("equivalent", "no worse") or claim.scales == ("paper",)


def test_every_file_is_an_item_of_its_paper():
    named = {f"{name}-{item}" for name, paper in PAPERS.items() for item in paper["items"]}
    assert {path.stem for path in SHIPPED} == named


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return make


def test_a_study_of_ones_own_is_one_file_with_its_grid(write):
    [(name, item)] = read_study(write(STUDY)).items.items()
    assert name == "mine"
    assert [cell.name for cell in item.grid.cells("full")][:2] == ["ape/1", "ape/2"]


def test_a_study_may_name_a_grid_that_is_shipped_or_lies_beside_it(write, tmp_path):
    document = yaml.safe_load(STUDY)
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(document["grid"]), encoding="utf-8")
    for name, expected in (("own.yaml", "own"), ("shape-table2", "shape-table2")):
        document["grid"] = name
        document["claims"] = []
        assert read_study(write(yaml.safe_dump(document))).items["mine"].grid.name == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rows: [position]\n", "rows: [positon]\n", "tables.0: plot: x is no axis"),
        ("baseline: {position", "baseline: {positon", "no axis 'positon'; did"),
        ("baseline: {position: ape}", "baseline: {position: apes}", "no setting 'apes'; did you"),
        ("test: {position: shape}", "test: {position: shap}", "claims.0.test: the axis"),
        ("tables:", "analyses: [os:nowhere]\ntables:", "no analysis 'os:nowhere'"),
        ("tables:", "curves: {each: positon, systems: position, against: updates}\ntables:", "did"),
        ("rule: better", "rule: best", "claims.0.rule: expected 'better', 'no"),
        ("rule: better", "rule: threshold", "threshold"),
        ("y: test BLEU", "y: BLEU", "plot: x is no axis of rows, or y no column"),
        ("seeds: [1, 2, 3]", "seed: [1, 2, 3]", "seed"),
        ("split: valid", "on: train", "on"),
        ("expected: none", "expected: none\n    scales: [tiny]", "the grid has no scale 'tiny'"),
        ("position: {ape:", "position: {ape: [position=apee], a:", "apee"),
        ("rows:", "by_length: []\n    rows:", "did you mean 'by_length', at the top level?"),
        ("tables:", "by_length: {}\ntables:", "by_length: expected a valid list"),
        ("split: valid", "metric: BLUE", "metric: unknown 'BLUE'; did you mean 'BLEU'?"),
        ("split: valid", "metric: BLEU", "split: missing; say which text BLEU is of"),
        ("split: valid", "metric: speed", "speed needs the step speed, which is not among the"),
        ("split: valid", "metric: training_s, split: valid", "leave split out"),
        ("split: valid", "metric: COMET, split: valid", "set it to [bleu, chrf, comet]"),
        ("steps: [score-valid, score-test]", "steps: [score-test]", "the step score-valid, which"),
        ("score-valid, ", "score-vald, ", "steps: unknown measure 'score-vald'; did you mean"),
        ("rule: better", "rule: better\n    metric: chrF", "better compares BLEU alone"),
        ("  axes:", "  base: own.yaml\n  axes:", "base: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file(old, new, expected, write):
    assert old in STUDY
    path = write(STUDY.replace(old, new, 1))
    with pytest.raises(ShapeshiftError) as error:
        read_study(path)
    assert expected in str(error.value)
    assert "literal[" not in str(error.value)
    assert str(path) in str(error.value)


def test_all_that_is_wrong_in_a_study_and_its_grid_is_named_at_once(write):
    document = yaml.safe_load(STUDY)
    document["grid"] |= {"seed": [1], "base": 3, "seeds": ["a"], "rules": [{"when": {}}]}
    document["claims"][0]["rule"] = "best"
    document["tables"] = [3]
    with pytest.raises(ShapeshiftError) as error:
        read_study(write(yaml.safe_dump(document)))
    for expected in (
        "grid.seed: unknown key; did you mean 'grid.seeds'?",
        "grid.base: expected a valid string or a section of settings, got 3",
        "grid.seeds.0: expected a whole number, got 'a'",
        "grid.rules.0.when: expected at least 1 item, got {}",
        "grid.rules.0.overrides: missing",
        "claims.0.rule: expected 'better', 'no worse', 'equivalent' or 'threshold', got",
        "tables.0: expected a section of settings, got 3",
    ):
        assert expected in str(error.value)


def test_an_unknown_grid_is_answered_with_the_nearest(write):
    document = {**yaml.safe_load(STUDY), "grid": "shape-tabel2"}
    with pytest.raises(ShapeshiftError, match="did you mean 'shape-table2'"):
        read_study(write(yaml.safe_dump(document)))
    with pytest.raises(ShapeshiftError, match=r"nowhere\.yaml"):
        read_study(write(yaml.safe_dump({**document, "grid": "nowhere.yaml"})))


def test_two_tables_of_one_study_have_files_of_their_own(write, tmp_path):
    document = yaml.safe_load(STUDY)
    [table] = document["tables"]
    named = ("mine-2", "Mine", "Mine")
    document["tables"] = [table, table, *({**table, "name": name} for name in named)]
    document["curves"] = {"each": "position", "systems": "position", "against": "updates"}
    item = read_study(write(yaml.safe_dump(document))).items["mine"]
    content = item.build(Study(item.grid.cells("full"), tmp_path, tmp_path))
    assert [each.name for each in content.tables] == [
        "mine", "mine-2", "mine-2-2", "Mine-3", "Mine-4", "mine-ape", "mine-rope", "mine-shape"
    ]  # fmt: skip


def test_a_table_does_not_take_the_file_of_all_measurements(write, tmp_path):
    path = write(STUDY).rename(tmp_path / "results.yaml")
    item = read_study(path).items["results"]
    [table] = item.build(Study(item.grid.cells("full"), tmp_path, tmp_path)).tables
    assert table.name == "results-2"


def test_a_score_may_be_named_as_in_the_settings(write):
    asked = STUDY.replace("{split: valid}", "{metric: chrF, split: valid}")
    [table] = read_spec(write(asked)).tables
    assert table.columns["valid BLEU"].metric == "chrF2"
    read_study(write(asked))


def test_steps_of_ones_own_may_measure_anything(write):
    text = STUDY.replace("steps: [", "steps: ['my:own', ")
    read_study(write(text.replace("{split: valid}", "{metric: speed of light}")))


def test_every_metric_that_a_shipped_item_asks_for_is_described():
    asked = {c.metric for p in SHIPPED for t in read_spec(p).tables for c in t.columns.values()}
    assert asked <= {*METRICS, *FACTS}
    steps = {step for metric in METRICS.values() for step in metric.steps}
    assert steps <= set(MEASURES)
    assert {metric.setting for metric in METRICS.values()} - {""} == set(evaluation.METRICS)


def test_the_page_of_the_file_is_fresh_and_names_every_key():
    docs = Path(__file__).parents[3] / "docs"
    made = runpy.run_path(str(docs / "generate_configuration.py"))["study_document"]()
    page = (docs / "study.md").read_text(encoding="utf-8")
    assert page == made, "run: python docs/generate_configuration.py"
    names = {path.rpartition(".")[2] for path in key_paths(ItemSpec)}
    assert {name for name in names if f"| `{name}` |" not in page} == set()
    assert re.findall(r"\| +\|$", page.partition("## Metrics")[0], re.MULTILINE) == []
