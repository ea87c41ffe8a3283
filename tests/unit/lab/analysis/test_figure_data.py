from dataclasses import dataclass

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.document import load_data, save_data


@dataclass(frozen=True)
class Inner:
    name: str
    grid: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Figure:
    values: tuple[float, ...]
    parts: tuple[Inner, ...]
    bounds: tuple[int, int | None] | None


DATA = Figure((1.5, -2.0), (Inner("é", ((1, 2), (3, 4))),), (1, None))


def test_data_come_back_as_they_were(tmp_path):
    path = tmp_path / "made" / "figure.json"
    save_data(DATA, path)
    assert load_data(Figure, path) == DATA


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "holds no figure; expected the data of Figure"),
        ('{"figure": "KSearch", "data": {}}', "holds KSearch; expected the data of Figure"),
        ('{"figure": "Figure", "data": {"values": ["x"]}}', r"values\.0: .*compute them again"),
        ('{"figure": "Figure"}', "compute them again"),
    ],
)
def test_what_is_not_the_data_of_the_figure_is_refused(text, message, tmp_path):
    path = tmp_path / "figure.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=message):
        load_data(Figure, path)


def test_a_number_that_has_changed_is_noticed(tmp_path):
    path = tmp_path / "figure.json"
    save_data(DATA, path)
    path.write_text(path.read_text(encoding="utf-8").replace("1.5", "1.6"), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"figure\.json: differs .*; compute them again"):
        load_data(Figure, path)
    path.unlink()
    with pytest.raises(ShapeshiftError, match=r"figure\.json: cannot read"):
        load_data(Figure, path)
