"""Axes that list what the library has, and cells that it has no meaning for."""

import pytest
import yaml

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Grid
from shapeshift.positions import KINDS, PRESETS


@pytest.fixture
def make_grid(tmp_path):
    def make(**document):
        document = {
            "base": {"position": {"parts": [{"kind": "none", "place": "self"}]}},
            "scales": {"tiny": {}},
            "impossible": "leave out",
        } | document
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        return Grid(path)

    return make


def places(**options):
    return {
        place: [f"position.parts.0.place={place}", *settings] for place, settings in options.items()
    }


def names(grid, *overrides):
    return [cell.name for cell in grid.cells("tiny", overrides)]


def test_presets_are_those_of_the_library(make_grid, monkeypatch):
    grid = make_grid(axes={"position": "presets"})
    assert {c.axes["position"]: c.config.position.scheme for c in grid.cells("tiny")} == PRESETS
    monkeypatch.setitem(PRESETS, "mine", PRESETS["rpe"])
    assert "mine/1" in names(make_grid(axes={"position": "presets"}))


def test_a_listed_setting_can_be_named_in_conditions(make_grid):
    grid = make_grid(axes={"position": "presets"}, only=[{"position": ["rope", "alibi"]}])
    assert names(grid) == ["alibi/1", "rope/1"]
    with pytest.raises(ShapeshiftError, match="names position=rop, which is not there; did you"):
        make_grid(axes={"position": "presets"}, exclude=[{"position": "rop"}])


def test_kinds_stand_where_the_library_says_they_have_a_meaning(make_grid):
    """Of the kinds for both stacks; xPos is for decoders alone."""
    axes = {"kind": "kinds", "place": places(embedding=[], self=[], cross=[])}
    found = names(make_grid(axes=axes))
    expected = [
        f"{kind}/{place}/1"
        for kind, entry in KINDS.items()
        for place in ("embedding", "self", "cross")
        if place in entry.build.places and not entry.build.causal_only
    ]
    assert found == expected


def test_second_kinds_are_those_of_the_second_part(make_grid):
    parts = [{"kind": "alibi"}, {"kind": "none", "place": "cross"}]
    grid = make_grid(base={"position": {"parts": parts}}, axes={"crossing": "second-kinds"})
    schemes = [cell.config.position.scheme for cell in grid.cells("tiny")]
    assert {scheme.parts[0].kind for scheme in schemes} == {"alibi"}
    expected = [kind for kind, entry in KINDS.items() if "cross" in entry.build.places]
    assert [scheme.parts[1].kind for scheme in schemes] == expected


def test_kinds_without_an_option_are_left_out(make_grid):
    axes = {"kind": "kinds", "distance": {"8": ["position.parts.0.max_distance=8"]}}
    kinds = {name.split("/")[0] for name in names(make_grid(axes=axes))}
    assert kinds == {kind for kind, e in KINDS.items() if "max_distance" in e.options()} - {"t5"}


@pytest.mark.parametrize(
    ("settings", "overrides", "message"),
    [
        (
            {"axes": {"kind": "kinds", "place": places(cross=[])}, "impossible": "refuse"},
            [],
            r"kind=shaw place=cross .*has no meaning at 'cross'",
        ),
        (  # another setting than the position
            {"axes": {"kind": "kinds", "place": places(self=[])}},
            ["training.max_update=5"],
            "max_update: unknown key",
        ),
        (  # written by hand, with a meaning nowhere
            {"axes": {"kind": "kinds", "place": places(self=[], sefl=[])}},
            [],
            "unknown place 'sefl'; did you mean 'self'",
        ),
    ],
)
def test_what_is_more_than_without_meaning_is_an_error(make_grid, settings, overrides, message):
    with pytest.raises(ShapeshiftError, match=message):
        make_grid(**settings).cells("tiny", overrides)


def test_an_unknown_catalogue_is_named(make_grid):
    with pytest.raises(ShapeshiftError, match="no catalogue 'preset'; did you mean 'presets'"):
        make_grid(axes={"position": "preset"})
