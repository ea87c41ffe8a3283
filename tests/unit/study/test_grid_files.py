"""The grids of the papers' studies."""

from pathlib import Path

import pytest

from shapeshift.config import load_config
from shapeshift.positions import KINDS, SCHEMES
from shapeshift.run.identity import run_key
from shapeshift.study.catalogue import PAPERS, find_grid, find_paper

from .conftest import planned_runs as runs

CONFIGS = Path(__file__).parents[3] / "src" / "shapeshift" / "config" / "shipped"
NAMES = sorted({grid for paper in PAPERS for grid in find_paper(paper).grids})
PROFILES = ["tiny", "small", "paper"]


def keys(name, profile):
    return {planned.key for planned in runs(name, profile)}


def one(name, profile, **axes):
    """The first seed's run with these settings."""
    return next(planned for planned in runs(name, profile) if axes.items() <= planned.axes.items())


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_resolves_to_runs_that_differ(name):
    profiles = [*find_grid(name).config.profiles]
    assert profiles == ["tiny", "medium", "small", "paper"] if name == "shape:table2" else PROFILES
    for profile in profiles:
        assert len(keys(name, profile)) == len(runs(name, profile))


def test_every_scheme_and_every_kind_has_its_runs():
    positions = [*find_grid("beyond:master").config.axes["position"]]
    assert {*positions} == {*SCHEMES, "kerple", "fire"}
    assert [*find_grid("beyond:places").config.axes["kind"]] == [*KINDS]
    found = {planned.axes["kind"]: set() for planned in runs("beyond:places", "small")}
    for planned in runs("beyond:places", "small"):
        found[planned.axes["kind"]].add(planned.axes["place"].partition("-")[0])
    assert found == {k: {*x.build.places} if k != "none" else {"self"} for k, x in KINDS.items()}


def test_the_runs_of_medium_are_checkpoints_of_the_runs_that_chose_its_budget():
    """Apart from their end, and from seeds that the others do not have."""
    for position, chosen in (("ape", "ape"), ("shape", "shape-40")):
        medium = one("shape:table2", "medium", recipe="interpolate", position=position)
        longer = one("beyond:learning", "tiny", position=chosen)
        assert medium.seed not in {x.seed for x in runs("beyond:learning", "tiny")}
        same = {"max_updates": 4500, "keep_checkpoints": 5, "seed": medium.seed}
        training = longer.config.training.model_copy(update=same)
        assert training == medium.config.training
        assert longer.config.data == medium.config.data
        assert longer.config.position == medium.config.position


def test_runs_that_have_files_are_runs_of_the_papers():
    for recipe in ("vanilla", "extrapolate", "interpolate"):
        for position in ("ape", "rpe", "shape"):
            planned = one("shape:table2", "paper", recipe=recipe, position=position)
            file = load_config("shape-paper", [f"data.recipe={recipe}", f"position={position}"])
            assert planned.key == run_key(file)
    base = one("shaw:table1", "paper", model="base", position="relative")
    assert base.key == run_key(load_config(CONFIGS / "shaw-paper.yaml"))
    vanilla = [x for x in runs("shape:table2", "paper") if x.axes["recipe"] == "vanilla"]
    assert len(vanilla) == 15  # five seeds


@pytest.mark.parametrize(
    ("profile", "offsets"), [("tiny", ["10"]), ("small", ["40"]), ("paper", ["40", "500"])]
)
def test_grids_share_the_runs_that_are_the_same(profile, offsets):
    """One K on Extrapolate stands in Table 2 and in the search for K; Shaw's tables share the
    relative base model; the NHK paper has a tenth of the text for Tables 5 and 6."""
    search = {planned.key: planned.axes["K"] for planned in runs("shape:offsets", profile)}
    assert [search[key] for key in search if key in keys("shape:table2", profile)] == offsets
    shared = set.intersection(*(keys(f"shaw:table{n}", profile) for n in (1, 2, 3)))
    base = one("shaw:table1", profile, model="base", languages="en-de", position="relative")
    assert base.key in shared
    assert len(shared) == (1 if profile == "paper" else 3)  # the seeds
    assert keys("shaw:speed", profile) <= keys("shaw:table1", profile)
    second_and_fifth = keys("nhk:table2", profile) & keys("nhk:table5", profile)
    assert len(second_and_fifth) == (0 if profile == "paper" else 6)  # none and qk
    if profile != "paper":
        first = {x.key for x in runs("nhk:table6", profile) if x.axes["layers"] == "1"}
        assert first | keys("nhk:table1", profile) <= keys("nhk:table3", profile)


@pytest.mark.parametrize("profile", PROFILES)
def test_each_slice_of_nhks_figure_is_a_bucket_of_its_own(profile):
    for planned in runs("nhk:figure3", profile):
        dataset = planned.config.data.recipe
        edges = (0, *planned.config.evaluation.length_buckets, None)
        if planned.axes["lengths"] == "all":
            assert dataset.name == "vanilla"
        else:
            begin = edges.index(dataset.min_length)
            assert edges[begin + 1] == dataset.max_length


@pytest.mark.parametrize(("profile", "num_layers"), [("tiny", 2), ("small", 3), ("paper", 6)])
def test_nhk_first_n_layers(profile, num_layers):
    table = runs("nhk:table6", profile)
    assert {int(planned.axes["layers"]) for planned in table} == set(range(1, num_layers + 1))
    for planned in table:
        assert planned.config.model.encoder_layers == num_layers
        layers = [part["layers"] for part in planned.config.position.parts]
        if planned.axes["position"] == "original-embedding":
            assert (planned.axes["layers"], layers) == ("1", [None])
        else:
            crossing = planned.axes["position"].endswith("cross-pe")
            assert layers == [int(planned.axes["layers"])] * (1 + crossing)
