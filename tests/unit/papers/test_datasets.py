import pytest

from shapeshift.papers.analyses.datasets import bins, plot

PAIRS = [([5] * source, [6] * target) for source, target in ((1, 2), (3, 3), (3, 9), (4, 4))]


@pytest.fixture
def datasets(make_store):
    return {"Vanilla": make_store(PAIRS, "vanilla"), "Extrapolate": make_store(PAIRS[:3], "short")}


def test_bins_grow_with_the_longest_sentence(datasets, make_store):
    width, source, target = bins(datasets["Vanilla"])
    assert (width, source) == (1, [0, 1, 0, 2, 1])
    assert target == [0, 0, 1, 1, 1, 0, 0, 0, 0, 1]
    width, source, _ = bins(make_store([([5] * 401, [6])]))
    assert (width, len(source), sum(source)) == (11, 37, 1)


def test_each_dataset_is_a_panel_of_two_histograms(datasets):
    vanilla, short = plot(datasets).axes
    assert vanilla.get_title(loc="left") == "Vanilla: 4 pairs\nmedian: source 3, target 3.5"
    assert short.get_title(loc="left").startswith("Extrapolate: 3 pairs")
    outlines = [patch for patch in vanilla.patches if patch.get_label() in ("source", "target")]
    assert [patch.get_data().values.tolist() for patch in outlines] == [
        *bins(datasets["Vanilla"])[1:]
    ]
    assert outlines[0].get_data().edges.tolist() == [0, 1, 2, 3, 4, 5]
    four = datasets | {f"{name} again": store for name, store in datasets.items()}
    titles = [axes.get_title(loc="left") for axes in plot(four).axes]
    assert [bool(title) for title in titles] == [True, True, True, True, False, False]
