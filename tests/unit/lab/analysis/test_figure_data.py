import json
from dataclasses import dataclass

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import digest
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


def figure_document(**changes):
    """The text of a file with some fields replaced."""
    data = {"values": ["x"]}
    return json.dumps({"figure": "Figure", "sha256": digest(data), "data": data} | changes)


TEXTS = ["{", "[1]", "{}", figure_document(figure="KSearch"), figure_document()]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_not_the_data_of_the_figure_is_refused(text, tmp_path):
    path = tmp_path / "figure.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="cannot be read as the data of Figure"):
        load_data(Figure, path)


def test_a_number_that_has_changed_and_a_missing_file_are_noticed(tmp_path):
    path = tmp_path / "figure.json"
    save_data(DATA, path)
    path.write_text(path.read_text(encoding="utf-8").replace("1.5", "1.6"), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"figure\.json: cannot be read"):
        load_data(Figure, path)
    path.unlink()
    with pytest.raises(ShapeshiftError, match=r"figure\.json: cannot be read"):
        load_data(Figure, path)
