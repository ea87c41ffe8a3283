"""The items of NHK (Miyazaki et al. 2024), made of finished cells and of none."""

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.model import build
from shapeshift.papers.nhk import PAPER, figure3, table1
from shapeshift.papers.nhk.shared import ORIGINALS
from shapeshift.papers.planning import find_grid

from .conftest import MINUSCULE, texts, without_source

NEVER_RUN = (
    "data.corpus.num_train=240",
    "data.corpus.num_valid=20",
    "data.corpus.num_test=30",
    "data.subwords.vocab_size=200",
)
TRAINED = ("nhk-table2", "nhk-table3", "nhk-table5", "nhk-table6", "nhk-figure3")


@pytest.fixture(scope="module")
def nothing(make_study):
    return make_study("nhk-table1", *TRAINED, done=lambda cell: False, overrides=NEVER_RUN)


@pytest.fixture(scope="module")
def two_systems(make_study):
    """Table 2: the original with two seeds, CROSS-PE with one, nothing else."""

    def done(cell):
        return (cell.axes["system"], cell.seed) in [
            ("original-qkv", 1), ("original-qkv", 2), ("original-qkv-cross-pe", 1)
        ]  # fmt: skip

    return make_study("nhk-table2", done=done)


@pytest.fixture(scope="module")
def slices(make_study):
    """Figure 3: all but the slice in the middle; one system lacks a slice."""

    def done(cell):
        place = cell.axes["lengths"], cell.axes["system"]
        return place[0] != "middle" and place != ("short", "original-qkv")

    longer_pieces = ("data.subwords.vocab_size=600", "data.corpus.num_train=600")
    return make_study("nhk-figure3", done=done, seeds=(1,), extra=longer_pieces)


@pytest.mark.parametrize(
    ("item", "runs"), [("table1", "nothing"), ("table2", "two_systems"), ("figure3", "slices")]
)
def test_every_number_of_ours_says_what_it_is_from(item, runs, request):
    assert without_source(PAPER.items[item].build(request.getfixturevalue(runs))) == set()


@pytest.mark.parametrize("item", [name for name in PAPER.items if name != "table1"])
def test_an_item_without_runs_is_all_dashes_and_judges_nothing(item, nothing):
    content = PAPER.items[item].build(nothing)
    ours = content.tables[0]
    assert not any(entry.value is not None for row in ours.rows for entry in row)
    assert {row[-1] for row in texts(ours)} == {"–"}
    assert content.figures == []
    verdicts = {finding.verdict for finding in content.findings}
    assert verdicts <= {"not run", "not tested at this scale"}


def test_table1_counts_the_corpora_without_a_run(nothing):
    ours, paper = table1.build(nothing).tables
    assert texts(ours) == [["en-de", "240", "20", "30"], ["de-en", "240", "20", "30"]]
    assert texts(paper)[2] == ["ja-en", "33,875,119", "1,005", "2,008"]


def test_table1_compares_with_the_paper_at_its_scale_alone(nothing):
    [finding] = table1.build(nothing).findings
    assert finding.verdict == "not tested at this scale"
    assert "en-de 240, 20, 30; de-en 240, 20, 30" in finding.measured


def test_table1_says_which_text_cannot_be_had(nothing, monkeypatch):
    assert not table1.build(nothing).lacks_text
    prepared = nothing.prepared

    def some(cell):
        if cell.axes["languages"] == "de-en":
            raise ShapeshiftError("no such file")
        return prepared(cell)

    monkeypatch.setattr(nothing, "prepared", some)
    content = table1.build(nothing)
    assert content.lacks_text
    assert texts(content.tables[0])[1] == ["de-en", "–", "–", "–"]
    assert content.findings[0].measured.endswith("within 2%. de-en: no such file")


THEIRS = dict(table1.PUBLISHED)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (THEIRS, "supported"),
        ({**THEIRS, "de-fr": THEIRS["fr-de"], "ja-en": (33_500_000, 1_000, 2_037)}, "supported"),
        ({**THEIRS, "en-ja": (30_000_000, 1_000, 2_037)}, "contradicted"),
        ({**THEIRS, "fr-de": (17_975_604, 1_026, 2_100)}, "contradicted"),
        ({name: THEIRS[name] for name in ("fr-de", "de-fr")}, "not run"),
        ({}, "not run"),
    ],
)
def test_table1_counts_agree_within_two_percent_of_one_reading(found, verdict):
    assert table1.judge(found) == verdict


def test_the_other_direction_has_the_same_sentences_turned_round(nothing):
    there, back = (
        nothing.prepared(nothing.cells("nhk-table1", {"languages": each})[0]).text("test")
        for each in ("en-de", "de-en")
    )
    assert there == back[::-1]


def test_median_and_average_over_seeds(two_systems):
    ours, paper = PAPER.items["table2"].build(two_systems).tables
    assert [row[:3] for row in texts(ours)[8:]] == [row[:3] for row in texts(paper)[4:]]
    values = [
        row.value
        for row in two_systems.rows(
            "nhk-table2", "BLEU", {"system": "original-qkv"}, dataset="test"
        )
    ]
    median, average = ours.rows[:2]
    assert median[3].value == average[3].value == pytest.approx(sum(values) / 2)
    assert " ± " in average[3].text
    assert {row[4].text for row in ours.rows} == {"–"}  # COMET
    assert texts(ours)[8] == ["less-feeding", "none", "median", "–", "–"]


@pytest.mark.parametrize(
    ("item", "columns", "rows"),
    [("table2", 5, 12), ("table3", 12, 10), ("table5", 6, 16), ("table6", 12, 12)],
)
def test_the_papers_tables_are_whole(item, columns, rows, nothing):
    paper = PAPER.items[item].build(nothing).tables[1]
    assert (len(paper.header), len(paper.rows)) == (columns, rows)
    assert not any(entry.text == "–" for row in paper.rows for entry in row)


def test_figure3_shows_what_all_finished_slices_have(slices):
    content = figure3.build(slices)
    by_length, sizes, paper = content.tables
    [drawn] = content.figures
    assert drawn.about.table == by_length.name
    titles = [axes.get_title(loc="left") for axes in drawn.drawing.axes]
    assert [title.split(":")[0] for title in titles if title] == ["(a) all", "(b) 0–9", "(c) ≥ 26"]
    assert "original-embedding" in drawn.about.alt
    assert "original-qkv" not in drawn.about.alt  # it is not finished on the short slice
    assert [row[0] for row in texts(sizes)] == ["0–9", "16–21", "≥ 26"]
    assert texts(sizes)[1][1:3] == ["–", "–"]
    short = slices.cells("nhk-figure3", {"lengths": "short"})[0]
    lengths = slices.prepared(short).train.source_lengths
    assert [sizes.rows[0][place].value for place in (1, 2)] == [len(lengths), sum(lengths)]
    assert texts(paper)[0][1:3] == ["8,052,523", "93,327,696"]
    decide, unseen = content.findings
    assert "no finished run" in decide.measured or "without runs" in decide.measured
    assert "trained on 0–9, tested on others" in unseen.measured


def test_the_first_slice_ends_where_the_second_bucket_begins(slices):
    edges = slices.cells("nhk-figure3")[0].config.evaluation.length_buckets
    by_length = figure3.build(slices).tables[0]
    assert by_length.header[2:] == ("0–9", "10–15", "16–21", "22–25", "≥ 26")
    assert edges == (10, 16, 22, 26)


def test_the_two_readings_of_original_are_two_models():
    """The residual stream has positions in one of them alone: without the output of
    self-attention, only positions at the embedding tell one order of the source from another."""
    models = {}
    for cell in find_grid("nhk-table2").cells("tiny", MINUSCULE):
        if cell.axes["system"] in ORIGINALS and cell.seed == 1:
            torch.manual_seed(1)
            model = build(cell.config.model, cell.config.position.scheme, 50, 50).eval()
            models[cell.axes["system"]] = model
    qkv, embedding = models[ORIGINALS[0]], models[ORIGINALS[1]]
    assert all(map(torch.equal, qkv.parameters(), embedding.parameters()))
    source, target = torch.tensor([[11, 12, 13, 14, 3]]), torch.tensor([[2, 21, 22, 23]])
    swapped = torch.tensor([[13, 12, 11, 14, 3]])
    with torch.no_grad():
        assert (qkv(source, target) - embedding(source, target)).abs().max() > 0.5
        for model in models.values():
            for layer in (*model.encoder, *model.decoder):
                layer.attention.out.weight.zero_()
                layer.attention.out.bias.zero_()
        torch.testing.assert_close(qkv(source, target), qkv(swapped, target))
        assert (embedding(source, target) - embedding(swapped, target)).abs().max() > 0.01
