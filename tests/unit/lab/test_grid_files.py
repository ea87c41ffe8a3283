"""The papers' grids in configs/grids."""

from functools import cache
from pathlib import Path

import pytest

from shapeshift.config import load_config
from shapeshift.lab.grid import Grid
from shapeshift.lab.identity import cell_key
from shapeshift.lab.measures import check_measures
from shapeshift.positions import PRESETS

CONFIGS = Path(__file__).parents[3] / "configs"
FILES = sorted((CONFIGS / "grids").glob("*.yaml"))


@cache
def cells(name, scale):
    return Grid(CONFIGS / "grids" / f"{name}.yaml").cells(scale)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scale_resolves_to_cells_that_differ(path):
    grid = Grid(path)
    assert list(grid.config.scales) == ["tiny", "small", "paper"]
    assert grid.config.title
    check_measures(grid.config.steps)
    for scale in grid.config.scales:
        found = grid.cells(scale)
        assert len({cell.key for cell in found}) == len(found)


@pytest.mark.parametrize("position", ["ape", "rpe", "shape"])
@pytest.mark.parametrize("dataset", ["vanilla", "extrapolate", "interpolate"])
def test_the_cells_of_the_shape_paper_are_the_runs_that_have_files(dataset, position):
    [cell] = [
        cell
        for cell in cells("shape-table2", "paper")
        if list(cell.axes.values()) == [dataset, position] and cell.seed == 1
    ]
    file = load_config(CONFIGS / f"shape-{dataset}-{position}.yaml")
    assert cell.key == cell_key(file)
    assert cell.config.evaluation == file.evaluation


def test_shaws_base_model_is_the_run_that_has_a_file():
    base = one("shaw-table1", "paper", model="base", position="relative")
    assert base.key == cell_key(load_config(CONFIGS / "shaw-paper.yaml"))


@pytest.mark.parametrize(("languages", "dropout"), [("en-de", 0.3), ("en-fr", 0.1)])
def test_shaws_big_model_is_that_of_section_4_1(languages, dropout):
    config = one("shaw-table1", "paper", model="big", languages=languages, position="relative")
    model, training = config.config.model, config.config.training
    assert (model.dim, model.num_heads, model.ff_dim, model.dropout) == (1024, 16, 4096, dropout)
    assert (training.max_updates, training.average_checkpoints) == (300_000, 20)
    [part] = config.config.position.parts
    assert (part["max_distance"], part["per_head"]) == (8, False)


def test_vanilla_has_five_seeds_as_in_the_paper():
    found = cells("shape-table2", "paper")
    assert sum(cell.axes["dataset"] == "vanilla" for cell in found) == 15


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_grids_share_the_cells_that_are_the_same(scale):
    """One K on Extrapolate stands in Table 2 and in the search for K."""
    table = {cell.key for cell in cells("shape-table2", scale)}
    search = {cell.key: cell.axes["K"] for cell in cells("shape-offsets", scale)}
    shared = {"tiny": ["10"], "small": ["40"], "paper": ["40", "500"]}
    assert [search[key] for key in search if key in table] == shared[scale]


def one(name, scale, **axes):
    """The first seed's cell with these settings."""
    return next(
        cell for cell in cells(name, scale) if all(cell.axes[axis] == axes[axis] for axis in axes)
    )


def keys(name, scale):
    return {cell.key for cell in cells(name, scale)}


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_shaws_tables_share_the_relative_base_model(scale):
    shared = keys("shaw-table1", scale) & keys("shaw-table2", scale) & keys("shaw-table3", scale)
    base = one("shaw-table1", scale, model="base", languages="en-de", position="relative")
    assert base.key in shared
    assert len(shared) == (1 if scale == "paper" else 3)  # the seeds
    assert keys("shaw-speed", scale) <= keys("shaw-table1", scale)


@pytest.mark.parametrize("scale", ["tiny", "small"])
def test_nhks_tables_share_what_is_trained_on_the_same_text(scale):
    """The paper has a tenth of the text for Tables 5 and 6."""
    assert len(keys("nhk-table2", scale) & keys("nhk-table5", scale)) == 6  # none and qk
    first = {cell.key for cell in cells("nhk-table6", scale) if cell.axes["layers"] == "1"}
    assert first <= keys("nhk-table3", scale)
    assert keys("nhk-table1", scale) <= keys("nhk-table3", scale)
    assert not keys("nhk-table2", "paper") & keys("nhk-table5", "paper")


def test_nhks_four_directions():
    found = {
        cell.axes["languages"]: cell.config.data.corpus for cell in cells("nhk-table3", "paper")
    }
    for languages, corpus in found.items():
        assert languages == f"{corpus.source}-{corpus.target}"
    assert one("nhk-table3", "tiny", languages="de-en").config.data.corpus.reverse


@pytest.mark.parametrize("scale", ["tiny", "small", "paper"])
def test_each_slice_of_nhks_figure_is_a_bucket_of_its_own(scale):
    for cell in cells("nhk-figure3", scale):
        dataset, edges = cell.config.data.dataset, (0, *cell.config.evaluation.length_buckets, None)
        if cell.axes["lengths"] == "all":
            assert dataset.name == "vanilla"
        else:
            begin = edges.index(dataset.min_length)
            assert edges[begin + 1] == dataset.max_length


def test_without_keys_and_values_shaws_model_has_no_positions():
    cell = one("shaw-table3", "paper", values="no", keys="no")
    assert cell.config.position.scheme == PRESETS["nope"]


def test_nhk_subsets_of_q_k_v_in_one_layer():
    for cell in cells("nhk-table5", "paper"):
        subset = cell.axes["positions_in"]
        parts = cell.config.position.parts
        assert [(p["place"], p["add_to"]) for p in parts] == (
            [] if subset == "none" else [("self", subset), ("cross", subset)]
        )


def test_nhk_first_n_layers():
    for scale, num_layers in (("tiny", 2), ("small", 3), ("paper", 6)):
        found = cells("nhk-table6", scale)
        assert {int(cell.axes["layers"]) for cell in found} == set(range(1, num_layers + 1))
        for cell in found:
            assert cell.config.model.encoder_layers == num_layers
            layers = [part["layers"] for part in cell.config.position.parts]
            crossing = cell.axes["system"].endswith("cross-pe")
            if cell.axes["system"] == "original-embedding":
                assert (cell.axes["layers"], layers) == ("1", [None])
            else:
                assert layers == [int(cell.axes["layers"])] * (1 + crossing)
