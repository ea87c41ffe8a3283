"""Every item of the SHAPE paper, built from runs that were really trained and measured."""

import hashlib
from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest

from shapeshift.lab.analysis.token_gain import TokenGain
from shapeshift.lab.measures import ORIGINAL, SWAPPED, hypotheses_file, references_file
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.planning import find_grid
from shapeshift.papers.shape import PAPER, curves, datasets, figure4, similarity, table1
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import shown
from shapeshift.papers.write import write_item

from .conftest import without_source

GRID = "shape-table2"
ITEMS = {
    name: item for name, item in PAPER.items.items() if {*item.grids} <= {GRID, "shape-offsets"}
}
NO_VALUE = "–"
ORDER = "original order"
DRAWN = ["figure2", "figure3", "figure4", "table3", "offsets", "figure6", "figure7", "figure8"]


@pytest.fixture(scope="session")
def contents(finished):
    """Each item's content, by name."""
    return {name: item.build(finished) for name, item in ITEMS.items()}


@pytest.fixture(scope="session")
def max_length(finished):
    """The most subwords of a training sentence of Extrapolate."""
    return finished.cells(GRID, {"dataset": "extrapolate"})[0].config.data.dataset.max_length


def document(name, content, study):
    return ItemDocument(
        paper="shape",
        item=name,
        title=PAPER.items[name].title,
        citation=PAPER.citation,
        scale="tiny",
        command="pytest",
        version="0",
        time="now",
        tables=tuple(content.tables),
        figures=tuple(drawn.about for drawn in content.figures),
        findings=tuple(content.findings),
        measurements=study.measurements,
    )


def table(contents, item, name=None):
    return next(t for t in contents[item].tables if t.name == (name or item))


def column(table, title):
    """The fields of a column, by what the row's words say."""
    place = table.header.index(title)
    return {" ".join(e.text for e in row[:2] if e.value is None): row[place] for row in table.rows}


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_makes_a_whole_document(name, contents, finished):
    made = document(name, contents[name], finished)
    assert ItemDocument.model_validate_json(made.model_dump_json()) == made
    origins = [each.origin for each in made.tables]
    assert origins == sorted(origins)  # ours, then the paper's
    assert made.tables[0].rows
    if name.startswith("table") or name == "offsets":
        assert "paper" in origins
    for figure in made.figures:
        assert len(figure.alt) > 40


@pytest.mark.parametrize("name", ITEMS)
def test_every_number_of_ours_says_what_it_is_from_but_for_updates(name, contents, finished):
    assert without_source(contents[name]) <= {"update"}
    keys = {cell.key for grid in PAPER.items[name].grids for cell in finished.cells(grid)}
    entries = [e for t in contents[name].tables for row in t.rows for e in row]
    assert {key for entry in entries for key in entry.cells} <= keys


@pytest.mark.parametrize("name", DRAWN)
def test_an_item_of_figures_draws_them(name, contents, finished):
    assert contents[name].figures
    axes = [axes for drawn in contents[name].figures for axes in drawn.drawing.axes]
    assert all(each.has_data() for each in axes if each.axison)


def test_an_item_is_written(contents, finished, tmp_path):
    made = document("offsets", contents["offsets"], finished)
    paths = write_item(made, contents["offsets"].figures, tmp_path)
    names = {path.name for path in paths}
    assert {"item.json", "offsets.md", "offsets-paper.csv", "offsets.tex", "offsets.png"} <= names
    assert ItemDocument.load(tmp_path / "item.json") == made


@pytest.mark.parametrize("name", ITEMS)
def test_without_runs_there_are_dashes_and_nothing_is_judged(name, unfinished):
    content = PAPER.items[name].build(unfinished)
    made = document(name, content, unfinished)
    verdicts = {finding.verdict for finding in content.findings}
    assert verdicts <= {"not run", "not tested at this scale"}
    if PAPER.items[name].trained:
        assert not content.figures
        assert made.is_empty


def test_interpolate_is_scored_joined_and_by_sentence(contents, finished):
    by_sentence = table(contents, "table2", "table2-by-sentence")
    assert by_sentence.header == ("position", "valid BLEU", "test BLEU")
    for row in by_sentence.rows:
        named = [finished.measurements[number] for entry in row[1:] for number in entry.rows]
        assert {m.metric for m in named} == {"BLEU by sentence"}
        assert {m.axes["dataset"] for m in named} == {"interpolate"}
    assert any("<sep>" in note for note in table(contents, "table2").notes)


def test_table_1_has_the_mean_over_seeds_and_their_difference(contents, finished):
    ours = table(contents, "table1")
    rows = {row[0].text: row for row in ours.rows}
    for position in ("ape", "shape"):
        original, swapped, drop = rows[position][1:4]
        assert len(original.rows) == 2
        assert drop.value == pytest.approx(original.value - swapped.value)
        assert drop.rows == original.rows + swapped.rows
        named = [finished.measurements[number] for number in original.rows]
        assert {(m.bucket, m.axes["dataset"]) for m in named} == {("original order", "interpolate")}


def test_table_1_tests_what_ape_loses_more_on_the_translations_that_were_kept(contents, finished):
    [told] = contents["table1"].findings
    assert told.verdict == "two runs"
    ape, shape = ({"dataset": "interpolate", "position": name} for name in table1.PAIR)
    test = finished.compare(GRID, ape, shape, ORIGINAL, minus=SWAPPED).comparison
    assert list(test.p_values) == [1, 2]
    drops = column(table(contents, "table1"), "performance drop")
    assert test.score == pytest.approx(drops["ape"].value)
    assert test.baseline_score == pytest.approx(drops["shape"].value)
    assert f"({test.difference:+.2f}, {shown(test.p_value)}, 2 seeds)" in told.measured
    for cell in finished.finished(GRID, ape):
        results = finished.run(cell).directory / "results"
        hashes = {
            (row.bucket, row.hypotheses, row.references)
            for row in finished.rows(GRID, "BLEU", {**cell.axes, "seed": cell.seed}, bucket=ORDER)
        }
        texts = (hypotheses_file(ORIGINAL), references_file(ORIGINAL))
        kept = (hashlib.sha256((results / name).read_bytes()).hexdigest() for name in texts)
        assert hashes == {(ORDER, *kept)}


def test_runs_measured_before_translations_were_kept_have_no_test(finished, monkeypatch):
    monkeypatch.setattr(Study, "_has_texts", lambda *given: False)
    content = table1.build(finished)
    assert [row[3].value is not None for row in content.tables[0].rows] == [True, True]
    [now] = content.findings
    assert now.verdict == "not run"
    assert "have not kept their translations" in now.measured


def test_figure_6_agrees_with_what_was_measured_after_training(contents, finished):
    layers = table(contents, "figure6", "figure6-layers")
    assert layers.header[1:] == (
        "ape, 0, 100, 250, 500",
        "shape, 0, 100, 250, 500",
        "ape, 0, 2, 5, 10",
        "shape, 0, 2, 5, 10",
    )
    [row] = layers.rows
    assert row[0].text == "layer 1"
    for place, position in ((1, "ape"), (2, "shape")):
        axes = {"dataset": "interpolate", "position": position}
        rows = finished.rows(GRID, "shift_similarity", axes, bucket="layer 1")
        assert {r.seed for r in rows} == {1, 2}
        assert row[place].value == pytest.approx(fmean(r.value for r in rows), abs=1e-5)
    assert row[3].value > row[1].value  # smaller shifts change less
    assert contents["figure6"].findings
    sentences = table(contents, "figure6", "figure6-sentences").rows
    layers = table(contents, "figure6", "figure6-layers").rows
    for place, of_layers in ((1, 1), (3, 2)):  # ape, shape: means over the same numbers
        mean = fmean(row[place].value for row in sentences)
        assert mean == pytest.approx(fmean(row[of_layers].value for row in layers), abs=1e-6)


def test_table_2_takes_speeds_from_the_measure(contents):
    ours = table(contents, "table2")
    speeds = column(ours, "speed")
    for dataset in ("vanilla", "extrapolate"):
        told = [speeds[f"{dataset} {position}"].text for position in ("ape", "rpe", "shape")]
        assert told == ["1.00", "0.75", "0.97"]
    assert column(table(contents, "table2", "table2-paper"), "speed")[
        "extrapolate shape-40"
    ].text == (NO_VALUE)
    [cost] = [f for f in contents["table2"].findings if "as fast" in f.claim]
    assert "speed extrapolate: 0.970 (1 seed)" in cost.measured
    assert cost.verdict == "not tested at this scale"


def test_table_5_averages_the_sets(contents):
    ours = table(contents, "table5")
    assert ours.header == ("dataset", "position", "valid", "test", "average", "speed")
    for row in ours.rows:
        assert row[4].value == pytest.approx((row[2].value + row[3].value) / 2)
        assert row[4].rows == row[2].rows + row[3].rows


def test_figures_3_and_7_count_all_sentences_of_both_sets(contents, finished):
    [cell] = finished.finished(GRID, {"dataset": "extrapolate", "position": "ape"})
    data = finished.prepared(cell)
    gains = table(contents, "figure3", "figure3-extrapolate")
    absolute = table(contents, "figure7", "figure7-extrapolate")
    assert sum(row[1].value for row in gains.rows) == len(data.valid) + len(data.test)
    assert gains.header == ("source length", "segments", "rpe", "shape")
    assert absolute.header == ("source length", "segments", "ape", "rpe", "shape")
    for gain, row in zip(gains.rows, absolute.rows, strict=True):
        if gain[2].value is not None:
            assert gain[2].value == pytest.approx(row[3].value - row[2].value)


def test_sentences_beyond_training_are_tested(contents, max_length):
    for finding in contents["figure3"].findings:
        assert f"over {max_length} subwords" in finding.measured
        assert "p = " in finding.measured
        assert finding.verdict == "one run"


def test_figure_4_counts_every_token_of_every_seed(contents, finished, max_length):
    for dataset, num_seeds in (("extrapolate", 1), ("interpolate", 2)):
        ours = table(contents, "figure4", f"figure4-{dataset}")
        axes = {"dataset": dataset, "position": "ape", "seed": 1}
        [cell] = finished.finished(GRID, axes)
        store = finished.prepared(cell).valid
        num_tokens = int(store.target_lengths.sum()) + len(store)  # with </s>
        assert sum(row[2].value for row in ours.rows) == num_seeds * num_tokens
    # A bound stands where training ends: after the longest sentence and its </s>.
    ranges = [row[1].text for row in table(contents, "figure4", "figure4-extrapolate").rows]
    assert any(each.startswith(f"{max_length + 1}–") for each in ranges)


def test_table_3_has_the_sizes_and_figure_5_every_sentence(contents, finished, max_length):
    ours = table(contents, "table3")
    num_joined = finished.cells(GRID, {"dataset": "interpolate"})[0].config.data.dataset.num_joined
    assert column(ours, "test pairs")["vanilla"].value == 30
    assert column(ours, "valid pairs")["interpolate"].value == -(-20 // num_joined)
    assert column(ours, "longest source in training")["extrapolate"].value <= max_length
    sizes = column(ours, "train pairs")
    bins = table(contents, "table3", "figure5")
    for dataset in ("vanilla", "extrapolate", "interpolate"):
        own = [row for row in bins.rows if row[0].text == dataset]
        [cell, *_] = finished.cells(GRID, {"dataset": dataset})
        fingerprint = finished.prepared(cell).report.fingerprint
        assert {(e.cells, e.data) for row in own for e in row[2:]} == {((cell.key,), fingerprint)}
        for side in (2, 3):
            assert sum(row[side].value for row in own) == sizes[dataset].value


def test_text_that_is_not_there_leaves_dashes(tmp_path):
    grid = find_grid(GRID)
    cells = {GRID: grid.cells("small", [f"data.corpus.root={tmp_path / 'nowhere'}"])}
    study = Study(cells, {GRID: grid.config.steps}, tmp_path / "cells", tmp_path / "prepared")
    content = PAPER.items["table3"].build(study)
    assert content.lacks_text
    assert all(row[1].text == NO_VALUE for row in content.tables[0].rows)
    [finding] = content.findings
    assert finding.verdict == "not run"
    assert "nowhere" in finding.measured


@pytest.mark.parametrize(("num_pairs", "verdict"), [(4_480, "supported"), (4_300, "contradicted")])
def test_sizes_are_compared_at_the_papers_scale(num_pairs, verdict, monkeypatch):
    sizes = {"vanilla": num_pairs, "extrapolate": 3_900, "interpolate": 450}
    assert {name: count // 1000 for name, (_, count) in datasets.PUBLISHED.items()} == {
        "vanilla": 4_500,
        "extrapolate": 3_900,
        "interpolate": 450,
    }
    monkeypatch.setattr(
        datasets, "PUBLISHED", {k: ("", v // 1000) for k, (_, v) in datasets.PUBLISHED.items()}
    )

    class Sized:
        directory = "somewhere"

        def __init__(self, size):
            self.source_lengths = self.target_lengths = np.full(size, 20, dtype=np.int32)

        def __len__(self):
            return len(self.source_lengths)

    def prepared(cell):
        store = Sized(sizes[cell.key])
        report = SimpleNamespace(fingerprint="f")
        return SimpleNamespace(train=store, store=lambda split: store, report=report)

    study = SimpleNamespace(
        scale="paper",
        settings=lambda grid, axis: [*sizes],
        cells=lambda grid, axes: [SimpleNamespace(key=axes["dataset"])],
        prepared=prepared,
    )
    [finding] = PAPER.items["table3"].build(study).findings
    assert finding.verdict == verdict
    assert f"vanilla {num_pairs:,}" in finding.measured


def test_values_of_k_that_are_not_done_are_dashes(contents):
    ours = table(contents, "offsets")
    assert [row[0].text for row in ours.rows if row[1].value is None] == ["20", "30", "100"]
    [drawn] = contents["offsets"].figures
    assert "at 10, " in drawn.about.alt
    assert "at 20" not in drawn.about.alt
    assert {f.verdict for f in contents["offsets"].findings} == {"not tested at this scale"}


def test_figures_8_and_9_have_every_validation(contents, finished):
    for item in ("figure8", "figure9"):
        ours = table(contents, item, f"{item}-interpolate")
        num_runs = len(finished.finished(GRID, {"dataset": "interpolate"}))
        assert [row[2].value for row in ours.rows] == [2, 4] * num_runs
        assert all(row[3].value is not None for row in ours.rows)
    one = finished.finished(GRID, {"dataset": "vanilla", "position": "rpe"})[0]
    losses = [m.value for m in finished.results.rows if m.cell == one.key and m.step == 4]
    assert len(losses) == 1
    last = [row for row in table(contents, "figure8", "figure8-vanilla").rows if row[2].value == 4]
    assert last[1][4].value == pytest.approx(np.exp(losses[0]))


def test_runs_whose_times_are_lost_are_left_out_of_figure_9(finished, monkeypatch):
    read = curves.read_run
    monkeypatch.setattr(curves, "read_run", lambda folder: replace(read(folder), elapsed_s=None))
    content = PAPER.items["figure9"].build(finished)
    assert not content.figures
    assert content.tables[0].rows[0][3].text == NO_VALUE


def test_table_6_counts_parameters(contents):
    sizes = column(table(contents, "table6"), "parameters")
    assert sizes["ape vanilla"].value == sizes["shape vanilla"].value
    assert sizes["rpe vanilla"].value > sizes["ape vanilla"].value


def test_figure_6_has_no_second_group_where_training_had_the_papers_offsets(finished, monkeypatch):
    monkeypatch.setattr(similarity, "OFFSETS", (0, 2, 5, 10))  # what K = 10 has inside
    content = PAPER.items["figure6"].build(finished)
    assert content.tables[1].header == ("states", "ape, 0, 2, 5, 10", "shape, 0, 2, 5, 10")
    assert len(content.tables[1].rows) == 1


def test_bleu_by_length_has_the_buckets_of_the_cell_that_asks(finished):
    [cell] = finished.finished(GRID, {"dataset": "extrapolate", "position": "ape"})
    evaluation = cell.config.evaluation.model_copy(update={"length_buckets": (7,)})
    other = replace(cell, config=cell.config.model_copy(update={"evaluation": evaluation}))
    assert other.key == cell.key  # one run, which both grids score
    assert len(finished.scores(cell).by_length) == len(cell.config.evaluation.length_buckets) + 1
    assert len(finished.scores(other).by_length) == 2
    both = finished.scores(cell, "valid", "test")
    assert both.num_segments == 20 + 30


def test_shares_of_some_tokens():
    gain = TokenGain(
        system="shape",
        baseline="ape",
        position_edges=(10,),
        frequency_edges=(1_000,),
        higher=((60, 10), (20, 0)),
        ties=((0, 20), (0, 0)),
        total=((100, 40), (50, 10)),
    )
    assert figure4.share(gain) == pytest.approx(50.0)
    assert figure4.share(gain, begin=10) == pytest.approx(40.0)
    assert figure4.share(gain, below=1_000) == pytest.approx(100 * 80 / 140)
    assert figure4.share(gain, below=-1_000) == pytest.approx(100 * 20 / 60)
    assert figure4.share(gain, begin=10, below=-1_000) is None  # ten tokens are too few
