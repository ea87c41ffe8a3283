"""Studies as data: what their files may say, and that those that are shipped fit their grids."""

import re
import runpy
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config.errors import key_paths
from shapeshift.evaluation import metrics as evaluation
from shapeshift.run.measures import MEASURES, declared
from shapeshift.study.catalogue import FILE, FOLDER, PAPERS, find_paper, find_studies
from shapeshift.study.check import FACTS
from shapeshift.study.compare import comparison
from shapeshift.study.measured import Measured
from shapeshift.study.planning import plan_studies
from shapeshift.study.spec import StudySpec

from .conftest import planned_runs

SHIPPED = {f"{name}-{study}" for name, paper in PAPERS.items() for study in paper.studies}

STUDY = """\
title: Positions on my text
grid:
  axes:
    position: {ape: [position=ape], shape: [position=shape], rope: [position=rope]}
  seeds: [1, 2, 3]
  measures: [score-valid, score-test]
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


def find_own(path):
    return find_studies(str(path))


def shipped(name):
    paper, _, study = name.partition("-")
    return find_paper(paper).studies[study]


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_a_shipped_item_can_be_measured_and_one_rule_says_which_profiles_test_its_claims(name):
    study = shipped(name)
    for profile in study.grid.config.profiles:
        study.check([*filter(study.needs, planned_runs(study.grid.name, profile))])
    for claim in study.spec.claims:
        # The paper gives no number for those that `medium` was chosen to test.
        assert claim.effect is not None or claim.profiles == ("medium", "paper")
    asked = {column.metric for table in study.spec.tables for column in table.columns.values()}
    assert asked <= {x.name for x in declared(MEASURES)} | {*FACTS}


def test_every_file_is_an_item_of_its_paper_and_every_metric_can_be_measured():
    assert {
        f"{path.parent.name}-{path.stem}" for path in FOLDER.glob("*/*.yaml") if path.name != FILE
    } == SHIPPED
    assert {x.setting for x in declared(MEASURES)} - {""} == set(evaluation.METRICS)


def test_the_numbers_copied_from_the_shape_paper_agree_with_each_other():
    def published(name):
        rows = shipped(f"shape-{name}").spec.tables[0].published.rows
        return {tuple(row[:2]): row[2:] for row in rows if None not in row[2:4]}

    table2, table5, table6 = map(published, ("table2", "table5", "table6"))
    for system, (*by_set, average, speed) in table5.items():
        valid, test, rate = table2[system]
        assert fmean(by_set) == pytest.approx(average, abs=0.0051)
        assert fmean(by_set[:4]) == pytest.approx(valid, abs=0.0101)
        assert fmean(by_set[4:]) == pytest.approx(test, abs=0.0101)
        assert speed == rate
    for (position, dataset), (seconds, _) in table6.items():
        speed = table2[dataset, position][2]
        assert table6["ape", dataset][0] / seconds == pytest.approx(speed, abs=0.0051)
    for *values, average in published("table7").values():
        assert fmean(values) == pytest.approx(average, abs=0.01)


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "mine.yaml"
        path.write_text(text if isinstance(text, str) else yaml.safe_dump(text), encoding="utf-8")
        return path

    return make


def test_a_study_of_ones_own_has_a_grid_that_is_inside_or_shipped_or_lies_beside_it(write):
    document = yaml.safe_load(STUDY)
    study = find_own(write(STUDY)).studies["mine"]
    assert [planned.name for planned in study.grid.runs("full")][:2] == ["ape/1", "ape/2"]
    own = write(document).with_name("own.yaml")
    own.write_text(yaml.safe_dump(document["grid"]), encoding="utf-8")
    for name, expected in (("own.yaml", "own"), ("own", "own"), ("shape:table2", "shape:table2")):
        found = find_own(write({**document, "grid": name})).studies["mine"].grid
        assert found.name == expected


GAIN = ", gain: {gain_of: valid BLEU}"
COLUMNS = "{valid BLEU: {split: valid}, test BLEU: {split: test}}"
BETTER = "rule: better\n    test: {position: shape}\n    against: {position: ape}"
BY_LENGTH = "by_length:\n- {title: t, lines: position, "
ONLY = "only: {position: ape}\n"
THRESHOLD = "rule: threshold\n    at_least: 1\n    "


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("rows: [position]\n", "rows: [positon]\n", "rows.0: no axis 'posi"),
        ("baseline: {position: ape}", "baseline: {position: apes}", "no setting 'apes'; did you"),
        ("test: {position: shape}", "test: {position: shap}", "claims.0.test: the axis"),
        ("tables:", "analyses: [os:nowhere]\ntables:", "no analysis 'os:nowhere'"),
        ("tables:", "curves: {each: positon, lines: position, against: updates}\ntables:", "did"),
        ("tables:", "by_length: {title: t, lines: position, gain_over: sape}\ntables:", "'sape'"),
        ("rule: better", "rule: best", "claims.0.rule: expected 'better', 'no"),
        ("y: test BLEU", "y: BLEU", "plot: no column 'BLEU'; did you mean 'test BLEU'?"),
        ("x: position", "x: positon", "plot: no axis of rows 'positon'; did you mean 'position'?"),
        ("seeds: [1, 2, 3]", "seed: [1]", "grid.seed: unknown key; did you mean 'grid.seeds'"),
        ("tables:", "claim: []\ntables:", "claim: unknown key; did you mean 'claims'?"),
        ("split: valid", "lengths: inside", "lengths is for split: valid or test"),
        ("expected: none", "expected: none\n    profiles: [tiny]", "the grid has no profile 'tin"),
        ("position: {ape:", "position: {ape: [position=apee], a:", "apee"),
        ("split: valid", "metric: BLUE", "metric: unknown 'BLUE'; did you mean 'BLEU'?"),
        ("split: valid", "metric: speed", "speed needs the measure speed, which is not among the"),
        ("split: valid", "metric: training_s, split: valid", "leave split out"),
        ("split: valid", "metric: COMET, split: valid", "add comet to evaluation.metrics"),
        ("rule: better", THRESHOLD + "metric: chrF2", "compares with a number"),
        (BETTER, BETTER + "\n    metric: parameters", "does not say which values are better"),
        ("split: valid", "metric: speed, split: valid, lengths: inside", "leave split out"),
        ("{split: valid}", "{split: each set}" + GAIN, "gain_of needs a column"),
        ("{split: valid}", "{count: kept, split: valid}" + GAIN, "gain_of needs a column"),
        ("rule: better", THRESHOLD + "lengths: beyond", "threshold is about all"),
        ("rule: better", THRESHOLD + "minus: swapped-order", "threshold is about all"),
        ("rule: better", THRESHOLD + "split: original-order", "threshold is about all"),
        ("split: valid", "metric: chrf, split: valid", "unknown 'chrf'; did you mean 'chrF2'?"),
        ("  axes:", "  base: own.yaml\n  axes:", "own.yaml: no such file"),
        ("split: valid", "metric: speed of light", "metric: unknown 'speed of light'"),
        ("{split: valid}", "{bucket: 0–9}", "split: missing; say which text BLEU is of"),
        ("{split: valid}", "{bucket: 0-9, split: valid}", "called '0-9'; did you mean '0–9'?"),
        ("{split: valid}", "{bucket: original order}", "BLEU needs the measure swapped-order"),
        ("{split: valid}", "{metric: chrF2, bucket: 0–9, split: valid}", "chrF2 is not measured"),
        ("{split: valid}", "{metric: parameters, bucket: a}", "parameters is not measured in"),
        ("{split: valid}", "{metric: valid_loss, layers: lowest}", "such as shift_similarity, not"),
        ("{split: valid}", "{metric: trained lengths, split: test}", "leave split, bucket and lay"),
        (COLUMNS, "{b: {split: valid}, test BLEU: {metric: trained lengths}}", "is no number"),
        (BETTER, THRESHOLD + "metric: step_memory", "step_memory is not one number of a"),
        (BETTER, THRESHOLD + "metric: trained lengths", "lengths is not one number of a"),
        ("    against: {position: ape}", "    against: {position: ape}\n    split: original-order\n"
         "    minus: swapped-order", "claims.0: BLEU needs the measure swapped-order"),
        ("rope: [position=rope]", "rope: [position=rope, 'evaluation.metrics=[chrf]']",
         "add bleu to evaluation.metrics of the runs (in the run rope/1)"),
        ("rows: [position]\n", "rows: []\n", "tables.0.rows: "),
        ("rule: better", "rule: better\n    minus: swapped-order", "needs split: original-order"),
        ("rule: better", "rule: better\n    margin: 1", "better has no margin"),
        ("against: {position: ape}", "against: {position: shape}", "compares runs with themselves"),
        ("rule: better", "rule: better\n    each: {position: '*'}", "position is also in test"),
        ("    against: {", "    pairs: [[{position: rope}, {position: ape}]]\n    #", "test: add"),
        ("{split: valid}", "{count: kept, split: each set}", "each set: leave out count"),
        ("{split: valid}", "{count: kept, metric: chrF2}", "count: leave out metric: no effect"),
        ("{split: valid}", "{split: train}", "split: train is for count"),
        ("{split: valid}", "{split: valid, bucket: a, lengths: inside}", "leave out bucket: no"),
        ("{split: valid}", "{split: each set, bucket: a}", "each set: leave out bucket: no effect"),
        ("{split: valid}", "{split: valid}, d: {gain_of: test BLEU, show: mean}", "leave out show"),
        ("{split: valid}", "{split: valid, only: {position: ape}}", "is in rows or across"),
        ("{split: valid}", "{split: valid}, d: {difference: [d, test BLEU]}", "and 'd' is none"),
        ("{split: valid}", "{split: valid}, d: {difference: [e, test BLEU]}", "and 'e' is none"),
        (COLUMNS, "{b: {split: valid}, test BLEU: {gain_of: b}}", "plot: y needs a column"),
        (COLUMNS, "{b: {split: valid}, test BLEU: {count: kept}}", "plot: y needs a column of a"),
        (COLUMNS, "{b: {split: valid}, test BLEU: {split: each set}}", "plot: y needs a column"),
        (COLUMNS, "{test BLEU: {metric: parameters}}", "baseline: no column is tested"),
        (COLUMNS, "{}", "tables.0.columns: "),
        ("rule: better", "rule: no worse\n    metric: chrF2", "a margin in the unit of chrF2; the"),
        ("rows: [position]\n", "rows: [position, position]\n", "rows: name each axis once"),
        ("    plot", "    labels: {ape: [a]}\n    buckets: {a: null}\n    plot", "not name b"),
        ("tables:", ONLY + "tables:", "claims.0.test: position: shape is not in `only` of the"),
        ("tables:\n  - ", ONLY + "tables:\n  - only: {position: rope}\n    ", "rope is not in"),
        ("  seeds: [1, 2, 3]", "  exclude: [{seed: 9}]", "the seed 9, but the grid lists none"),
        ("    plot", "    profile_notes: {tiny: t}\n    plot", "the grid has no profile 'tiny'"),
        ("    plot", "    across: position\n    plot", "position is also in rows or only"),
        ("  seeds:", "  exclude: [{seed: 9}]\n  seeds:", "yaml: grid: a condition names what is"),
        ("measures:", "steps:", "grid.steps: steps is now measures"),
        ("  seeds:", "  scales: {a: {}}\n  seeds:", "grid.scales: scales is now profiles"),
        ("tables:", "by_length: [{title: t, systems: position}]\ntables:", "systems is now lines"),
        ("  seeds:", "  exclude: [{scale: full}]\n  seeds:", "scale is now profile"),
        ("tables:", BY_LENGTH + "splits: []}\ntables:", "by_length.0.splits: "),
        ("tables:", BY_LENGTH + "splits: [test, test]}\ntables:", "name each split once"),
        ("tables:", BY_LENGTH + "only: {position: ape}}\ntables:", "in lines or panels already"),
        ("tables:", BY_LENGTH + "panels: position}\ntables:", "name another axis than in lines"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file(old, new, expected, write):
    assert old in STUDY
    path = write(STUDY.replace(old, new, 1))
    with pytest.raises(ShapeshiftError) as error:
        plan_studies(find_studies(str(path)), "full")
    assert expected in str(error.value)
    assert str(path) in str(error.value)


def test_a_folder_is_a_paper_whose_studies_share_grids_by_name(write, tmp_path):
    path = write(STUDY)
    other = yaml.safe_load(STUDY) | {"grid": "mine"}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other), encoding="utf-8")
    paper = {"title": "Mine", "studies": ["other", "mine"], "aliases": {"figure1": "other"}}
    (tmp_path / "paper.yaml").write_text(yaml.safe_dump(paper), encoding="utf-8")
    found = find_studies(str(tmp_path))
    assert ([*found.studies], found.is_own, found.title) == (["other", "mine"], True, "Mine")
    assert [*found.grids] == [f"{tmp_path.name}:mine"]
    assert [*find_studies(f"{tmp_path}:figure1").studies] == ["other"]
    for name, text, problem in (
        ("paper.yaml", "title: t\nitems: [a]", "items: items is now studies"),
        ("paper.yaml", "title: t\nstudies: [none]", "none.yaml: no such file"),
        ("other.yaml", yaml.safe_dump(other | {"grid": "othre"}), "no grid 'othre'; did you mean"),
        ("other.yaml", yaml.safe_dump(other["claims"][0]), "other.yaml: "),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(ShapeshiftError, match=re.escape(problem)):
            find_studies(str(tmp_path))
        (tmp_path / "paper.yaml").write_text(yaml.safe_dump(paper), encoding="utf-8")
    grid = write(yaml.safe_load(STUDY)["grid"])
    with pytest.raises(ShapeshiftError, match=r"is a grid, .* a study with `grid: mine.yaml`"):
        find_studies(str(grid))
    path.write_text(yaml.safe_dump(other), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="has no grid of its own but names 'mine'"):
        find_studies(str(path))


def test_a_study_is_known_by_its_path_however_that_is_given(write, monkeypatch):
    path = write(STUDY)
    monkeypatch.chdir(path.parent)
    assert find_studies(path.name).citation == find_studies(str(path)).citation


def test_a_comparison_begins_with_the_seed_of_its_configuration(tmp_path):
    path = tmp_path / "mine.yaml"
    systems = {"ape": ["position=ape"], "rpe": ["position=rpe"]}
    for text, first in (("{}", 1), ("training: {seed: 9}", 9)):
        path.write_text(text, encoding="utf-8")
        plan = plan_studies(comparison(path, systems, 2), "mine")
        assert {planned.config.training.seed for planned in plan.runs} == {first, first + 1}


def test_settings_of_the_command_line_are_checked(write):
    with pytest.raises(ShapeshiftError, match=r"mine.yaml: .*\.valid BLEU: BLEU is not"):
        plan_studies(find_own(write(STUDY)), "full", ["evaluation.metrics=[chrf]"])


def test_a_comparison_shows_the_metrics_of_its_runs():
    positions = {"ape": ["position=ape"], "rpe": ["position=rpe"]}
    for metrics, shown in (("bleu", ["BLEU"]), ("chrf++,chrf", ["chrF", "chrF++"])):
        overrides = [f"evaluation.metrics=[{metrics}]"]
        paper = comparison("demo-fast", positions, 1, overrides)
        assert plan_studies(paper, "demo-fast", overrides).runs
        spec = paper.studies["comparison"].spec
        assert [*spec.tables[0].columns][:-3] == [shown[0], "over ape", *shown[1:]]
        assert spec.by_length[0].title == f"{shown[0]} by source length in subwords"


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("data.corpus.num_test=30", "data.corpus"),
        ("data.corpus.reverse=true", "data.corpus"),
        ("data.recipe={name: interpolate, num_joined: 2, max_length: null}", "data.recipe"),
        ("evaluation.tokenize=char", "evaluation.tokenize"),
        ("evaluation.metrics=[bleu]", "evaluation.metrics"),
    ],
)
def test_a_comparison_on_different_text_is_refused_before_it_trains(setting, key):
    positions = {"ape": ["position=ape"], "other": ["position=rpe", setting]}
    with pytest.raises(ShapeshiftError, match=f"'other' has another {key} than 'ape'"):
        comparison("demo-fast", positions, 1)


def test_a_comparison_of_vocabularies_has_no_figure_by_length():
    smaller = ["position=ape", "data.subwords.vocab_size=300"]
    paper = comparison("demo-fast", {"ape": ["position=ape"], "smaller": smaller}, 1)
    assert not paper.studies["comparison"].spec.by_length


def test_a_score_may_be_computed_at_another_profile_alone(write):
    text = STUDY.replace("{split: valid}", "{split: valid, metric: COMET}").replace(
        "  seeds:",
        "  profiles: {a: {}, b: {overrides: ['evaluation.metrics=[bleu,comet]']}}\n  seeds:",
    )
    for profile in "ab":
        assert plan_studies(find_own(write(text)), profile)
    with pytest.raises(ShapeshiftError, match=r"add comet to evaluation\.metrics"):
        plan_studies(find_own(write(text)), "b", ["evaluation.metrics=[bleu]"])


def test_buckets_of_a_table_are_those_that_its_runs_have(write):
    document = yaml.safe_load(STUDY)
    del document["claims"]
    document["grid"]["measures"] = ["score-test", "swapped-order"]
    table = {"title": "t", "rows": ["position"], "header": ["position", "part"]}

    def planned(buckets, **column):
        tables = [{**table, "buckets": buckets, "columns": {"BLEU": column}}]
        return plan_studies(find_own(write({**document, "tables": tables})), "full")

    assert planned({"a": "original order", "b": "swapped order"})
    assert planned({"a": "0–9", "b": None}, split="test")
    for buckets, column, expected in (
        ({"a": "original order", "b": None}, {}, "split: missing"),
        ({"a": "original order"}, {"split": "test"}, "BLEU of test has none that is called"),
        ({"a": "fairseq"}, {"split": "test"}, "BLEU needs the measure fairseq"),
    ):
        with pytest.raises(ShapeshiftError, match=expected):
            planned(buckets, **column)


def test_a_condition_may_name_a_seed_of_any_scale(write):
    text = STUDY.replace("  seeds:", "  profiles: {a: {}, b: {seeds: [7]}}\n  seeds:")
    for seed in (3, 7):
        rule = f"  rules: [{{when: {{seed: {seed}}}, overrides: []}}]\n  seeds:"
        find_own(write(text.replace("  seeds:", rule)))


def test_the_tables_of_one_study_have_files_of_their_own(write, tmp_path):
    document = yaml.safe_load(STUDY)
    [table] = document["tables"]
    named = ("mine-2", "Mine", "results")
    document["tables"] = [table, table, *({**table, "name": name} for name in named)]
    document["curves"] = {"each": "position", "lines": "position", "against": "updates"}
    study = find_own(write(document)).studies["mine"]
    content = study.build(Measured(study.grid.runs("full"), tmp_path, tmp_path))
    assert [each.name for each in content.tables] == [
        "mine", "mine-2", "mine-2-2", "Mine-3", "results-2", "mine-ape", "mine-rope", "mine-shape"
    ]  # fmt: skip


def test_own_steps_measure_anything(write):
    text = STUDY.replace("measures: [", "measures: ['statistics:fmean', ")
    measured = find_own(write(text.replace("{split: valid}", "{metric: speed of light}")))
    assert plan_studies(measured, "full")


def test_the_page_of_the_file_is_fresh_and_names_every_key():
    docs = Path(__file__).parents[3] / "docs"
    made = runpy.run_path(str(docs / "generate_configuration.py"))["study_document"]()
    page = (docs / "study.md").read_text(encoding="utf-8")
    assert page == made, "run: python docs/generate_configuration.py"
    names = {path.rpartition(".")[2] for path in key_paths(StudySpec)}
    assert {name for name in names if f"| `{name}` |" not in page} == set()
    assert re.findall(r"\| +\|$", page.partition("## Metrics")[0], re.MULTILINE) == []
