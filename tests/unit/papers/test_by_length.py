import pytest

from shapeshift.evaluation.lengths import LengthBucket
from shapeshift.evaluation.metrics import Score
from shapeshift.evaluation.scores import Scores
from shapeshift.lab.figures import draw_lines
from shapeshift.papers.by_length import LengthBleu, gather

EDGES = (10, 20, 30)
COUNTS = (40, 30, 0, 3)


def scores(*values):
    """Scores whose buckets have these BLEU values; `None` for an empty bucket."""

    def score(value):
        return Score(name="BLEU", value=value, signature="tok:13a", details={})

    bounds = zip((0, *EDGES), (*EDGES, None), COUNTS, values, strict=True)
    return Scores(
        version="0",
        num_segments=sum(COUNTS),
        hypotheses_sha256="",
        references_sha256="",
        scores=(score(20.0),),
        by_length=tuple(
            LengthBucket(
                low=low, high=high, num_segments=n, score=None if value is None else score(value)
            )
            for low, high, n, value in bounds
        ),
    )


APE = [scores(20, 24, None, 4), scores(22, 24, None, 8)]
SHAPE = [scores(24, 25, None, 20)]


def make(systems, trained=None):
    return LengthBleu(*gather(systems), trained)


def test_gains_are_measured_from_the_mean_of_the_baseline():
    _, values = gather({"APE": SHAPE, "SHAPE": APE}, "APE")
    assert values == {"SHAPE": [[-4, -2], [-1, -1], [], [-16, -12]]}


@pytest.mark.parametrize(
    ("trained", "unseen"),
    [(None, []), ((1, None), []), ((1, 20), [2, 3]), ((1, 16), [2, 3]), ((10, 20), [0, 2, 3]),
     ((30, None), [0, 1, 2]), ((1, 1000), [])],
)  # fmt: skip
def test_buckets_without_a_length_of_training_are_shaded(trained, unseen):
    panel = make({"APE": APE}, trained).panel()
    assert panel.shaded == [(place - 0.5, place + 0.5) for place in unseen]


def test_places_name_lengths_and_counts_and_small_buckets_are_hollow():
    panel = make({"SHAPE": SHAPE}).panel()
    assert panel.places == ["0–9\n40", "10–19\n30", "20–29\n0", "≥ 30\n3"]
    [line] = panel.lines
    assert line.hollow == [3]
    [axes] = draw_lines([panel], "").axes
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [20]
