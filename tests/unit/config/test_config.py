"""Reading a run's configuration: schemes, overrides, and errors that say what would be right."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import Config, load_config, parse_config
from shapeshift.config.config import parse_layers
from shapeshift.config.errors import find_key
from shapeshift.config.files import Layer
from shapeshift.config.foreign_names import FOREIGN_NAMES
from shapeshift.model import build
from shapeshift.model.position_config import PositionConfig, expand_position
from shapeshift.positions import KINDS, POSITION_IDS, SCHEMES, Part, PositionIds, Scheme
from shapeshift.positions.registry import FOREIGN_POSITIONS
from shapeshift.training.config import TrainingConfig

BASE = {
    "data": {"recipe": {"name": "extrapolate", "max_length": 20}},
    "model": {"size": "tiny", "ff_dim": 96},
    "position": "rpe",
    "training": {
        "optimizer": {"name": "adam", "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.01},
        "schedule": {"name": "inverse_sqrt", "peak": 0.002, "warmup_updates": 600},
    },
}
NTK = {"kind": "rotary", "scaling": "ntk", "factor": 2.0}
XPOS = {"kind": "xpos", "stacks": "decoder"}
ODD_HEADS = {"dim": 36, "num_heads": 4}


def refused(document: Any, *overrides: str) -> str:
    with pytest.raises(ShapeshiftError) as raised:
        parse_config(document, overrides)
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_each_error_has_the_file_and_line_in_which_it_stands(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model:\n  size: tiny\n  dropout: 2\nposition:\n  parts:\n    - {kind: shaw}\n"
        "    - {kind: rotari}\n"
    )
    (tmp_path / "run.yaml").write_text(
        "extends: base.yaml\n\ndecoding: {beam: 0}\ndata:\n  corpus: {corpus: hub, repo: a,\n"
        "    source: en}\nevaluation:\n  metrics: [bleu,\n    blue]\n"
    )
    with pytest.raises(ShapeshiftError) as raised:
        load_config(tmp_path / "run.yaml", ["training.seed=x"])
    run, base = tmp_path / "run.yaml", tmp_path / "base.yaml"
    for said in (
        f"{base}:3: model.dropout: expected less than 1, got 2",
        f"{base}:4: position: unknown kind 'rotari'",
        f"{run}:3: decoding.beam: expected 1 or more, got 0",
        f"{run}:6: data.corpus.target: missing",
        f"{run}:9: evaluation.metrics.1: expected 'bleu'",
        "; training.seed: expected a whole number, got 'x'",
    ):
        assert said in str(raised.value), (said, str(raised.value))


def position(*parts: dict, **position_ids: object) -> dict:
    return {
        "position": {"position_ids": {"name": "absolute", **position_ids}, "parts": list(parts)}
    }


def called(name: str, *parts: dict) -> dict:
    return {"position": {"name": name, "parts": list(parts)}}


@pytest.mark.parametrize("name", [kind for kind in KINDS if kind not in SCHEMES])
def test_a_kind_is_a_scheme_at_its_default_place(name: str) -> None:
    position = parse_config({"position": name}, ["position.position_ids=shifted"]).position
    scheme = Scheme(PositionIds("shifted"), (Part(name, KINDS[name].build.places[0]),))
    assert (position.name, position.scheme) == (name, scheme)


def test_a_kind_of_ones_own_is_a_scheme() -> None:
    kerple = "shapeshift.positions:KERPLE"
    position = parse_config({}, [f"position={kerple}", "position.parts.0.layers=1"]).position
    assert (position.name, position.parts) == (
        "KERPLE",
        [{"kind": kerple, "place": "self", "stacks": "both", "layers": 1}],
    )
    assert "no kind 'nowhere:Kind'" in refused({}, "position=nowhere:Kind")


def test_names_elsewhere_are_those_of_schemes() -> None:
    assert {*FOREIGN_POSITIONS.values()} <= SCHEMES.keys()
    assert not FOREIGN_POSITIONS.keys() & {*SCHEMES, *POSITION_IDS, *KINDS}


def test_layers_on_the_command_line_replace_those_of_a_file():
    part = {"kind": "rotary", "layers": {"every": 4, "offset": 3}}
    document = {"position": {"parts": [part]}}
    replaced = "position.parts.0.layers={except: [3, 5]}"
    assert parse_config(document, [replaced]).position.parts[0]["layers"] == {"except": [3, 5]}
    changed = parse_config(document, ["position.parts.0.layers.every=2"])
    assert changed.position.parts[0]["layers"] == {"every": 2, "offset": 3}
    with pytest.raises(ShapeshiftError, match=r"layers=.* selects none of the 2 layers"):
        parse_config({**document, "model": {"size": "tiny"}})


@pytest.mark.parametrize("name", list(SCHEMES))
def test_a_scheme_by_name_in_a_mapping_and_spelled_out(name: str, tmp_path: Path) -> None:
    config = parse_config({"position": name})
    assert (config.position.name, config.position.scheme) == (name, SCHEMES[name])
    assert parse_config({"position": expand_position(name)}) == config
    assert parse_config({"position": {"name": name}}) == config
    assert parse_config({"position": "ape"}, [f"position.name={name}"]) == config
    path = tmp_path / "run.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(path) == config


def test_a_scheme_of_ones_own() -> None:
    shaw = {"kind": "shaw", "max_distance": 4, "layers": 2, "stacks": "encoder"}
    keys = {"kind": "sinusoidal", "place": "cross", "add_to": "k"}
    assert parse_config(position(shaw, keys, name="shifted", max_offset=7)).position.scheme == (
        Scheme(
            PositionIds("shifted", {"max_offset": 7}),
            (
                Part("shaw", None, "encoder", 2, {"max_distance": 4}),
                Part("sinusoidal", "cross", options={"add_to": "k"}),
            ),
        )
    )


@pytest.mark.parametrize(
    "overrides",
    [
        ("position={parts: [{kind: rotary, base: -1}]}", "model.num_heads=7"),
        ("data.subwords.joint=false", "training.max_updates=-1"),
        ("evaluation.detokenize=moses", "data.subwords.joint=false", "decoding.beam=0"),
        ("nonsense", "training.max_updates=-1"),
        ("position.nonsense.y=1", "model.dim.y=2", "decoding.beam=0"),
    ],
)
def test_what_is_wrong_in_one_way_does_not_hide_what_is_in_another(
    overrides: tuple[str, ...],
) -> None:
    given = {"model": {"dim": 16, "num_heads": 2}}
    alone = [refused(given, each) for each in overrides]
    together = refused(given, *overrides)
    assert all(each.partition(", got")[0] in together for each in alone), (alone, together)
    assert len(set(together.split("; "))) == len(together.split("; "))


def test_the_name_of_a_position_is_by_default_what_the_page_says() -> None:
    assert PositionConfig.model_fields["name"].default == parse_config({}).position.name == "ape"
    parts = {"position": {"parts": [{"kind": "alibi"}]}}
    assert parse_config(parts).position.name == "custom"


def test_all_errors_are_reported_at_once() -> None:
    message = refused(
        {
            "modle": {},
            "model": {"dims": 4, "dropout": 1.5},
            "position": {"parts": [{"kind": "rotari"}, {"kind": "shaw", "max_distans": 3}]},
            "data": {"subwords": {"vocab_size": 1}},
            "training": {"max_updates": "many", "average_checkpoints": 3, "keep_checkpoints": 2},
            "evaluation": {"metrics": [[1]], "length_buckets": {}},
        },
        "training.seed=1",
        "training.seed=2",
    )
    for problem in (
        "modle: unknown key; did you mean 'model'?",
        "model.dims: unknown key; did you mean 'model.dim'?",
        "model.dropout: expected less than 1, got 1.5",
        "unknown kind 'rotari'",
        "no option 'max_distans'",
        "data.subwords.vocab_size: expected 8 or more, got 1",
        "training.max_updates: expected a whole number, got 'many'",
        "training.average_checkpoints: 3 needs",
        "evaluation.metrics.0: expected 'bleu'",
        "evaluation.length_buckets: expected a list, as in [a, b], got {}",
        "training.seed is given twice, training.seed=1 and training.seed=2; give one",
    ):
        assert message.count(problem) == 1, (problem, message)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (position({"kind": "shav"}), "did you mean 'shaw'?"),
        (position({"kind": "shaw", "max_distanc": 2}), "did you mean 'max_distance'?"),
        (position({"kind": "shaw", "max_distance": "16"}), "Shaw.max_distance: .*got '16'"),
        (position({"place": "self"}), "a part needs a kind"),
        (position({"kind": ["shaw"]}), r"Part.kind: .*got \['shaw'\]"),
        (position(name=["shifted"]), "PositionIds.name: .*"),
        (position(name="absolute", max_offset=3), "'absolute' has no option 'max_offset'"),
        ({"model": None}, "model: expected a section, got null"),
        ({"model": {"dim": 10, "num_heads": 4}}, "model.num_heads: dim 10 is not a multiple"),
        (
            {"model": {"share_embeddings": True}, "data": {"subwords": {"joint": False}}},
            "share_embeddings needs one vocabulary",
        ),
        ({"model": ODD_HEADS, "position": "rope"}, "head_dim=9; choose .*model.dim"),
        (called("kerple", {"kind": "rotary"}), "named 'kerple', but it is rotary at self"),
        (called("none", {"kind": "rotary"}), "named 'none', .* such as none-changed"),
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
        ({"data": {"corpus": {"source": "no", "train": "a"}}}, r"`corpus:` is missing \(files, hu"),
        ({"position": {"name": "alibbi"}}, "did you mean 'alibi'"),
        ({"position": "SHAPE"}, "did you mean 'shape'?"),
        ({"position": "shaw_relative"}, "did you mean 'rpe'?"),
        ({"position": "no_pos"}, "did you mean 'nope'?"),
        ({"position": "kerpel"}, "did you mean 'kerple'?"),
        ({"data": {"recipes": "vanilla"}}, r"did you mean 'data.recipe'\?"),
        ({"position": "shifted"}, "set position.position_ids.name=shifted"),
        ({"model": {"zzzzz": 1}}, "unknown key .known: "),
        ({1: 2}, "1: unknown key"),
        ({"evaluation": {"detokenize": "moses"}}, "detokenize=moses has no effect"),
        ({"data": {"recipe": "vanila"}}, r"expected 'vanilla' or .*, got 'vanila'; did you mean"),
        ({"position": {"name": "mine", "position_ids": {"name": "shifted"}}}, "no parts are given"),
    ],
)
def test_one_line_names_the_setting_and_the_value(document: object, problem: str) -> None:
    message = refused(document)
    assert problem in message or re.search(problem, message), message


@pytest.mark.parametrize(
    "document",
    [
        {"model": "base", **position({**NTK, "fraction": 0.25})},
        {"model": ODD_HEADS, "position": "rpe"},
        position({"kind": "rotary"}, {"kind": "shaw", "add_to": "values"}, {"kind": "tupe"}),
        position({"kind": "rotary", "stacks": "encoder"}, {"kind": "skew", "stacks": "decoder"}),
        position({"kind": "rotary", "place": "cross"}, {"kind": "shaw"}),
        position({"kind": "learned", "num_positions": 2048}, name="randomized"),
        position({"kind": "learned"}, name="shifted", max_offset=1023),
        called("kerple", {"kind": "kerple"}, {"kind": "sinusoidal", "place": "embedding"}),
        called("none"),
    ],
)
def test_what_can_be_built_is_not_refused(document: dict) -> None:
    config = parse_config(document)
    with torch.device("meta"):
        build(config.model, config.position.scheme, 50, 50)


@pytest.mark.parametrize("name", sorted(FOREIGN_NAMES))
def test_a_foreign_name_stands_for_a_key_that_there_is(name: str) -> None:
    assert find_key(name, Config) == FOREIGN_NAMES[name]
    section = "model" if name == "steps" else "training"
    assert f"did you mean '{FOREIGN_NAMES[name]}'" in refused({section: {name: 1}})


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("position.max_offset=3", "'position.position_ids.max_offset'"),
        ("position.max_distance=3", "'position.parts.0.max_distance'"),
        ("schedule.peak=1", "'training.schedule'"),
        ("model.max_updates=8", "'training.max_updates'"),
        ("training.max_update=8", "'training.max_updates'"),
        ("data.corpus.num_trian=8", "'data.corpus.num_train'"),
        ("dropout=0.3", "'model.dropout'"),
        ("max_tokens=100", "'training.batch.max_tokens'"),
        # What counts something else says so.
        ("training.epochs=20", "'training.max_updates'? (it counts updates, not epochs"),
        ("training.batch_size=20", "'training.batch.max_tokens'? (it counts tokens"),
        ("training.save_interval=20", "'training.checkpoint_every'? (it counts updates, not epo"),
    ],
)
def test_a_wrong_key_is_answered_with_the_right_one(override: str, meant: str) -> None:
    assert f"unknown key; did you mean {meant}" in refused({}, override)


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
    default = parse_config({}, ["position.name=mine", "position.parts.0.base=500"]).position
    assert default.scheme.parts == (Part("sinusoidal", "embedding", options={"base": 500}),)
    assert parse_config({"position": "rpe"}).position.scheme == SCHEMES["rpe"], "the scheme changed"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("training.max_updates",), "an override looks like"),
        (("=3",), "an override looks like"),
        (("training.max_updates=[1",), "is not YAML"),
        (("training.seed=1", "training.seed.x=1"), "(plain value|would undo)"),
        (("position.parts.1.kind=shaw",), "'1' is not one of the 1 items"),
        (("position.parts.x.kind=shaw",), "'x' is not one of the 1 items"),
        (("training.schedule=cosin",), "did you mean 'cosine'"),
        (("training.optimizer=adamm",), "training.optimizer.name: expected 'adam'"),
        (("model=tinny",), "model.size: expected 'tiny'"),
        (("position=rope", "position.position_ids.name=shifted"), "(named 'rope'|would undo)"),
        (("position=rope", "position.parts.0.place=cross"), "(named 'rope'|would undo)"),
        (("training.seed=1", "training.seed=1"), "training.seed is given twice"),
        (("position=ape", "position.name=rope"), "position is given twice"),
        (("position.name=alibbi",), "did you mean 'alibi'"),
        (("position=ape", "position={name: a, parts: [{kind: skew}]}"), "would undo"),
        (("position.parts=[{kind: skew, max_distance: 3}]", "position.parts.0.max_distance=4"), ""),
        (("training.schedule=noam", "training.schedule.name=cosine"), "name is given twice"),
        (("model={dim: 8}", "model.dim=16"), "model.dim is given twice, model"),
        (("training.schedule.warmup_update=1", "training.schedule.name=cosine"), "unknown key"),
        (("training.schedule.name=cosine", "training.schedule.factor=3"), "goes with name 'noam'"),
        (("data.corpus=wmt14-en-de", "data.corpus.corpus=files"), "would undo"),
        (("model=5", "model.size=tiny"), "(goes through a plain value|would undo)"),
        (("position=[a]", "position.parts=[]", "position.position_ids=shifted"), "position"),
        (("position=rope", "position.parts=[{kind: shaw}]"), "both in one: position={name: …, pa"),
    ],
)
def test_overrides_that_cannot_be_are_refused_in_any_order(
    overrides: tuple[str, ...], problem: str
) -> None:
    for order in (overrides, overrides[::-1]):
        assert re.search(problem, refused(BASE, *order))


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("position.position_ids.max_offset=40", "position=shape"),
        ("position.name=mine", "position=shape"),
        ("data.corpus.root=text", "data.corpus=wmt14-en-de"),
        ("model.dim=96", "model=base"),
        ("position.parts.0.start=3", "position={parts: [{kind: skew}]}"),
    ],
)
def test_an_override_that_would_undo_an_earlier_one_names_both(first: str, later: str) -> None:
    assert f"{later} would undo {first}; give it first" in refused({}, first, later)
    # What an earlier layer has given, a later one replaces.
    layers = [Layer({"model": {"num_heads": 4}}), Layer([first]), Layer([later])]
    if not later.startswith("model") and first != "position.name=mine":
        assert parse_layers(layers) == parse_layers([layers[0], layers[2]])


@pytest.mark.parametrize(
    "setting",
    [
        "training.seed=true",
        "training.label_smoothing=false",
        "training.clip_norm=true",
        "training.optimizer.betas=[true, 0.9]",
        "data.corpus.num_train=true",
        "evaluation.length_buckets=[true]",
        "training.max_updates='5'",
        "training.clip_norm='1.5'",
        "training.optimizer.betas=[0.9, '0.98']",
        "data.corpus.num_train='9'",
    ],
)
def test_true_and_false_and_text_are_no_numbers(setting: str) -> None:
    said = refused({}, setting)
    assert said.startswith(setting.partition("=")[0])
    assert re.search("a (whole )?number, got (true|false|'[0-9.]+')", said)


@pytest.mark.parametrize("value", ["yes", "on", "t", "1", "1.0", "'true'", "[true]"])
@pytest.mark.parametrize(
    "key", ["training.compile", "decoding.batch_invariant", "data.corpus.reverse"]
)
def test_only_true_and_false_are_true_and_false(key: str, value: str) -> None:
    assert f"{key}: expected true or false, got " in refused({}, f"{key}={value}")
    assert parse_config({}, ["training.compile=true"]).training.compile is True


def test_metrics_count_once() -> None:
    twice = "[bleu, chrf, bleu]"
    settings = [f"evaluation.metrics={twice}", f"training.validate_metrics={twice}"]
    config = parse_config({}, settings)
    assert config.evaluation.metrics == config.training.validate_metrics == ("bleu", "chrf")


def test_very_large_numbers_of_training() -> None:
    assert "training.rank_timeout_s: " in refused({}, "training.rank_timeout_s=1e15")
    training = TrainingConfig(checkpoint_every=1, average_checkpoints=2)
    assert training.averaged_updates(10**15) == [10**15 - 1, 10**15]
    assert training.averaged_updates(1) == [1]


@pytest.mark.parametrize("updates", [1, 5, 1_000, 5_000])
def test_a_cosine_that_would_not_begin_is_refused_with_a_length_that_works(updates: int) -> None:
    cosine = ["training.schedule=cosine", f"training.max_updates={updates}"]
    said = refused({}, *cosine)
    assert said.startswith("training.schedule: ")
    more = re.search(r"max_updates=(\d+) or more", said)
    fewer = re.search(r"warmup_updates=(\d+) here", said)
    assert parse_config({}, [cosine[0], f"training.max_updates={more[1]}"])
    if updates > 1:
        assert parse_config({}, [*cosine, f"training.schedule.warmup_updates={fewer[1]}"])


def test_the_remedy_for_a_wrong_name_works() -> None:
    shifted = "position.position_ids.name=shifted"
    remedy = f"position.name={refused({'position': 'rope'}, shifted).rpartition(' ')[2]}"
    position = parse_config({"position": "rope"}, [shifted, remedy]).position
    assert position.name == "rope-changed"
    assert position.scheme.position_ids.name == "shifted"
    assert position.scheme.parts == SCHEMES["rope"].parts


def test_what_a_scheme_filled_in_goes_with_it_and_what_was_given_does_not() -> None:
    changed = ["position.position_ids={name: randomized, max_position: 999}", "position.name=mine"]
    position = parse_config({"position": "shape"}, changed).position
    assert position.position_ids == {"name": "randomized", "max_position": 999}
    given = {"position": {"name": "shape", "position_ids": {"max_offset": 40}}}
    assert "no option 'max_offset'" in refused(given, *changed)
    # Other parts do not have the name of the scheme.
    position = parse_config({"position": "rope"}, ["position={parts: [{kind: alibi}]}"]).position
    assert (position.name, position.scheme.parts[0].kind) == ("custom", "alibi")


@pytest.mark.parametrize("file", [{}, {"position": "rope"}])
def test_a_mistyped_scheme_is_no_label_of_the_parts_that_are_there(file: dict) -> None:
    end = "position.parts.0.stacks=encoder"
    assert "did you mean 'kerple'?" in refused(file, "position=kerpel", end)
    assert parse_config(file, ["position.name=mine", end]).position.name == "mine"


def test_other_parts_do_not_keep_the_position_ids_of_the_scheme() -> None:
    parts = "position={name: foo, parts: [{kind: shaw}]}"
    ids = [
        parse_config(file, [parts]).position.scheme.position_ids.name
        for file in ({"position": "shape"}, {"position": {"position_ids": "shifted"}})
    ]
    assert ids == ["absolute", "shifted"]


def test_an_empty_section_does_not_hide_where_its_values_are_from(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model:\n  dropout: 7\n")
    with pytest.raises(ShapeshiftError, match=r"run\.yaml:2: model\.dropout"):
        load_config(path, ["model={}"])


def test_a_size_that_would_undo_a_width_of_the_file_is_refused_with_a_remedy(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model:\n  size: tiny\n  dim: 96\n  ff_dim: 1024\n")
    for size in ("model=small", "model.size=small"):
        with pytest.raises(ShapeshiftError) as raised:
            load_config(path, [size])
        assert str(raised.value) == (
            f"{size} would undo model.dim=96 ({path}:3); give model.dim as well: 96 keeps it, 256"
            " is that of 'small'"
        )
    kept = load_config(path, ["model=small", "model.dim=96"]).model
    assert (kept.dim, kept.ff_dim, kept.encoder_layers) == (96, 1024, 3)
    spelled_out = yaml.safe_load(load_config(path).to_yaml())
    assert parse_config(spelled_out, ["model.dropout=0.2"]).model.dim == 96
    small = {"dim": 8, "num_heads": 2, "ff_dim": 8, "encoder_layers": 1, "decoder_layers": 1}
    given = [f"model.{key}={value}" for key, value in small.items()]
    assert "model=big has no effect: model.dim, model.num" in refused({}, "model=big", *given)


def test_fields_that_two_choices_share_stay() -> None:
    changed = ["training.schedule.name=cosine", "training.optimizer.name=adamw"]
    training = parse_config(BASE, changed).training
    assert (training.schedule.peak, training.schedule.warmup_updates) == (0.002, 600)
    optimizer = training.optimizer.model_dump()
    assert optimizer == {**BASE["training"]["optimizer"], "name": "adamw", "betas": (0.8, 0.9)}


@pytest.mark.parametrize(
    ("choice", "key"),
    [
        ("training.schedule.name=noam", "training.schedule.peak"),
        ("data.recipe=interpolate", "data.recipe.max_length"),
    ],
)
def test_what_does_not_go_with_a_choice_is_an_error_whose_remedy_works(
    choice: str, key: str
) -> None:
    message = refused(BASE, choice)
    assert f"{key}: goes with name" in message
    remedy = message.rpartition("(")[2].rstrip(")")
    assert remedy == f"{key}=null"
    # A file that extends another one follows the same rule.
    first, second, last = key.split(".")
    chosen = {"name": choice.partition("=")[2]}
    layers = [Layer({first: {second: x}}) for x in (chosen, {**chosen, last: None})]
    with pytest.raises(ShapeshiftError, match=key):
        parse_layers([Layer(BASE), layers[0]])
    assert parse_layers([Layer(BASE), layers[1]]) == parse_config(BASE, [choice, remedy])


OVERRIDES = (
    "position=shape",
    "position.name=mine",
    "position.position_ids.max_offset=40",
    "position.position_ids={name: shifted, max_offset: 9}",
    "position.parts.0.start=3",
    "position.parts.0.max_distance=8",
    "position={name: mine, parts: [{kind: skew}]}",
    "training.schedule.name=cosine",
    "training.schedule=noam",
    "training.schedule.warmup_updates=100",
    "training.schedule.peak=0.5",
    "training.schedule.peak=null",
    "training.schedule.factor=3",
    "training.optimizer={eps: 1e-3}",
    "training.optimizer=adamw",
    "training.seed=5",
    "training.sede=5",
    "position=kerple",
    "position.position_ids=randomized",
    "model=tiny",
    "data.recipe.name=interpolate",
    "data.recipe.num_joined=3",
    "data.recipe.max_length=null",
    "data.recipe={max_length: 7}",
    "data.corpus=wmt14-en-de",
    "data.corpus.subset=fr-en",
    "data.corpus.num_train=70",
    "model.size=small",
    "model.ff_dim=64",
    "decoding.length_penalty={name: none}",
    "evaluation.metrics=[bleu]",
    "evaluation.length_buckets=[4, 9]",
)


def _resolved(*layers: list[str]) -> Config | None:
    try:
        return parse_layers([Layer(BASE), *map(Layer, layers)])
    except ShapeshiftError:
        return None


def _look_up(config: Config, key: str) -> Any:
    node: Any = config.model_dump(mode="json")
    for step in key.split("."):
        node = node[int(step)] if isinstance(node, list) else node.get(step)
    return node


def _shows(shown: Any, value: Any) -> bool:
    """Whether a value is to be seen in what it was given to."""
    if isinstance(value, dict):
        return all(_shows(shown.get(key), below) for key, below in value.items())
    if isinstance(shown, dict):  # a name for a section
        return value in shown.values() or (value == "wmt14-en-de" and shown["repo"] == "wmt/wmt14")
    if isinstance(shown, list):
        return len(shown) == len(value) and all(map(_shows, shown, value))
    return bool(shown == value)


def _check_shown(config: Config, overrides: list[str]) -> None:
    for override in overrides:
        key, _, value = override.partition("=")
        if key == "position" and "position.name=mine" in overrides:
            continue  # a scheme under another name
        assert _shows(_look_up(config, key), yaml.safe_load(value.replace("1e-3", "0.001")))


@settings(max_examples=120, deadline=None)
@given(st.lists(st.sampled_from(OVERRIDES), min_size=1, max_size=6, unique=True), st.randoms())
def test_orders_that_are_accepted_agree_and_everything_given_shows(
    overrides: list[str], rng: random.Random
) -> None:
    config, other = _resolved(overrides), _resolved(rng.sample(overrides, len(overrides)))
    if config is not None:
        _check_shown(config, overrides)
        assert other in (None, config)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.sampled_from(OVERRIDES), max_size=3, unique=True), max_size=4))
def test_the_last_layer_shows_whatever_the_others_give(layers: list[list[str]]) -> None:
    if config := _resolved(*layers):
        _check_shown(config, layers[-1] if layers else [])
