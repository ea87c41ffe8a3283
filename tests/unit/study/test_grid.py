"""Grids: from a file to runs."""

import pytest
import yaml

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import load_config
from shapeshift.study.grid import Grid

DATASETS = {name: [f"data.recipe.name={name}"] for name in ("vanilla", "extrapolate")}
OFFSETS = {0: ["position=ape"], 40: ["position=shape", "position.position_ids.max_offset=40"]}
TWO_AXES = {
    "axes": {"recipe": DATASETS, "K": OFFSETS},
    "seeds": [1, 2],
    "base": {"model": {"size": "tiny"}, "training": {"max_updates": 5}},
    "profiles": {"tiny": {}, "paper": {"overrides": ["training.max_updates=9"]}},
}


@pytest.fixture
def make(tmp_path):
    def make_grid(document, **settings):
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump(document | settings, sort_keys=False), encoding="utf-8")
        return Grid(path)

    return make_grid


def test_cells_are_the_product_of_axes_and_seeds(make):
    runs = make(TWO_AXES).runs("tiny")
    assert [planned.name for planned in runs] == [
        "vanilla/0/1", "vanilla/0/2", "vanilla/40/1", "vanilla/40/2",
        "extrapolate/0/1", "extrapolate/0/2", "extrapolate/40/1", "extrapolate/40/2",
    ]  # fmt: skip
    assert len({planned.key for planned in runs}) == 8
    last = runs[-1]
    assert (last.grid, last.profile, last.seed) == ("mine", "tiny", 2)
    assert last.axes == {"recipe": "extrapolate", "K": "40"}
    assert last.config.data.recipe.name == "extrapolate"
    assert last.config.position.position_ids == {"name": "shifted", "max_offset": 40}
    assert (last.config.training.seed, last.config.training.max_updates) == (2, 5)


def test_a_profile_brings_its_overrides_and_may_bring_base_and_seeds(make, tmp_path):
    (tmp_path / "other.yaml").write_text("training: {max_updates: 70}", encoding="utf-8")
    profiles = {"tiny": {}, "paper": {"base": "other.yaml", "seeds": [7]}}
    runs = make(TWO_AXES, profiles=profiles).runs("paper")
    assert [planned.seed for planned in runs] == [7] * 4
    assert runs[0].config.training.max_updates == 70
    assert runs[0].config.model.size == "base"
    assert make(TWO_AXES).runs("paper")[0].config.training.max_updates == 9
    shipped = make(TWO_AXES, profiles={"short": {"base": "short"}}).runs("short")
    assert shipped[0].config.model == load_config("short").model
    with pytest.raises(ShapeshiftError, match="base: no configuration 'shrot'; did you mean 'sho"):
        make(TWO_AXES, profiles={"short": {"base": "shrot"}}).runs("short")


def test_the_seed_of_the_base_is_used_where_no_seeds_are_listed(make):
    base = {"training": {"seed": 9, "max_updates": 5}}
    grid = {key: value for key, value in TWO_AXES.items() if key != "seeds"} | {"base": base}
    found = make(grid, profiles={"tiny": {}, "paper": {"seeds": [3, 4]}})
    for profile, seeds in (("tiny", {9}), ("paper", {3, 4})):
        runs = found.runs(profile)
        assert {planned.seed for planned in runs} == seeds
        assert {planned.config.training.seed for planned in runs} == seeds
    base["training"]["seed"] = -1
    with pytest.raises(ShapeshiftError, match=r"training\.seed: "):
        make(grid, base=base).runs("tiny")


def test_rules_come_after_axes_and_the_users_overrides_last(make):
    when = {"profile": "tiny", "K": [40], "recipe": ["extrapolate", "vanilla"]}
    overrides = ["position.position_ids.max_offset=10", "training.max_updates=6"]
    grid = make(TWO_AXES, rules=[{"when": when, "overrides": overrides}])
    schemes = [planned.config.position.position_ids for planned in grid.runs("tiny")[:4]]
    assert [ids.get("max_offset") for ids in schemes] == [None, None, 10, 10]
    assert grid.runs("paper")[2].config.position.position_ids["max_offset"] == 40
    last = grid.runs("tiny", ["training.max_updates=3"])[2].config.training
    assert last.max_updates == 3


def test_exclude(make):
    grid = make(TWO_AXES, exclude=[{"recipe": "vanilla", "K": 40}, {"seed": 2}])
    left = [planned.name for planned in grid.runs("tiny")]
    assert left == ["vanilla/0/1", "extrapolate/0/1", "extrapolate/40/1"]
    with pytest.raises(ShapeshiftError, match="no run is left in profile 'tiny'"):
        make(TWO_AXES, exclude=[{"profile": "tiny"}]).runs("tiny")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axis": {}}, r"mine\.yaml: axis: unknown key; did you mean 'axes'"),
        ({"exclude": [{"recpie": "vanilla"}]}, r"no axis 'recpie'; did you mean 'recipe'"),
        ({"exclude": [{"dataset": "vanilla"}]}, "dataset is now recipe"),
        ({"exclude": [{"K": 41}]}, r"the axis K has no setting .41. .known: 0, 40"),
        ({"axes": {"seed": {"a": []}}}, r"an axis cannot be called 'seed'"),
        ({"seeds": [1, 1, 2]}, r"seeds: give each seed once; 1 is there again"),
        ({"profiles": {"tiny": {"seeds": [3, 3]}}}, r"tiny\.seeds: give each seed once; 3"),
        ({"axes": {"a": {"one": ["training.seed=5"]}}}, r"a\.one: 'training.seed=5'.* `seeds`"),
        ({"rules": [{"when": {"K": 0}, "overrides": ["training={seed: 5}"]}]}, "list seeds under"),
        ({"profiles": {"tiny": {"overrides": ["training.seed=1"]}}}, r"tiny\.overrides: "),
        ({"profiles": {}, "seeds": []}, r"seeds: .*; profiles: |profiles: .*; seeds: "),
    ],
)
def test_what_is_wrong_in_a_file_is_named(make, settings, message):
    with pytest.raises(ShapeshiftError, match=message):
        make(TWO_AXES, **settings)


@pytest.mark.parametrize(
    ("profile", "override", "message"),
    [
        ("papr", "training.max_updates=3", r"has no profile 'papr'; did you mean 'paper'"),
        ("tiny", "training.max_udpates=3", r"in the run recipe=vanilla K=0 .*max_udpates"),
        ("tiny", "training.seed=7", r"sets training\.seed itself.* --seed"),
        ("tiny", "training={seed: 7}", r"sets training\.seed itself.* --seed"),
        ("tiny", "position=rope", "position=rope undoes what the axis K varies"),
        ("tiny", "data.recipe={name: interpolate}", "undoes what the axis recipe varies"),
    ],
)
def test_what_is_wrong_in_a_cell_or_set_by_the_grid_is_named(make, profile, override, message):
    with pytest.raises(ShapeshiftError, match=message):
        make(TWO_AXES).runs(profile, [override])


RULE = {"when": {"x": "b"}, "overrides": ["model.dim=64"]}


def _axis(one, two, **settings):
    return {"base": {"model": {"ff_dim": 64}}, "axes": {"x": {"a": one, "b": two}}, **settings}


@pytest.mark.parametrize(
    ("settings", "override", "message"),
    [
        (_axis(["model.dim=16"], ["model.dim=64"]), "model.dim=32", "dim=32 undoes .* axis x"),
        (_axis(["model={dim: 16}"], ["model={dim: 64}"]), "model.dim=32", "model.dim, in a and b"),
        (_axis(["model=tiny"], ["model=small"], base={}), "model.dim=32", "model.dim, in a and b"),
        (_axis(["position=ape"], ["position=shape"]), "position.name=rope", "undoes .* axis x"),
        (_axis([], [], rules=[RULE]), "model.dim=32", "model.dim=32 makes one run of a and b"),
    ],
)
def test_an_override_does_not_undo_what_an_axis_varies(make, settings, override, message):
    grid = make(settings)
    assert len({planned.key for planned in grid.runs("full")}) == 2
    with pytest.raises(ShapeshiftError, match=message):
        grid.runs("full", [override])


def test_an_override_of_what_rules_set_and_runs_that_were_one_already_are_accepted(make):
    rule = {"when": {"x": "b"}, "overrides": ["training.max_updates=7"]}
    settings = _axis(["model.dim=16"], ["model.dim=64"], rules=[rule])
    runs = make(settings).runs("full", ["training.max_updates=3"])
    assert [planned.config.training.max_updates for planned in runs] == [3, 3]
    same = _axis(["position=ape"], ["position=ape", "position.name=same"])
    one, two = make(same).runs("full", ["training.max_updates=3"])
    assert one.key == two.key
