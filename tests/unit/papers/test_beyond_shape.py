"""Figures 2, 4, 6, 8 and 9 of the SHAPE paper and its search for K, for every position: a few of
them, of few updates."""

import pytest

from shapeshift.analysis.curves import RunCurve
from shapeshift.papers.beyond import curves, offsets, similarity, tokens
from shapeshift.papers.beyond.master import DATASETS
from shapeshift.papers.planning import find_grid

FINISHED = ("ape", "alibi", "shape")
OWN_TEXT = ("data.corpus.num_train=238",)
"""Of no other test: what is not done elsewhere stays undone."""


@pytest.fixture(scope="module")
def study(make_study):
    """Three positions on both datasets, and one on one of them."""

    def done(cell):
        position = cell.axes["position"]
        return position in FINISHED or (*cell.axes.values(),) == ("extrapolate", "rope")

    return make_study(DATASETS, done=done, seeds=(1,), extra=OWN_TEXT)


@pytest.fixture(scope="module")
def shares(study):
    return tokens.build(study)


def fields(content, name):
    """Return row → column → entry."""
    [table] = [table for table in content.tables if table.name == name]
    return {row[0].text: dict(zip(table.header, row, strict=True)) for row in table.rows}


def test_shares_have_a_row_for_every_position_but_the_baseline(study, shares):
    positions = [name for name in study.settings(DATASETS, "position") if name != "ape"]
    extrapolate = fields(shares, "shares-extrapolate")
    assert list(extrapolate) == list(fields(shares, "shares-interpolate")) == positions
    known = {name for name, row in extrapolate.items() if row["all"].value is not None}
    assert known == {"shape", "alibi", "rope"}
    known = {
        name
        for name, row in fields(shares, "shares-interpolate").items()
        if row["all"].value is not None
    }
    assert known == {"shape", "alibi"}


def test_a_share_is_the_mean_of_its_cells(shares):
    [table] = [table for table in shares.tables if table.name == "tokens-extrapolate"]
    assert table.header == ("system", "occurrences", "position", "tokens", "share (%)")
    own = [(row[3].value, row[4].value) for row in table.rows if row[0].text == "alibi"]
    total = sum(tokens for tokens, _ in own)
    mean = sum(tokens * share for tokens, share in own) / total
    row = fields(shares, "shares-extrapolate")["alibi"]
    assert row["all"].value == pytest.approx(mean)
    assert total > 100
    rare, others = (row[title].value for title in ("under 1,000 occurrences", "others"))
    assert others is None or min(rare, others) <= row["all"].value <= max(rare, others)


def test_heat_maps_show_who_is_there(shares):
    drawn = {each.about.name: each for each in shares.figures}
    assert list(drawn) == ["tokens-extrapolate", "tokens-interpolate"]
    titles = [
        axes.get_title(loc="left")
        for axes in drawn["tokens-extrapolate"].figure.axes
        if axes.images
    ]
    assert titles == ["shape", "alibi", "rope"]
    assert {each.about.table for each in shares.figures} == set(drawn)


def test_claims_are_of_shift_invariant_kinds(shares):
    assert len(shares.findings) == 3
    for finding in shares.findings:
        assert finding.verdict in ("cannot tell", "does not hold")  # most are not finished
        assert "alibi" in finding.measured
        assert "shape" not in finding.measured
    assert "alibi " in shares.findings[2].measured
    assert " and " in shares.findings[2].measured


@pytest.mark.parametrize(
    ("perplexity", "share"),
    [
        ((9.0, 5.0, 4.0, 3.0), 1.0),
        ((9.0, 2.9, 4.0, 3.5), 0.5),
        ((3.0, 2.0, 1.5, 1.2), 0.25),
        ((9.0, 8.0, 7.0, 6.0), None),
    ],
)
def test_share_of_the_baseline_s_updates(perplexity, share):
    baseline = RunCurve((10, 20, 30, 40), None, (8.0, 6.0, 4.0, 3.0), ())
    assert curves.share_of_updates(RunCurve((10, 20, 30, 40), None, perplexity, ()), baseline) == (
        share
    )


def test_curves_tell_when_the_baseline_s_last_perplexity_is_reached(study):
    content = curves.build(study)
    rows = fields(content, "reached-interpolate")
    assert list(rows) == study.settings(DATASETS, "position")
    [ape] = study.finished(DATASETS, {"dataset": "interpolate", "position": "ape"})
    run = curves.curves.curves.read_run(study.run(ape).directory)
    assert rows["ape"]["last perplexity"].value == run.perplexity[-1]
    assert rows["ape"]["updates (ape = 1)"].value <= 1
    assert rows["rope"]["last perplexity"].text == "–"
    names = [each.about.name for each in content.figures]
    assert names == [
        "curves-extrapolate",
        "time-extrapolate",
        "curves-interpolate",
        "time-interpolate",
    ]
    labels = {line.get_label() for line in content.figures[0].figure.axes[0].lines}
    assert {*FINISHED, "rope"} <= labels
    relative, renumbered = content.findings
    assert relative.verdict in ("cannot tell", "does not hold")
    assert relative.measured.startswith("share of ape's updates, by seed: extrapolate: ")
    assert "alibi" in relative.measured
    assert "shape" in renumbered.measured
    assert "alibi" not in renumbered.measured


def test_similarity_has_every_layer_and_is_one_where_kinds_are_shift_invariant(study):
    content = similarity.build(study)
    rows = fields(content, "layers")
    assert list(rows) == study.settings(DATASETS, "position")
    assert list(rows["ape"]) == ["position", "embeddings", "layer 1"]
    assert [entry.value for entry in rows["alibi"].values()][1:] == pytest.approx([1, 1])
    for name in ("ape", "shape"):
        assert rows[name]["embeddings"].value < 0.9999
    assert {entry.text for entry in rows["rope"].values()} == {"rope", "–"}
    [drawn] = content.figures
    assert drawn.about.table == "similarity"
    [matrices] = [table for table in content.tables if table.name == "similarity"]
    states = list(dict.fromkeys(row[0].text for row in matrices.rows))
    systems = ("ape", "shape")  # of alibi there would be ones alone
    assert states == [f"{name}, {layer}" for name in systems for layer in ("embeddings", "layer 1")]
    [finding] = content.findings
    assert "alibi" not in finding.measured
    assert finding.verdict == "does not hold"  # of shape; randomized is not finished
    off_diagonal = [
        row[2 + other].value
        for place, row in enumerate(row for row in matrices.rows if row[0].text == "shape, layer 1")
        for other in range(place + 1, 4)
    ]
    assert rows["shape"]["layer 1"].value == pytest.approx(sum(off_diagonal) / 6)


def test_offsets_has_kinds_that_a_shift_changes_and_shares_the_paper_s_search(make_study):
    done = {("sinusoidal", "40"), ("sinusoidal", "500"), ("learned", "40")}
    study = make_study(
        "beyond-offsets",
        done=lambda cell: (*cell.axes.values(),) in done,
        seeds=(1,),
        extra=OWN_TEXT,
    )
    content = offsets.build(study)
    rows = fields(content, "offsets")
    assert list(rows) == ["sinusoidal", "learned", "tupe"]
    measured = {
        (kind, title.removeprefix("K = "))
        for kind, row in rows.items()
        for title, entry in row.items()
        if entry.value is not None
    }
    assert measured == done
    assert {row["best K"].text for row in rows.values()} == {"–"}
    little, tuned = content.findings
    assert little.verdict in ("cannot tell", "does not hold")
    assert "learned, K = 40 and 500: not measured" in tuned.measured
    for scale in ("tiny", "small", "paper"):
        theirs = {cell.key for cell in find_grid("shape-offsets").cells(scale)}
        own = {
            cell.key
            for cell in find_grid("beyond-offsets").cells(scale)
            if cell.axes["kind"] == "sinusoidal"
        }
        assert own == theirs
