"""The papers' grids in configs/grids."""

from functools import cache
from pathlib import Path

import pytest

from shapeshift.config import load_config
from shapeshift.positions import KINDS, SCHEMES
from shapeshift.run.identity import cell_key
from shapeshift.study.grid import Grid

CONFIGS = Path(__file__).parents[3] / "src" / "shapeshift" / "config" / "shipped"
NAMES = sorted(path.stem for path in (CONFIGS / "grids").glob("*.yaml"))
SCALES = ["tiny", "small", "paper"]


@cache
def grid(name):
    return Grid(CONFIGS / "grids" / f"{name}.yaml")


@cache
def cells(name, scale):
    return grid(name).cells(scale)


def keys(name, scale):
    return {cell.key for cell in cells(name, scale)}


def one(name, scale, **axes):
    """The first seed's cell with these settings."""
    return next(cell for cell in cells(name, scale) if axes.items() <= cell.axes.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_scale_resolves_to_cells_that_differ(name):
    config = grid(name).config
    assert list(config.scales) == SCALES
    assert config.title
    for scale in SCALES:
        assert len(keys(name, scale)) == len(cells(name, scale))


def test_every_scheme_and_every_kind_has_its_cells():
    assert [*grid("beyond-datasets").config.axes["position"]] == [*SCHEMES]
    assert [*grid("beyond-places").config.axes["kind"]] == [*KINDS]
    found = {cell.axes["kind"]: set() for cell in cells("beyond-places", "small")}
    for cell in cells("beyond-places", "small"):
        found[cell.axes["kind"]].add(cell.axes["place"].partition("-")[0])
    assert found == {k: {*x.build.places} if k != "none" else {"self"} for k, x in KINDS.items()}


def test_runs_that_have_files_are_cells_of_the_papers():
    for dataset in ("vanilla", "extrapolate", "interpolate"):
        for position in ("ape", "rpe", "shape"):
            cell = one("shape-table2", "paper", dataset=dataset, position=position)
            file = load_config("shape-paper", [f"data.recipe={dataset}", f"position={position}"])
            assert cell.key == cell_key(file)
    base = one("shaw-table1", "paper", model="base", position="relative")
    assert base.key == cell_key(load_config(CONFIGS / "shaw-paper.yaml"))
    vanilla = [x for x in cells("shape-table2", "paper") if x.axes["dataset"] == "vanilla"]
    assert len(vanilla) == 15  # five seeds


@pytest.mark.parametrize(
    ("scale", "offsets"), [("tiny", ["10"]), ("small", ["40"]), ("paper", ["40", "500"])]
)
def test_grids_share_the_cells_that_are_the_same(scale, offsets):
    """One K on Extrapolate stands in Table 2 and in the search for K; Shaw's tables share the
    relative base model; the NHK paper has a tenth of the text for Tables 5 and 6."""
    search = {cell.key: cell.axes["K"] for cell in cells("shape-offsets", scale)}
    assert [search[key] for key in search if key in keys("shape-table2", scale)] == offsets
    shared = keys("shaw-table1", scale) & keys("shaw-table2", scale) & keys("shaw-table3", scale)
    base = one("shaw-table1", scale, model="base", languages="en-de", position="relative")
    assert base.key in shared
    assert len(shared) == (1 if scale == "paper" else 3)  # the seeds
    assert keys("shaw-speed", scale) <= keys("shaw-table1", scale)
    second_and_fifth = keys("nhk-table2", scale) & keys("nhk-table5", scale)
    assert len(second_and_fifth) == (0 if scale == "paper" else 6)  # none and qk
    if scale != "paper":
        first = {cell.key for cell in cells("nhk-table6", scale) if cell.axes["layers"] == "1"}
        assert first | keys("nhk-table1", scale) <= keys("nhk-table3", scale)


@pytest.mark.parametrize("scale", SCALES)
def test_each_slice_of_nhks_figure_is_a_bucket_of_its_own(scale):
    for cell in cells("nhk-figure3", scale):
        dataset, edges = cell.config.data.recipe, (0, *cell.config.evaluation.length_buckets, None)
        if cell.axes["lengths"] == "all":
            assert dataset.name == "vanilla"
        else:
            begin = edges.index(dataset.min_length)
            assert edges[begin + 1] == dataset.max_length


@pytest.mark.parametrize(("scale", "num_layers"), [("tiny", 2), ("small", 3), ("paper", 6)])
def test_nhk_first_n_layers(scale, num_layers):
    table = cells("nhk-table6", scale)
    assert {int(cell.axes["layers"]) for cell in table} == set(range(1, num_layers + 1))
    for cell in table:
        assert cell.config.model.encoder_layers == num_layers
        layers = [part["layers"] for part in cell.config.position.parts]
        if cell.axes["system"] == "original-embedding":
            assert (cell.axes["layers"], layers) == ("1", [None])
        else:
            crossing = cell.axes["system"].endswith("cross-pe")
            assert layers == [int(cell.axes["layers"])] * (1 + crossing)
