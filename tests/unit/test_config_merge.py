"""What is laid over a configuration: files that extend others, and overrides, in any order."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shapeshift.config import Config, load_config, parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import PRESETS, PositionIds

BASE = {
    "data": {"dataset": {"name": "extrapolate", "max_length": 20}},
    "model": {"size": "tiny", "ff_dim": 96},
    "position": "rpe",
    "training": {
        "optimizer": {"name": "adam", "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.01},
        "schedule": {"name": "inverse_sqrt", "peak": 0.002, "warmup_updates": 600},
    },
}


def refused(document: object, *overrides: str) -> str:
    with pytest.raises(ShapeshiftError) as raised:
        parse_config(document, overrides)
    return str(raised.value)


@pytest.mark.parametrize(
    ("position", "overrides", "problem"),
    [
        ({"name": "alibbi"}, (), "did you mean 'alibi'"),
        ("ape", ("position.name=alibbi",), "did you mean 'alibi'"),
        ({"name": "mine", "position_ids": {"name": "shifted"}}, (), "no parts are given"),
        ({"name": "rope", "parts": [{"kind": "alibi"}]}, (), "named 'rope'"),
        ({"name": "rope", "parts": []}, (), "named 'rope'"),
        ("rope", ("position.position_ids.name=shifted",), "named 'rope'"),
        ("rope", ("position.parts.0.place=cross",), "named 'rope'"),
    ],
)
def test_a_name_says_what_the_scheme_is(
    position: object, overrides: tuple[str, ...], problem: str
) -> None:
    assert problem in refused({"position": position}, *overrides)


def test_the_remedy_for_a_wrong_name_works() -> None:
    shifted = "position.position_ids.name=shifted"
    remedy = refused({"position": "rope"}, shifted).partition("(")[2].partition(")")[0]
    position = parse_config({"position": "rope"}, [shifted, remedy]).position
    assert position.name == "rope-changed"
    assert position.scheme.position_ids.name == "shifted"
    assert position.scheme.parts == PRESETS["rope"].parts
    # Also for a run that was made when such a name was accepted.
    document = {"position": {"name": "rope", "position_ids": {"name": "absolute"}, "parts": []}}
    remedy = refused(document).partition("(")[2].partition(")")[0]
    assert parse_config(document, [remedy]).position.scheme == PRESETS["nope"]


def test_what_a_preset_filled_in_for_its_position_ids_goes_with_them() -> None:
    changed = ["position.position_ids={name: randomized, max_position: 999}", "position.name=mine"]
    position = parse_config({"position": "shape"}, changed).position
    assert position.position_ids == {"name": "randomized", "max_position": 999}
    given = {"position": {"name": "shape", "position_ids": {"max_offset": 40}}}
    assert "no option 'max_offset'" in refused(given, *changed)


def test_other_parts_do_not_have_the_name_of_the_preset() -> None:
    position = parse_config({"position": "rope"}, ["position={parts: [{kind: alibi}]}"]).position
    assert (position.name, position.scheme.parts[0].kind) == ("custom", "alibi")


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
        ("data.dataset.name=vanilla", "data.dataset.max_length"),
        ("data.dataset=interpolate", "data.dataset.max_length"),
    ],
)
def test_what_does_not_go_with_a_choice_is_an_error_whose_remedy_works(
    choice: str, key: str, tmp_path: Path
) -> None:
    message = refused(BASE, choice)
    assert f"{key}: goes with name" in message
    remedy = message.rpartition("(")[2].rstrip(")")
    assert remedy == f"{key}=null"
    config = parse_config(BASE, [choice, remedy])
    # A file that extends follows the same rule.
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(BASE))
    keys, _, value = choice.removesuffix(".name").partition("=")
    section, _, name = keys.removesuffix(".name").partition(".")
    over: dict[str, Any] = {"extends": "base.yaml", section: {name: {"name": value}}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(over))
    with pytest.raises(ShapeshiftError, match=key):
        load_config(tmp_path / "run.yaml")
    over[section][name][key.rpartition(".")[2]] = None
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(over))
    assert load_config(tmp_path / "run.yaml") == config


def test_another_size_replaces_what_the_old_one_filled_in() -> None:
    spelled_out = yaml.safe_load(parse_config({"model": {"size": "tiny", "ff_dim": 96}}).to_yaml())
    model = parse_config(spelled_out, ["model.size=small"]).model
    expected = parse_config({"model": {"size": "small", "ff_dim": 96}}).model
    assert model == expected


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (("training.seed=1", "training.seed=2"), "training.seed is given twice"),
        (("position=ape", "position.name=rope"), "position.name is given twice"),
        (("position.name=a", "position=ape", "position.name=b"), "position.name is given twice"),
        (("position=ape", "position.name=a", "position=rope"), "position is given twice"),
        (("position=ape", "position={name: a, parts: [{kind: skew}]}"), "preset 'ape' are both"),
        (("training.schedule=noam", "training.schedule.name=cosine"), "name is given twice"),
        (("model={dim: 8}", "model.dim=16"), "model.dim is given twice"),
        (("training.schedule.warmup_update=1", "training.schedule.name=cosine"), "unknown key"),
        (("training.shedule.peak=1", "training.schedule.name=cosine"), "training.shedule"),
        (("training.schedule.name=cosine", "training.schedule.factor=3"), "goes with name 'noam'"),
        (("position=shape", "position.parts.1.base=1"), "not one of the 1 items"),
    ],
)
def test_overrides_that_contradict_each_other_are_refused_in_any_order(
    overrides: tuple[str, ...], problem: str
) -> None:
    assert problem in refused(BASE, *overrides)
    assert problem in refused(BASE, *reversed(overrides))


def test_a_preset_may_have_another_name_in_any_order() -> None:
    overrides = (
        "position=learned",
        "position.position_ids={name: shifted, max_offset: 9}",
        "position.name=learned-changed",
    )
    for order in permutations(overrides):
        position = parse_config(BASE, order).position
        assert position.name == "learned-changed"
        assert [part.kind for part in position.scheme.parts] == ["learned"]
        assert position.scheme.position_ids == PositionIds("shifted", {"max_offset": 9})


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
    "training.schedule.final=0.01",
    "training.optimizer.name=adamw",
    "training.optimizer.betas=[0.5, 0.6]",
    "training.optimizer={eps: 1e-3}",
    "training.seed=5",
    "training.sede=5",
    "data.dataset.name=interpolate",
    "data.dataset.num_joined=3",
    "data.dataset.max_length=null",
    "data.dataset={max_length: 7}",
    "data.corpus=wmt14-en-de",
    "data.corpus.subset=fr-en",
    "data.corpus.num_train=70",
    "model.size=small",
    "model.ff_dim=64",
    "model.dim=64",
    "decoding.length_penalty.alpha=0.3",
    "decoding.length_penalty={name: none}",
    "evaluation.metrics=bleu",
    "evaluation.length_buckets=[4, 9]",
)


def _resolved(overrides: list[str]) -> Config | None:
    try:
        return parse_config(BASE, overrides)
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
    if isinstance(shown, list) and not isinstance(value, list):
        return shown == [value]
    if isinstance(shown, list):
        return len(shown) == len(value) and all(map(_shows, shown, value))
    return bool(shown == value)


@settings(max_examples=250, deadline=None)
@given(st.lists(st.sampled_from(OVERRIDES), min_size=1, max_size=6, unique=True), st.randoms())
def test_any_order_gives_the_same_and_everything_given_shows(
    overrides: list[str], rng: random.Random
) -> None:
    config = _resolved(overrides)
    shuffled = rng.sample(overrides, len(overrides))
    assert _resolved(shuffled) == config
    if config is not None:
        for override in overrides:
            key, _, value = override.partition("=")
            if key == "position" and "position.name=mine" in overrides:
                continue  # a preset under another name
            assert _shows(_look_up(config, key), yaml.safe_load(value.replace("1e-3", "0.001")))
