import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.nhk_lengths import Trained, compute, plot

EDGES = (20, 40, 60, 80)


@pytest.fixture
def slices(make_scores, make_store):
    """Absolute and relative models, trained on everything and on two of the paper's slices."""

    def systems(absolute, relative):
        return {
            name: [make_scores(1, values, EDGES)]
            for name, values in (("absolute", absolute), ("relative", relative))
        }

    store = make_store([([5, 6, 7], [8]), ([9], [10, 11])])
    short = make_store([([5, 6, 7], [8])], "short")
    return {
        "all": Trained(None, store, systems((30, 31, 32, 33, 34), (31, 32, 33, 34, 35))),
        "under 20": Trained((0, 20), short, systems((34, 20, 9, 5, None), (35, 18, 8, 4, None))),
        "80 and over": Trained((80, None), store, systems((1, 2, 9, 20, 29), (1, 2, 9, 18, 26))),
    }


def test_each_slice_has_its_size_and_bleu_on_its_own_lengths(slices):
    _, short, long = compute(slices).panels
    assert [curve.mean[4] for curve in long.bleu.curves] == [29, 26]
    assert (short.num_pairs, short.num_source_tokens) == (1, 3)
    assert (long.num_pairs, long.num_source_tokens) == (2, 4)


def test_slices_must_have_the_same_systems(slices):
    slices["under 20"].systems.pop("relative")
    with pytest.raises(ShapeshiftError, match=r"'under 20' has the systems absolute; expected"):
        compute(slices)


def test_no_slices_are_refused():
    with pytest.raises(ShapeshiftError, match="no slices"):
        compute({})


def test_each_slice_is_a_panel_with_unseen_lengths_shaded(slices):
    panels = [axes for axes in plot(compute(slices)).axes if axes.get_title(loc="left")]
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles == ["(a) all: 2 pairs", "(b) under 20: 1 pairs", "(c) 80 and over: 2 pairs"]
    shaded = [
        [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]
        for axes in panels
    ]
    assert shaded == [[], [(0.5, 4.5)], [(-0.5, 3.5)]]
