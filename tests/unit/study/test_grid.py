"""Grids: from a file to cells."""

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import load_config
from shapeshift.study.grid import Grid

DATASETS = {name: [f"data.recipe.name={name}"] for name in ("vanilla", "extrapolate")}
OFFSETS = {0: ["position=ape"], 40: ["position=shape", "position.position_ids.max_offset=40"]}
TWO_AXES = {
    "axes": {"dataset": DATASETS, "K": OFFSETS},
    "seeds": [1, 2],
    "base": {"model": {"size": "tiny"}, "training": {"max_updates": 5}},
    "scales": {"tiny": {}, "paper": {"overrides": ["training.max_updates=9"]}},
}


@pytest.fixture
def make(tmp_path):
    def make_grid(document, **settings):
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(document | settings, sort_keys=False), encoding="utf-8")
        return Grid(path)

    return make_grid


def test_cells_are_the_product_of_axes_and_seeds(make):
    cells = make(TWO_AXES).cells("tiny")
    assert [cell.name for cell in cells] == [
        "vanilla/0/1", "vanilla/0/2", "vanilla/40/1", "vanilla/40/2",
        "extrapolate/0/1", "extrapolate/0/2", "extrapolate/40/1", "extrapolate/40/2",
    ]  # fmt: skip
    assert len({cell.key for cell in cells}) == 8
    last = cells[-1]
    assert (last.grid, last.scale, last.seed) == ("mine", "tiny", 2)
    assert last.axes == {"dataset": "extrapolate", "K": "40"}
    assert last.config.data.recipe.name == "extrapolate"
    assert last.config.position.position_ids == {"name": "shifted", "max_offset": 40}
    assert (last.config.training.seed, last.config.training.max_updates) == (2, 5)


def test_a_scale_brings_its_overrides_and_may_bring_base_and_seeds(make, tmp_path):
    (tmp_path / "other.yaml").write_text("training: {max_updates: 70}", encoding="utf-8")
    scales = {"tiny": {}, "paper": {"base": "other.yaml", "seeds": [7]}}
    cells = make(TWO_AXES, scales=scales).cells("paper")
    assert [cell.seed for cell in cells] == [7] * 4
    assert cells[0].config.training.max_updates == 70
    assert cells[0].config.model.size == "base"
    assert make(TWO_AXES).cells("paper")[0].config.training.max_updates == 9
    shipped = make(TWO_AXES, scales={"short": {"base": "short"}}).cells("short")
    assert shipped[0].config.model == load_config("short").model
    with pytest.raises(
        ShapeshiftError, match=r"base: no configuration 'shrot'; did you mean 'short'"
    ):
        make(TWO_AXES, scales={"short": {"base": "shrot"}}).cells("short")


def test_the_seed_of_the_base_is_used_where_no_seeds_are_listed(make):
    base = {"training": {"seed": 9, "max_updates": 5}}
    grid = {key: value for key, value in TWO_AXES.items() if key != "seeds"} | {"base": base}
    found = make(grid, scales={"tiny": {}, "paper": {"seeds": [3, 4]}})
    for scale, seeds in (("tiny", {9}), ("paper", {3, 4})):
        cells = found.cells(scale)
        assert {cell.seed for cell in cells} == seeds
        assert {cell.config.training.seed for cell in cells} == seeds
    base["training"]["seed"] = -1
    with pytest.raises(ShapeshiftError, match=r"training\.seed: "):
        make(grid, base=base).cells("tiny")


def test_rules_come_after_axes_and_the_users_overrides_last(make):
    when = {"scale": "tiny", "K": [40], "dataset": ["extrapolate", "vanilla"]}
    overrides = ["position.position_ids.max_offset=10", "training.max_updates=6"]
    grid = make(TWO_AXES, rules=[{"when": when, "overrides": overrides}])
    schemes = [cell.config.position.position_ids for cell in grid.cells("tiny")[:4]]
    assert [ids.get("max_offset") for ids in schemes] == [None, None, 10, 10]
    assert grid.cells("paper")[2].config.position.position_ids["max_offset"] == 40
    last = grid.cells("tiny", ["training.max_updates=3"])[2].config.training
    assert last.max_updates == 3


def test_exclude(make):
    grid = make(TWO_AXES, exclude=[{"dataset": "vanilla", "K": 40}, {"seed": 2}])
    left = [cell.name for cell in grid.cells("tiny")]
    assert left == ["vanilla/0/1", "extrapolate/0/1", "extrapolate/40/1"]
    with pytest.raises(ShapeshiftError, match="no cell is left at scale 'tiny'"):
        make(TWO_AXES, exclude=[{"scale": "tiny"}]).cells("tiny")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axis": {}}, r"mine\.yaml: axis: unknown key; did you mean 'axes'"),
        ({"exclude": [{"datset": "vanilla"}]}, r"no axis 'datset'; did you mean 'dataset'"),
        ({"exclude": [{"K": 41}]}, r"the axis K has no setting .41. .known: 0, 40"),
        ({"axes": {"seed": {"a": []}}}, r"an axis cannot be called 'seed'"),
        ({"seeds": [1, 1, 2]}, r"seeds: give each seed once; 1 is there again"),
        ({"scales": {"tiny": {"seeds": [3, 3]}}}, r"scales\.tiny\.seeds: give each seed once; 3"),
        (
            {"axes": {"a": {"one": ["training.seed=5"]}}},
            r"axes\.a\.one: 'training.seed=5'.* `seeds`",
        ),
        ({"rules": [{"when": {"K": 0}, "overrides": ["training={seed: 5}"]}]}, "list seeds under"),
        ({"scales": {"tiny": {"overrides": ["training.seed=1"]}}}, r"scales\.tiny\.overrides: "),
        ({"scales": {}, "seeds": []}, r"seeds: .*; scales: |scales: .*; seeds: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(make, settings, message):
    with pytest.raises(ShapeshiftError, match=message):
        make(TWO_AXES, **settings)


@pytest.mark.parametrize(
    ("scale", "override", "message"),
    [
        ("papr", "training.max_updates=3", r"has no scale 'papr'; did you mean 'paper'"),
        ("tiny", "training.max_udpates=3", r"in the run dataset=vanilla K=0 .*max_udpates"),
        ("tiny", "training.seed=7", r"sets training\.seed itself.* --seed"),
        ("tiny", "training={seed: 7}", r"sets training\.seed itself.* --seed"),
        ("tiny", "position=rope", "position=rope undoes what the axis K varies"),
        ("tiny", "data.recipe={name: interpolate}", "undoes what the axis dataset varies"),
    ],
)
def test_what_is_wrong_in_a_cell_or_set_by_the_grid_is_named(make, scale, override, message):
    with pytest.raises(ShapeshiftError, match=message):
        make(TWO_AXES).cells(scale, [override])


def _axis(one, two, **settings):
    return {"base": {"model": {"ff_dim": 64}}, "axes": {"x": {"a": one, "b": two}}, **settings}


@pytest.mark.parametrize(
    ("settings", "override", "message"),
    [
        (
            _axis(["model.dim=16"], ["model.dim=64"]),
            "model.dim=32",
            "model.dim=32 undoes .* axis x",
        ),
        (_axis(["model={dim: 16}"], ["model={dim: 64}"]), "model.dim=32", "model.dim, in a and b"),
        (
            {"axes": {"x": {"a": ["model=tiny"], "b": ["model=small"]}}},
            "model.dim=32",
            "model.dim, in a and b",
        ),
        (_axis(["position=ape"], ["position=shape"]), "position.name=rope", "undoes .* axis x"),
        (
            _axis([], [], rules=[{"when": {"x": "b"}, "overrides": ["model.dim=64"]}]),
            "model.dim=32",
            "model.dim=32 makes one run of a and b",
        ),
    ],
)
def test_an_override_does_not_undo_what_an_axis_varies(make, settings, override, message):
    grid = make(settings)
    assert len({cell.key for cell in grid.cells("full")}) == 2
    with pytest.raises(ShapeshiftError, match=message):
        grid.cells("full", [override])


def test_an_override_of_what_rules_set_and_runs_that_were_one_already_are_accepted(make):
    rule = {"when": {"x": "b"}, "overrides": ["training.max_updates=7"]}
    settings = _axis(["model.dim=16"], ["model.dim=64"], rules=[rule])
    cells = make(settings).cells("full", ["training.max_updates=3"])
    assert [cell.config.training.max_updates for cell in cells] == [3, 3]
    same = _axis(["position=ape"], ["position=ape", "position.name=same"])
    one, two = make(same).cells("full", ["training.max_updates=3"])
    assert one.key == two.key
