"""What stands in the tables and figures of the papers' studies, next to what was measured."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.run.analysis.similarity import measure
from shapeshift.run.measures import BLEU, ORIGINAL, SWAPPED, mean_of
from shapeshift.study.analyses import similarity, slices
from shapeshift.study.catalogue import find_grid
from shapeshift.study.measured import Measured
from shapeshift.study.power import plan_tests
from shapeshift.study.spec import ClaimSpec, CurvesSpec, TableSpec
from shapeshift.study.study import judge_claims
from shapeshift.study.tables import TableBuilder, curves
from shapeshift.study.verdicts import shown
from shapeshift.training.log import read_log

from .conftest import column, find_study, judged, planned_runs, table, texts


@pytest.fixture(scope="session")
def shape(studies):
    return studies("shape:table2")


@pytest.fixture(scope="session")
def max_length(shape):
    """The most subwords of a training sentence of Extrapolate."""
    return shape.runs({"recipe": "extrapolate"})[0].config.data.recipe.max_length


# SHAPE


def test_table_1_has_the_drop_and_tests_what_ape_loses_more(build, shape):
    content = build("shape:table1")
    ape, other = ({"recipe": "interpolate", "position": name} for name in ("ape", "shape"))
    rows = {row[0].text: [field.value for field in row[1:]] for row in content.tables[0].rows}
    assert list(rows) == ["ape", "shape"]
    found = shape.rows("BLEU", ape, bucket="original order")
    assert {row.seed for row in found} == {1, 2}
    assert rows["ape"][0] == pytest.approx(fmean(row.value for row in found))
    assert all(drop == pytest.approx(first - second) for first, second, drop in rows.values())
    [finding] = content.findings
    assert finding.verdict == "two runs"
    test = shape.compare(ape, other, ORIGINAL, minus=SWAPPED).comparison
    assert list(test.p_values) == [1, 2]
    assert test.score == pytest.approx(rows["ape"][2])
    assert test.baseline_score == pytest.approx(rows["shape"][2])
    assert f"{shown(test.p_value)}, 2 seeds)" in finding.measured


def test_figures_2_and_6_shift_by_the_papers_shares_of_k(build, shape):
    """A figure for each sentence; the text has five, all of which the measure takes."""
    first, others = build("shape:figure2"), build("shape:figure6")
    assert [each.name for each in first.tables] == ["figure2"]
    assert [each.name for each in others.tables] == [f"figure6-{n}" for n in range(1, 5)]
    pairs = np.triu_indices(4, 1)
    for position in ("ape", "shape"):
        [planned] = shape.finished({"recipe": "interpolate", "position": position, "seed": 1})
        offsets = 0, 2, 5, 10  # K = 10; in the paper 0, 100, 250 and 500
        _, layer = measure(shape.run(planned), shape.prepared(planned), offsets=offsets)
        found = []
        for each in (*first.tables, *others.tables):
            assert each.header == ("states", "offset", *map(str, offsets))
            rows = [row[2:] for row in each.rows if row[0].text == f"{position}, layer 1"]
            found.append(np.array([[field.value for field in row] for row in rows])[pairs].mean())
        assert np.mean(found) == pytest.approx(layer.value, abs=1e-5)
        assert np.std(found) > 0
    assert set(others.values[similarity.CLAIM]) == {1, 2}
    assert others.values[similarity.CLAIM] != first.values[similarity.CLAIM]
    for each in others.tables:
        maps = [axes for axes in each.drawing.axes if axes.images]
        assert [axes.get_title() for axes in maps] == ["embeddings", "layer 1", "", ""]
        assert [axes.get_ylabel() for axes in maps] == ["ape", "", "shape", ""]


def test_figures_3_and_7_count_all_sentences_of_both_sets(build, shape, max_length):
    [planned] = shape.finished({"recipe": "extrapolate", "position": "ape"})
    data = shape.prepared(planned)
    gains = table(build("shape:figure3"), "figure3-extrapolate")
    absolute = table(build("shape:figure7"), "figure7-extrapolate")
    assert sum(row[1].value for row in gains.rows) == len(data.valid) + len(data.test)
    for gain, row in zip(gains.rows, absolute.rows, strict=True):
        if gain[2].value is not None:
            assert gain[2].value == pytest.approx(row[3].value - row[2].value)
    *beyond, every = build("shape:figure3").findings
    for finding in beyond:
        assert f"source lengths ≥ {max_length + 1}" in finding.measured
        assert "p = " in finding.measured
    assert "fewer than 10 sentences" in every.measured  # eight joined ones


def test_a_claim_about_each_length_has_a_part_for_each_that_has_enough_sentences(shape):
    pair = {"test": {"recipe": "extrapolate", "position": "rpe"}, "against": {"position": "ape"}}
    finding = judged(shape, rule="better", lengths="each", **pair)
    [planned] = shape.finished({"recipe": "extrapolate", "position": "ape"})
    buckets = shape.scores(planned).by_length
    enough = [x.label for x in buckets if x.num_segments >= 10]
    assert 0 < len(enough) < len(buckets)
    expected = [f"extrapolate rpe against ape, source lengths {label}" for label in enough]
    assert [*finding.p_values] == expected


def test_convergence_is_the_first_update_near_the_last_perplexity(build, shape):
    content = build("shape:figure8")
    [made] = [x for x in content.tables if x.name == "convergence"]
    found = {tuple(field.text for field in row[:3]): row[3].value for row in made.rows}
    for planned in shape.finished({"recipe": "vanilla"}):
        log = read_log(shape.run(planned).directory / "log.jsonl")
        losses = {x["update"]: x["valid_loss"] for x in log if "valid_loss" in x}
        near = [n for n, loss in losses.items() if loss - [*losses.values()][-1] <= np.log(1.05)]
        assert found["vanilla", planned.axes["position"], str(planned.seed)] == near[0]
    ratios = content.values["vanilla: updates to converge, largest by smallest"]
    own = [found["vanilla", position, "1"] for position in shape.settings("position")]
    assert ratios == {1: max(own) / min(own)}


def test_bleu_by_length_has_the_buckets_of_the_cell_that_asks(shape, max_length):
    [planned] = shape.finished({"recipe": "extrapolate", "position": "ape"})
    evaluation = planned.config.evaluation.model_copy(update={"length_buckets": (7,)})
    other = replace(planned, config=planned.config.model_copy(update={"evaluation": evaluation}))
    assert other.key == planned.key  # one run, which both grids score
    assert [len(shape.scores(x).by_length) for x in (planned, other)] == [6, 2]
    axes, beyond = planned.axes, (max_length + 1, None)
    tested = shape.compare(axes, {**axes, "position": "rpe"}, lengths=beyond).comparison
    assert shape.score_at(planned, BLEU, "test", beyond) == pytest.approx(tested.score)
    assert shape.score_at(planned, BLEU, "test", (1, 2)) is None


def test_figure_4_counts_every_token_of_every_seed(build, shape, max_length):
    extrapolate, interpolate = build("shape:figure4").tables
    for drawn, dataset, seeds in ((extrapolate, "extrapolate", 1), (interpolate, "interpolate", 2)):
        [planned] = shape.finished({"recipe": dataset, "position": "ape", "seed": 1})
        store = shape.prepared(planned).valid
        num_tokens = int(store.target_lengths.sum()) + len(store)  # with </s>
        assert sum(row[2].value for row in drawn.rows) == seeds * num_tokens
    # A bound stands where training ends: after the longest sentence and its </s>.
    assert any(row[1].text.startswith(f"{max_length + 1}–") for row in extrapolate.rows)


def test_table_3_has_the_sizes_and_figure_5_every_sentence(build, shape, max_length):
    content = build("shape:table3")
    ours, bins = table(content, "table3"), table(content, "figure5")
    num_joined = shape.runs({"recipe": "interpolate"})[0].config.data.recipe.num_joined
    assert column(ours, "test pairs")["vanilla"].value == 30
    assert column(ours, "valid pairs")["interpolate"].value == -(-20 // num_joined)
    assert column(ours, "longest source in training")["extrapolate"].value <= max_length
    for dataset, size in column(ours, "train pairs").items():
        own = [row for row in bins.rows if row[0].text == dataset]
        for side in (2, 3):
            assert sum(row[side].value for row in own) == size.value


def test_a_system_of_curves_is_one_model_and_a_setting_need_not_be_the_name_of_a_file(shape):
    def made(runs):
        spec = CurvesSpec(each="recipe", lines="position", against="updates")
        return curves(Measured(runs, shape._root, shape._prepared_root), spec, "c").tables

    first, *_ = runs = shape.runs({"recipe": "vanilla", "position": "ape"})
    slashed = [replace(planned, axes={**planned.axes, "recipe": "RPE a/b"}) for planned in runs]
    assert [(x.name, x.title) for x in made(slashed)] == [
        ("c-RPE a-b", "Validation perplexity against updates, RPE a/b")
    ]
    training = first.config.training.model_copy(update={"seed": 99})
    config = first.config.model_copy(update={"training": training})
    (unfinished,) = made([*runs, replace(first, seed=99, config=config)])
    assert unfinished.notes[1:] == ("not finished: seed 2, 99",)
    opened = [replace(first, axes={**first.axes, "size": size}) for size in ("m", "s")]
    with pytest.raises(ShapeshiftError, match="'size' is left open"):
        made(opened)


def test_a_run_without_a_log_has_no_curve(shape, monkeypatch):
    spec = CurvesSpec(each="recipe", lines="position", against="updates")
    measured = Measured(
        shape.runs({"recipe": "vanilla", "position": "ape"}), shape._root, shape._root
    )
    monkeypatch.setattr(measured, "validations", lambda planned: [])
    (made,) = curves(measured, spec, "c").tables
    assert not made.rows
    assert made.drawing is None
    assert "no validation in the log of ape seed 1" in made.notes


def test_figures_8_and_9_have_every_validation(build, shape):
    runs = shape.finished({"recipe": "interpolate"})
    for name in ("figure8", "figure9"):
        ours = table(build(f"shape:{name}"), f"{name}-interpolate")
        assert [row[2].value for row in ours.rows] == [2, 4] * len(runs)
    losses = [np.log(row[4].value) for row in ours.rows if row[2].value == 4]
    last = [m.value for run in runs for m in shape.results if (m.run, m.update) == (run.key, 4)]
    assert losses == pytest.approx(last)


# Shaw et al.


def test_the_clipping_distances_stand_next_to_the_papers_and_in_the_figure(build, studies):
    ours, paper = build("shaw:table2").tables
    published = ["12.5", "25.5", "25.8", "25.9", "25.8", "25.9", "25.8"]
    assert [row[1] for row in texts(paper)] == published
    for row in ours.rows:
        axes = {"k": row[0].text}
        [valid] = studies("shaw:table2").rows("BLEU", axes, split="valid")
        assert row[1].value == valid.value
    [line], names = ours.drawing.axes[0].get_legend_handles_labels()
    assert names == ["valid BLEU"]
    assert list(line.lines[0].get_ydata()) == [row[1].value for row in ours.rows]


# NHK


def test_corpora_are_counted_without_a_run(studies):
    measured = studies("nhk:table1")
    content = find_study("nhk:table1").build(measured)
    ours, paper = content.tables
    assert texts(ours) == [["en-de", "240", "20", "30"], ["de-en", "240", "20", "30"]]
    assert texts(paper)[2] == ["ja-en", "33,875,119", "1,005", "2,008"]


PANELS = ("all", "short, trained on 0–9", "long, trained on ≥ 26")


def test_figure3_shows_what_is_finished(build, studies):
    measured, content = studies("nhk:figure3"), build("nhk:figure3")
    sizes, by_length, _ = content.tables
    titles = [axes.get_title(loc="left") for axes in by_length.drawing.axes[:3]]
    assert titles == [f"({x}) {y}" for x, y in zip("abc", PANELS, strict=True)]
    assert by_length.header[:2] == ("lengths", "source length")
    rows = texts(by_length)
    assert [row[1] for row in rows[:5]] == ["0–9", "10–15", "16–21", "22–25", "≥ 26"]
    unfinished = by_length.header.index("original-qkv")
    assert [row[unfinished] == "–" for row in rows] == [False] * 5 + [True] * 5 + [False] * 5
    assert [row[1] for row in texts(sizes)] == ["all", "0–9", "16–21", "≥ 26"]
    short = measured.finished({"lengths": "short"})[0]
    lengths = measured.prepared(short).train.source_lengths
    assert [sizes.rows[1][place].value for place in (2, 3)] == [len(lengths), sum(lengths)]
    bleu = sizes.header.index("less-feeding-cross-pe BLEU")
    axes = {"lengths": "short", "position": "less-feeding-cross-pe"}
    [seen] = measured.rows("BLEU", axes, split="test", bucket="0–9")
    assert sizes.rows[1][bleu].value == pytest.approx(seen.value)
    decide, unseen, without, tokens = content.findings
    assert decide.measured.startswith("24 comparisons")
    assert "long relative-cross-pe against" in unseen.measured
    assert without.measured == "no runs in this profile"  # tiny has neither system
    assert tokens.measured == f"{slices.CLAIM}: not measured"  # no run of the middle slice
    assert content.values == {}


def test_a_claim_about_a_value_that_no_analysis_returns(studies):
    measured = studies("nhk:figure3")
    claim = ClaimSpec(claim="Few.", rule="threshold", metric="tokns", at_most=1, profiles=("tiny",))
    tests = plan_tests([claim], find_grid("nhk:figure3"), "tiny")
    [finding] = judge_claims(tests, measured, {"tokens": {1: 0.5}})
    assert finding.measured == "tokns: not measured; the analyses return tokens"


def test_slices_compare_bleu_on_the_lengths_in_training(monkeypatch, tmp_path):
    """The mean over the systems, of the seeds that all of them have."""
    runs = planned_runs("nhk:figure3", "tiny")
    asked = set()

    def is_finished(self, planned):
        is_last = planned.seed == 3 and planned.axes["position"] != "relative-cross-pe"
        return planned.axes["lengths"] in ("short", "middle") and not is_last

    def score_at(self, planned, metric, split, bounds):
        asked.add((planned.axes["lengths"], bounds))
        return 1.0 if planned.axes["lengths"] == "short" else 4.0 + planned.seed

    monkeypatch.setattr(Measured, "is_finished", is_finished)
    monkeypatch.setattr(Measured, "score_at", score_at)
    made = slices.own_lengths(Measured(runs, tmp_path, tmp_path))
    assert made.values == {slices.CLAIM: {1: 4.0, 2: 5.0}}
    assert asked == {("short", (0, 10)), ("middle", (16, 22))}


# Beyond the papers


def test_the_master_table_has_numbers_of_what_is_finished(build, studies):
    ours = table(build("beyond:master"), "master")
    rows = {row[0].text: dict(zip(ours.header, row, strict=True)) for row in ours.rows}
    assert list(rows) == studies("beyond:master").settings("position")
    for name in ("ape", "alibi"):
        unknown = {title for title, entry in rows[name].items() if entry.value is None}
        assert unknown == {"position", "shift invariant"}
    assert {entry.text for entry in rows["rope"].values()} == {"rope", "yes", "–"}
    invariant = {name for name, row in rows.items() if row["shift invariant"].text == "yes"}
    assert invariant >= {"nope", "rpe", "skew", "t5", "alibi", "rope", "xpos"}
    assert not invariant & {"ape", "learned", "shape", "randomized", "tupe"}


def test_learning_has_a_row_for_each_checkpoint(build, studies):
    content = build("beyond:learning")
    course = table(content, "learning")
    assert [row[1].value for row in course.rows] == [2, 4, 2, 4]
    last = dict(zip(course.header, course.rows[1], strict=True))
    original, swapped = last["BLEU, original order"].value, last["swapped order"].value
    assert last["drop"].value == pytest.approx(original - swapped)
    [layer] = [  # without the embeddings
        row.value
        for row in studies("beyond:learning").results
        if (row.axes.get("position"), row.update, row.bucket) == ("ape", 4, "layer 1 to 100")
    ]
    assert last["similarity to 100"].value == layer


def test_comparisons_whose_settings_have_the_same_names_are_all_judged(studies):
    both = {"values": "yes", "keys": "yes"}
    others = {"values": "no"}, {"keys": "no"}, {"values": "no", "keys": "no"}
    pairs = [(both, other) for other in others]
    finding = judged(studies("shaw:table3"), rule="better", pairs=pairs)
    assert list(finding.p_values) == [
        "values=yes keys=yes against values=no",
        "values=yes keys=yes against keys=no",
        "yes yes against no no",
    ]


def test_numbers_of_the_data_are_one_column_where_all_groups_have_the_same(shape):
    def made(rows, across):
        columns = {
            "train": {"count": "kept", "split": "train"},
            "invariant": {"metric": "shift invariant"},
        }
        spec = TableSpec(title="t", rows=[rows], across=across, columns=columns)
        return TableBuilder(spec, shape).table("t")

    by_dataset = made("position", "recipe")
    names = [f"{name} train" for name in ("vanilla", "extrapolate", "interpolate")]
    assert by_dataset.header == ("position", names[0], "invariant", *names[1:])
    sizes = [entry.value for entry in by_dataset.rows[0] if entry.value]
    data = [shape.prepared(shape.runs({"recipe": x.split()[0]})[0]) for x in names]
    assert sizes == [len(each.train) for each in data]
    by_position = made("recipe", "position")
    ours = [f"{name} invariant" for name in ("ape", "rpe", "shape")]
    assert by_position.header == ("recipe", "train", *ours)
    assert texts(by_position)[0][2:] == ["no", "yes", "no"]


def test_a_limit_of_a_score_is_about_the_split_that_is_named(shape):
    settings = {"recipe": "vanilla", "position": "ape"}
    for split in ("valid", "test"):
        [row] = shape.rows("chrF2", settings, split=mean_of(split))
        given = {"metric": "chrF2", "split": split, "test": settings}
        finding = judged(shape, rule="threshold", at_least=1, **given)
        assert finding.measured == f"chrF2: {row.value:.3f} (1 seed)"


def test_a_number_of_the_data_is_that_of_all_runs(shape):
    for given in ({"count": "kept"}, {"metric": "trained lengths"}):
        spec = TableSpec(title="t", rows=["position"], columns={"c": given})
        with pytest.raises(ShapeshiftError, match="'recipe' is left open"):
            TableBuilder(spec, shape).table("t")
