"""The numbers copied from the SHAPE paper agree with each other."""

from statistics import fmean

import pytest

from shapeshift.papers.catalogue import ITEMS
from shapeshift.papers.spec import read_spec

HALF_A_DIGIT = 0.0051
A_DIGIT = 0.0101  # of means of five seeds, whose parts were rounded by themselves


def published(name):
    """Return (first name, second name) → numbers of the paper's table."""
    rows = read_spec(ITEMS / f"shape-{name}.yaml").tables[0].published.rows
    return {(first, second): values for first, second, *values in rows if None not in values[:2]}


TABLE2, TABLE5, TABLE6 = map(published, ("table2", "table5", "table6"))


@pytest.mark.parametrize("system", TABLE5)
def test_table_5_gives_the_averages_and_those_of_table_2(system):
    values = TABLE5[system]
    by_set, average, speed = values[:7], values[7], values[8]
    assert fmean(by_set) == pytest.approx(average, abs=HALF_A_DIGIT)
    valid, test, rate = TABLE2[system]
    assert fmean(by_set[:4]) == pytest.approx(valid, abs=A_DIGIT)
    assert fmean(by_set[4:]) == pytest.approx(test, abs=A_DIGIT)
    assert speed == rate


def test_the_drops_of_table_1_are_differences():
    rows = read_spec(ITEMS / "shape-table1.yaml").tables[0].published.rows
    for _, original, swapped, drop in rows:
        assert original - swapped == pytest.approx(drop, abs=HALF_A_DIGIT)


@pytest.mark.parametrize("system", TABLE6)
def test_the_times_of_table_6_give_the_speeds_of_table_2(system):
    position, dataset = system
    base = TABLE6["ape", dataset][0]
    speed = TABLE2[dataset, position][2]
    assert base / TABLE6[system][0] == pytest.approx(speed, abs=HALF_A_DIGIT)


def test_the_averages_of_table_7_are_those_of_their_rows():
    for *values, average in published("table7").values():
        assert fmean(values) == pytest.approx(average, abs=0.01)
