"""The numbers copied from the SHAPE paper agree with each other."""

from statistics import fmean

import pytest

from shapeshift.papers.shape import table1, table2, table5, table6

HALF_A_DIGIT = 0.0051
A_DIGIT = 0.0101  # of means of five seeds, whose parts were rounded by themselves
ROWS = [
    (dataset, position, values)
    for dataset, systems in table5.PUBLISHED.items()
    for position, values in systems.items()
    if values
]


@pytest.mark.parametrize(("dataset", "position", "values"), ROWS)
def test_table_5_gives_the_averages_and_those_of_table_2(dataset, position, values):
    by_set, average, speed = values[:7], values[7], values[8]
    assert fmean(by_set) == pytest.approx(average, abs=HALF_A_DIGIT)
    valid, test, rate = table2.PUBLISHED[dataset][position]
    assert fmean(by_set[:4]) == pytest.approx(valid, abs=A_DIGIT)
    assert fmean(by_set[4:]) == pytest.approx(test, abs=A_DIGIT)
    assert speed == rate


def test_the_drops_of_table_1_are_differences():
    for original, swapped, drop in table1.PUBLISHED.values():
        assert original - swapped == pytest.approx(drop, abs=HALF_A_DIGIT)


def test_the_times_of_table_6_give_the_speeds_of_table_2():
    for (position, dataset), (_, seconds) in table6.PUBLISHED.items():
        _, base = table6.PUBLISHED["ape", dataset]
        speed = table2.PUBLISHED[dataset][position][2]
        assert base / seconds == pytest.approx(speed, abs=HALF_A_DIGIT)


def test_the_papers_own_numbers_pass_the_rules():
    drops = {position: {1: drop} for position, (*_, drop) in table1.PUBLISHED.items()}
    assert table1.judge(drops["ape"], drops["shape"]) == "holds"
    for dataset in ("extrapolate", "interpolate"):
        systems = table5.PUBLISHED[dataset]
        pairs = zip(table5.YEARS, systems["shape"], systems["ape"], strict=False)
        assert table5.judge({str(year): a - b for year, a, b in pairs}, 30.0) == "holds"
    speeds = {
        name: [systems[name][2] for systems in table2.PUBLISHED.values() if systems[name][2]]
        for name in ("rpe", "shape")
    }
    assert table2.judge_speed(speeds["shape"]) == "holds"
    assert table6.judge_slower(speeds["rpe"]) == "holds"
    assert table6.judge_slower(speeds["shape"]) == table2.judge_speed(speeds["rpe"])
