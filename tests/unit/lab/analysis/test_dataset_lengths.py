import pytest

from shapeshift.lab.analysis.lengths import measure, plot

PAIRS = [([5] * source, [6] * target) for source, target in ((1, 2), (3, 3), (3, 9), (4, 4))]


@pytest.fixture
def datasets(make_store):
    return [
        measure("Vanilla", make_store(PAIRS, "vanilla")),
        measure("Extrapolate", make_store(PAIRS[:3], "short")),
    ]


def test_lengths_are_counted_by_hand(datasets, make_store):
    vanilla, short = datasets
    assert (vanilla.num_pairs, short.num_pairs) == (4, 3)
    assert (vanilla.source.median, vanilla.source.longest) == (3, 4)
    assert vanilla.source.histogram == (0, 1, 0, 2, 1)
    assert vanilla.target.histogram == (0, 0, 1, 1, 1, 0, 0, 0, 0, 1)
    long = measure("it", make_store([([5] * 401, [6])]))  # bins grow with the longest sentence
    assert long.bin_width == 11
    assert len(long.source.histogram) == 37
    assert sum(long.source.histogram) == 1


def test_each_dataset_is_a_panel_of_two_histograms(datasets):
    vanilla, short = plot(datasets).axes
    assert vanilla.get_title(loc="left") == "Vanilla: 4 pairs\nmedian: source 3, target 3.5"
    assert short.get_title(loc="left").startswith("Extrapolate: 3 pairs")
    outlines = [patch for patch in vanilla.patches if patch.get_label() in ("source", "target")]
    heights = [tuple(patch.get_data().values.tolist()) for patch in outlines]
    assert heights == [datasets[0].source.histogram, datasets[0].target.histogram]
    assert outlines[0].get_data().edges.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_fourth_dataset_begins_a_row_of_its_own(datasets):
    titles = [axes.get_title(loc="left") for axes in plot([*datasets, *datasets]).axes]
    assert [bool(title) for title in titles] == [True, True, True, True, False, False]
