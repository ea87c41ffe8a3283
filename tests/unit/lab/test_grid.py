"""Grids: from a file to cells."""

import pytest
import yaml

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Grid

BASE = {"model": {"size": "tiny"}, "training": {"max_updates": 5}}


@pytest.fixture
def grid(tmp_path):
    """Makes a grid of two datasets, two positions and two scales; settings replace its own."""

    def make(**settings):
        document = {
            "axes": {
                "dataset": {
                    "vanilla": ["data.dataset.name=vanilla"],
                    "extrapolate": ["data.dataset.name=extrapolate"],
                },
                "K": {
                    0: ["position=ape"],
                    40: ["position=shape", "position.position_ids.max_offset=40"],
                },
            },
            "seeds": [1, 2],
            "base": BASE,
            "scales": {"tiny": {}, "paper": {"overrides": ["training.max_updates=9"]}},
            **settings,
        }
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return Grid(path)

    return make


def names(cells):
    return [cell.name for cell in cells]


def test_cells_are_the_product_of_axes_and_seeds(grid):
    cells = grid().cells("tiny")
    assert names(cells) == [
        "vanilla/0/1", "vanilla/0/2", "vanilla/40/1", "vanilla/40/2",
        "extrapolate/0/1", "extrapolate/0/2", "extrapolate/40/1", "extrapolate/40/2",
    ]  # fmt: skip
    assert len({cell.key for cell in cells}) == 8
    last = cells[-1]
    assert (last.grid, last.scale, last.seed) == ("mine", "tiny", 2)
    assert last.axes == {"dataset": "extrapolate", "K": "40"}
    assert last.config.data.dataset.name == "extrapolate"
    assert last.config.position.position_ids == {"name": "shifted", "max_offset": 40}
    assert (last.config.training.seed, last.config.training.max_updates) == (2, 5)


def test_a_scale_brings_its_overrides_and_may_bring_base_and_seeds(grid, tmp_path):
    (tmp_path / "other.yaml").write_text("training: {max_updates: 70}", encoding="utf-8")
    made = grid(scales={"tiny": {}, "paper": {"base": "other.yaml", "seeds": [7]}})
    cells = made.cells("paper")
    assert [cell.seed for cell in cells] == [7] * 4
    assert cells[0].config.training.max_updates == 70
    assert cells[0].config.model.size == "base"
    assert grid().cells("paper")[0].config.training.max_updates == 9


def test_rules_come_after_axes_and_the_users_overrides_last(grid):
    rule = {
        "when": {"scale": "tiny", "K": [40], "dataset": ["extrapolate", "vanilla"]},
        "overrides": ["position.position_ids.max_offset=10", "training.max_updates=6"],
    }
    made = grid(rules=[rule])
    offsets = [
        cell.config.position.position_ids.get("max_offset") for cell in made.cells("tiny")[:4]
    ]
    assert offsets == [None, None, 10, 10]
    assert made.cells("paper")[2].config.position.position_ids["max_offset"] == 40
    last = made.cells("tiny", ["training.max_updates=3"])[2].config.training
    assert last.max_updates == 3


def test_exclude_and_only(grid):
    excluded = grid(exclude=[{"dataset": "vanilla", "K": 40}, {"seed": 2}]).cells("tiny")
    assert names(excluded) == ["vanilla/0/1", "extrapolate/0/1", "extrapolate/40/1"]
    only = grid(only=[{"K": 0, "seed": 1}, {"dataset": "vanilla", "seed": 2}]).cells("tiny")
    assert names(only) == ["vanilla/0/1", "vanilla/0/2", "vanilla/40/2", "extrapolate/0/1"]


def test_two_settings_that_mean_the_same_share_a_name(grid):
    axes = {"position": {"ape": ["position=ape"], "shifted-by-0": ["position=ape"]}}
    first, _, second, _ = grid(axes=axes).cells("tiny")
    assert first.key == second.key
    assert first.name != second.name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axis": {}}, r"mine\.yaml: axis: unknown key; did you mean 'axes'"),
        ({"exclude": [{"datset": "vanilla"}]}, r"names 'datset', no axis; did you mean 'dataset'"),
        ({"only": [{"K": 41}]}, r"K=41, which is not there"),
        ({"axes": {"seed": {"a": []}}}, r"an axis cannot be called 'seed'"),
        ({"scales": {}, "seeds": []}, r"seeds: .*; scales: |scales: .*; seeds: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(grid, settings, message):
    with pytest.raises(ShapeshiftError, match=message):
        grid(**settings)


def test_what_is_wrong_in_a_cell_is_named(grid):
    made = grid()
    with pytest.raises(ShapeshiftError, match=r"has no scale 'papr'; did you mean 'paper'"):
        made.cells("papr")
    with pytest.raises(ShapeshiftError, match=r"in the cell dataset=vanilla K=0 .*max_udpates"):
        made.cells("tiny", ["training.max_udpates=3"])
    with pytest.raises(ShapeshiftError, match="no cell is left at scale 'tiny'"):
        grid(exclude=[{"scale": "tiny"}]).cells("tiny")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.seed=7", r"sets training\.seed itself"),
        ("position=rope", "is what the axis K varies"),
        ("data.dataset={name: interpolate}", "is what the axis dataset varies"),
    ],
)
def test_what_the_grid_sets_cannot_have_one_value(grid, override, message):
    with pytest.raises(ShapeshiftError, match=message):
        grid().cells("tiny", [override])
