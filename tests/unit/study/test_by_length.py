import pytest

from shapeshift._system.errors import ShapeshiftError
from shapeshift.evaluation.metrics import Score
from shapeshift.evaluation.scores import LengthBucket, Scores
from shapeshift.study.by_length import LengthValues, gather, values_by_length
from shapeshift.study.figures import draw_lines
from shapeshift.study.measured import Measured
from shapeshift.study.spec import ByLengthSpec
from shapeshift.study.verdicts import Part

from .conftest import planned_runs

BOUNDS = ((0, 10), (10, 20), (20, 30), (30, None))
COUNTS = (40, 30, 0, 3)


def scores(*values, signature="tok:13a", references="", counts=COUNTS):
    """Scores whose buckets have these BLEU values; `None` for an empty bucket."""
    buckets = []
    for (low, high), n, x in zip(BOUNDS, counts, values, strict=True):
        score = {"name": "BLEU", "value": x, "signature": signature, "details": {}}
        found = None if x is None else Score(**score)
        buckets.append(LengthBucket(low=low, high=high, num_segments=n, score=found))
    hashes = {"hypotheses_sha256": "", "references_sha256": references}
    return Scores(version="0", num_segments=73, scores=(), by_length=tuple(buckets), **hashes)


APE = [scores(20, 24, None, 4), scores(22, 24, None, 8)]
SHAPE = [scores(24, 25, None, 20)]


def panel(systems, trained=None):
    return LengthValues(*gather(systems), trained).panel()


def test_gains_are_measured_from_the_mean_of_the_baseline():
    _, values = gather({"APE": SHAPE, "SHAPE": APE}, "APE")
    assert values == {"SHAPE": [[-4, -2], [-1, -1], [], [-16, -12]]}
    _, lower = gather({"APE": SHAPE, "SHAPE": APE}, "APE", lower_is_better=True)
    assert lower == {"SHAPE": [[4, 2], [1, 1], [], [16, 12]]}


def test_lengths_that_no_sentence_has_are_left_out_at_the_end():
    short = [scores(20, 24, None, None, counts=(40, 33, 0, 0))]
    drawn = panel({"APE": short, "SHAPE": short})
    assert drawn.places == ["0–9\n40", "10–19\n33"]
    assert [list(line.values) for line in drawn.lines] == [[[20], [24]]] * 2


@pytest.mark.parametrize(
    "other", [{"references": "a"}, {"signature": "tok:zh"}, {"counts": (39, 31, 0, 3)}]
)
def test_only_scores_of_one_text_with_one_signature_are_compared(other):
    with pytest.raises(ShapeshiftError, match="APE, SHAPE have different references"):
        gather({"APE": APE, "SHAPE": [scores(24, 25, None, 20, **other)]})


@pytest.mark.parametrize(
    ("trained", "unseen"),
    [(None, []), ((1, None), []), ((1, 20), [2, 3]), ((1, 16), [2, 3]), ((10, 20), [0, 2, 3]),
     ((30, None), [0, 1, 2]), ((1, 1000), [])],
)  # fmt: skip
def test_buckets_without_a_length_of_training_are_shaded(trained, unseen):
    assert panel({"APE": APE}, trained).shaded == [(x - 0.5, x + 0.5) for x in unseen]


def test_places_name_lengths_and_counts_and_small_buckets_are_hollow():
    drawn = panel({"SHAPE": SHAPE})
    assert drawn.places == ["0–9\n40", "10–19\n30", "20–29\n0", "≥ 30\n3"]
    assert drawn.lines[0].hollow == [3]
    [axes] = draw_lines([drawn], "").axes
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [20]


@pytest.fixture
def build(monkeypatch, tmp_path):
    """Makes a table by length of runs, all with the same scores, of which some are done."""

    def make(is_done, **spec):
        monkeypatch.setattr(Measured, "is_finished", lambda self, planned: is_done(planned.axes))
        monkeypatch.setattr(Measured, "scores", lambda *_, **__: scores(20, 24, None, 4))
        runs = sorted(planned_runs("shape:table2", "tiny"), key=lambda x: x.axes["recipe"])
        measured = Measured(runs, tmp_path, tmp_path)
        [table] = values_by_length(measured, ByLengthSpec(title="t", **spec), "t").tables
        return table

    return make


def test_the_first_system_is_the_baseline_even_without_runs(monkeypatch, build):
    """A test against the next one would be another test in each panel."""
    compared = []
    monkeypatch.setattr(Measured, "compare", lambda *given, **_: compared.append(given) or Part({}))

    def is_done(axes):
        return axes["position"] != "ape" and axes["recipe"] == "vanilla"

    table = build(is_done, lines="position", panels="recipe", tested=True)
    assert {"rpe", "shape"} <= {*table.header}
    assert compared == []
    assert table.notes[-1] == "not tested, as there is no finished run of ape and another: vanilla"


@pytest.mark.parametrize(
    ("lines", "only", "is_unseen"),
    [("position", {"recipe": "extrapolate"}, True), ("recipe", {"position": "ape"}, False)],
)
def test_lengths_are_unseen_where_all_lines_were_trained_on_the_same(build, lines, only, is_unseen):
    """Extrapolate in profile tiny is trained on short sentences; vanilla on all."""
    table = build(lambda axes: True, lines=lines, only=only)
    assert any("anything in training" in note for note in table.notes) == is_unseen
