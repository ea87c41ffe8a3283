"""Reading a run's configuration: presets, overrides, and errors that say what would be right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from shapeshift.config import Config, load_config, parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.foreign_names import FOREIGN_POSITIONS
from shapeshift.model import build
from shapeshift.model.position_config import expand_preset
from shapeshift.positions import POSITION_IDS, PRESETS, Part, PositionIds, Scheme


def refused(document: object, *overrides: str) -> str:
    with pytest.raises(ShapeshiftError) as raised:
        parse_config(document, overrides)
    message = str(raised.value)
    assert "\n" not in message
    return message


def position(*parts: dict, **position_ids: object) -> dict:
    return {
        "position": {"position_ids": {"name": "absolute", **position_ids}, "parts": list(parts)}
    }


def called(name: str, *parts: dict) -> dict:
    return {"position": {"name": name, "parts": list(parts)}}


def model(**settings: object) -> dict:
    return {"model": settings}


NTK = {"kind": "rotary", "scaling": "ntk", "factor": 2.0}
XPOS = {"kind": "xpos", "stacks": "decoder"}


def test_an_empty_file_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# to be written\n")
    (tmp_path / "mine.yaml").write_text("extends: empty.yaml\n")
    for name in ("empty.yaml", "mine.yaml"):
        with pytest.raises(
            ShapeshiftError, match=r"empty\.yaml: is empty; .*stands for all defaults"
        ):
            load_config(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("title: mine\ngrid: {axes: {}}\n", "is a study, .* `shapeshift reproduce .*run.yaml`"),
        ("axes: {position: presets}\n", "is a grid, .*`grid: .*run.yaml`"),
    ],
)
def test_what_is_no_configuration_of_a_run_is_named(text: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(ShapeshiftError, match=remedy):
        load_config(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("SHAPE", "did you mean 'shape'?"),
        ("rotary", "did you mean 'rope'?"),
        ("roformer", "did you mean 'rope'?"),
        ("shaw", "did you mean 'rpe'?"),
        ("none", "did you mean 'nope'?"),
        ("shifted", "set position.position_ids.name=shifted"),
    ],
)
def test_a_name_that_is_no_preset_is_answered_with_what_is_meant(name: str, said: str) -> None:
    assert said in refused({"position": name})


def test_the_answer_to_a_kind_that_is_no_preset_works() -> None:
    message = refused({"position": "kerple"})
    remedy = re.search(r"write (position=)'(.*)' \(", message)
    assert remedy is not None
    assert "did you mean" not in message
    (part,) = parse_config({}, [remedy[1] + remedy[2]]).position.scheme.parts
    assert part.kind == "kerple"


def test_names_elsewhere_are_those_of_presets() -> None:
    assert {*FOREIGN_POSITIONS.values()} <= PRESETS.keys()
    assert not FOREIGN_POSITIONS.keys() & {*PRESETS, *POSITION_IDS}


def test_nothing_given_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("{}  # nothing\n")
    assert parse_config({}) == load_config(path) == Config()
    assert Config().position.scheme == PRESETS["ape"]


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_by_name_in_a_mapping_and_spelled_out(name: str, tmp_path: Path) -> None:
    config = parse_config({"position": name})
    assert (config.position.name, config.position.scheme) == (name, PRESETS[name])
    assert parse_config({"position": expand_preset(name)}) == config
    assert parse_config({"position": {"name": name}}) == config
    assert parse_config({"position": "ape"}, [f"position.name={name}"]) == config
    path = tmp_path / "run.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(path) == config


def test_a_scheme_of_ones_own() -> None:
    document = position(
        {"kind": "shaw", "max_distance": 4, "layers": 2, "stacks": "encoder"},
        {"kind": "sinusoidal", "place": "cross", "add_to": "k"},
        name="shifted",
        max_offset=7,
    )
    assert parse_config(document).position.scheme == Scheme(
        PositionIds("shifted", {"max_offset": 7}),
        (
            Part("shaw", None, "encoder", 2, {"max_distance": 4}),
            Part("sinusoidal", "cross", options={"add_to": "k"}),
        ),
    )


def test_all_errors_are_reported_at_once() -> None:
    message = refused(
        {
            "modle": {},
            "model": {"dims": 4, "dropout": 1.5},
            "position": "shappe",
            "data": {"subwords": {"vocab_size": 1}},
            "training": {"max_updates": "many", "average_checkpoints": 3, "keep_checkpoints": 2},
        }
    )
    for problem in (
        "modle: unknown key; did you mean 'model'?",
        "model.dims: unknown key; did you mean 'model.dim'?",
        "model.dropout: expected less than 1, got 1.5",
        "unknown preset 'shappe'; did you mean 'shape'?",
        "data.subwords.vocab_size",
        "training.max_updates: expected a whole number, got 'many'",
        "training.average_checkpoints: 3 needs",
    ):
        assert message.count(problem) == 1, (problem, message)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (position({"kind": "shav"}), "did you mean 'shaw'?"),
        (position({"kind": "shaw", "max_distanc": 2}), "did you mean 'max_distance'?"),
        (position({"kind": "shaw", "max_distance": "16"}), "Shaw.max_distance: .*got '16'"),
        (position({"kind": "shaw", "add_to": "queries"}), "Shaw.add_to: .*got 'queries'"),
        (position({"kind": "shaw", "per_head": "no"}), "Shaw.per_head: .*got 'no'"),
        (position({"place": "self"}), "a part needs a kind"),
        (position({"kind": "shaw", "layers": True}), "Part.layers: .*True"),
        (position({"kind": 3}), "Part.kind: .*got 3"),
        (position({"kind": ["shaw"]}), r"Part.kind: .*got \['shaw'\]"),
        (position({"kind": "shaw", "place": 3}), "Part.place: .*got 3"),
        (position(name=["shifted"]), "PositionIds.name: .*"),
        (position(name="shifted", max_offset="far"), "Shifted.max_offset: .*got 'far'"),
        (position(name="absolute", max_offset=3), "'absolute' has no option 'max_offset'"),
        ({"position": 3}, "position"),
        ({"model": None}, "model"),
        ({1: 2}, "1"),
        (["model"], "expected sections .*got list"),
        ("model", "expected sections .*got str"),
        (model(dim=10, num_heads=4), "model.num_heads: dim 10 is not a multiple"),
        (
            model(share_embeddings=True) | {"data": {"subwords": {"joint": False}}},
            "share_embeddings needs one vocabulary",
        ),
        (model(dim=36, num_heads=4) | {"position": "rope"}, "head_dim=9; choose .*model.dim"),
        (model(dim=33, num_heads=3), "even width of 4 or more, got dim=33"),
        (position({"kind": "shaw", "max_distance": -1}), "must be at least 0, got -1"),
        (position({"kind": "graph"}), "unknown kind 'graph'"),
        (called("kerple", {"kind": "rotary"}), "named 'kerple', but it is rotary at self"),
        (called("none", {"kind": "rotary"}), "named 'none', .* such as none-changed"),
        (called("fire"), "named 'fire', but it is no position"),
        (called("shifted", {"kind": "rotary"}), "named 'shifted', .*position ids absolute"),
        (
            position({"kind": "learned"}, name="shifted", max_offset=5000),
            "to 5000, but Learned .* to 1023; use a smaller max_offset, a larger num_positions",
        ),
        (
            position({"kind": "learned", "place": "cross"}, name="randomized"),
            "up to 2047, .* up to 1023; use a smaller max_position, a larger num_positions",
        ),
        (
            position(XPOS, name="shifted", max_offset=20000),
            "up to 20000, but XPos takes positions up to 14504; use a smaller max_offset",
        ),
        (
            position({"kind": "shaw"}, {**XPOS, "layers": 1}),
            "XPos turns .*Shaw reads.*; give them different stacks or places",
        ),
        (position({"kind": "rotary"}, {"kind": "rotary", "base": 500}), "both change the queries"),
        (position({"kind": "shaw", "add_to": "keys", "share_tables": True}), "one table"),
    ],
)
def test_one_line_names_the_setting_and_the_value(document: object, problem: str) -> None:
    message = refused(document)
    assert problem in message or re.search(problem, message), message


@pytest.mark.parametrize(
    "document",
    [
        model(size="base") | position({**NTK, "fraction": 0.25}),
        model(dim=36, num_heads=2) | {"position": "rope"},
        model(dim=36, num_heads=4) | {"position": "rpe"},
        position({"kind": "rotary"}, {"kind": "shaw", "add_to": "values"}, {"kind": "tupe"}),
        position({"kind": "rotary", "stacks": "encoder"}, {"kind": "skew", "stacks": "decoder"}),
        position({"kind": "rotary", "place": "cross"}, {"kind": "shaw"}),
        position({"kind": "learned", "num_positions": 2048}, name="randomized"),
        position({"kind": "learned"}, name="shifted", max_offset=1023),
        called("kerple", {"kind": "kerple"}, {"kind": "sinusoidal", "place": "embedding"}),
        called("kerple-changed", {"kind": "rotary"}),
        called("none"),
    ],
)
def test_what_can_be_built_is_not_refused(document: dict) -> None:
    config = parse_config(document)
    with torch.device("meta"):
        build(config.model, config.position.scheme, 50, 50)


def test_overrides_reach_into_sections_presets_and_lists() -> None:
    document = {"position": "rpe", "training": {"max_updates": 3}}
    config = parse_config(
        document,
        [
            "training.max_updates=500",
            "model.size=tiny",
            "position.parts.0.max_distance=4",
            "position.name=rpe-4",
            "decoding.length_penalty={name: gnmt, alpha: 0.2}",
            "training.clip_norm=null",
        ],
    )
    assert config.training.max_updates == 500
    assert config.model.dim == 128
    assert config.position.name == "rpe-4"
    assert config.position.scheme.parts[0].options == {"max_distance": 4}
    assert config.decoding.length_penalty.alpha == 0.2
    assert document == {"position": "rpe", "training": {"max_updates": 3}}, "what was given changed"
    assert parse_config({"position": "rpe"}).position.scheme == PRESETS["rpe"], "the preset changed"


def test_overrides_of_the_default_position_start_from_it() -> None:
    config = parse_config({}, ["position.name=mine", "position.parts.0.base=500"])
    assert config.position.scheme.parts == (Part("sinusoidal", "embedding", options={"base": 500}),)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("training.max_updates", "an override looks like"),
        ("=3", "an override looks like"),
        ("training.max_updates=[1", "is not YAML"),
        ("training.seed.x=1", "plain value"),
        ("position.parts.1.kind=shaw", "'1' is not one of the 1 items"),
        ("position.parts.x.kind=shaw", "'x' is not one of the 1 items"),
        ("training.max_update=3", "did you mean 'training.max_updates'?"),
    ],
)
def test_overrides_that_cannot_be(override: str, problem: str) -> None:
    assert problem in refused({"training": {"seed": 1}, "position": "ape"}, override)
