import json
from dataclasses import dataclass

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.integrity import digest
from shapeshift.lab.analysis.document import load_data, save_data


@dataclass(frozen=True)
class Figure:
    values: tuple[float, ...]
    parts: dict[str, tuple[tuple[int, ...], ...]]
    bounds: tuple[int, int | None] | None


DATA = Figure((1.5, -2.0), {"é": ((1, 2), (3, 4))}, (1, None))
CONTENT = {"values": ["x"]}
DOCUMENT = {"figure": "Figure", "sha256": digest(CONTENT), "data": CONTENT}


def test_data_come_back_as_they_were(tmp_path):
    path = tmp_path / "new" / "figure.json"
    save_data(DATA, path)
    assert load_data(Figure, path) == DATA
    text = path.read_text(encoding="utf-8")
    for changed in ("{", "[1]", "{}", text.replace("1.5", "1.6"), text.replace("Figure", "Other")):
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(ShapeshiftError, match=r"figure\.json: cannot be read as the data of F"):
            load_data(Figure, path)
    path.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="cannot be read"):
        load_data(Figure, path)
    path.unlink()
    with pytest.raises(ShapeshiftError, match="cannot be read"):
        load_data(Figure, path)
