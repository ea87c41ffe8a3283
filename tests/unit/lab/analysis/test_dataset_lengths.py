import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.lengths import check, compute, plot

PAIRS = [([5] * source, [6] * target) for source, target in ((1, 2), (3, 3), (3, 9), (4, 4))]


@pytest.fixture
def stores(make_store):
    return {"Vanilla": make_store(PAIRS, "vanilla"), "Extrapolate": make_store(PAIRS[:3], "short")}


def test_lengths_are_counted_by_hand(stores):
    vanilla, short = compute(stores, bin_width=2).datasets
    assert (vanilla.num_pairs, short.num_pairs) == (4, 3)
    assert vanilla.source.num_tokens == 11
    assert vanilla.target.num_tokens == 18
    assert (vanilla.source.shortest, vanilla.source.median, vanilla.source.longest) == (1, 3, 4)
    assert vanilla.source.histogram == (1, 2, 1)  # [0, 2), [2, 4), [4, 6)
    assert vanilla.target.histogram == (0, 2, 1, 0, 1)


def test_bins_grow_with_the_longest_sentence(make_store):
    [long] = compute({"it": make_store([([5] * 401, [6])])}).datasets
    assert long.bin_width == 11
    assert len(long.source.histogram) == 37
    assert sum(long.source.histogram) == 1


def test_what_is_expected_is_compared(stores):
    data = compute(stores, {"Vanilla": 5})
    vanilla, short = data.datasets
    assert vanilla.deviation == pytest.approx(-0.2)
    assert short.deviation is None
    check(data, tolerance=0.21)
    with pytest.raises(ShapeshiftError, match=r"Vanilla has 4 pairs, expected 5 within 10\.0%"):
        check(data, tolerance=0.1)


def test_an_expected_dataset_must_be_there(stores):
    with pytest.raises(ShapeshiftError, match="'Interpolate', which is not one of Vanilla"):
        compute(stores, {"Interpolate": 450_000})


def test_an_empty_store_is_refused(make_store):
    with pytest.raises(ShapeshiftError, match="holds no pairs"):
        compute({"it": make_store([])})


def test_each_dataset_is_a_panel_of_two_histograms(stores):
    figure = plot(compute(stores, bin_width=2))
    vanilla, short = figure.axes
    assert vanilla.get_title(loc="left") == "Vanilla: 4 pairs\nmedian: source 3, target 3.5"
    assert short.get_title(loc="left").startswith("Extrapolate: 3 pairs")
    outlines = [patch for patch in vanilla.patches if patch.get_label() in ("source", "target")]
    heights = [patch.get_data().values.tolist() for patch in outlines]
    assert heights == [[1, 2, 1], [0, 2, 1, 0, 1]]
    assert outlines[0].get_data().edges.tolist() == [0, 2, 4, 6]


def test_a_fourth_dataset_begins_a_row_of_its_own(stores):
    four = {f"{name} {n}": store for n in (1, 2) for name, store in stores.items()}
    figure = plot(compute(four))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [bool(title) for title in titles] == [True, True, True, True, False, False]
