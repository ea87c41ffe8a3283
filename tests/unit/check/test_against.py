"""Two models with the same weights: the smallest input for which they part, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit import tiny_models
from typer.testing import CliRunner

from shapeshift import use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import against
from shapeshift.cli import app

OTHER_BASE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}


@pytest.mark.parametrize(
    ("name", "settings", "others", "length", "position", "differs"),
    [
        ("Mistral", {"sliding_window": 16}, {"sliding_window": 17}, 17, 16, {"window": (0, 1)}),
        (
            "SmolLM3ForCausalLM", {"no_rope_layers": [0, 1]}, {"no_rope_layers": [1, 1]}, 2, 1,
            dict.fromkeys(("rotated channels", "θ", "angles", "pairing", "attention factor"), (0,)),
        ),
        ("ModernBERT", {}, {"local_attention": 8}, 6, 0, {"window": (1,)}),
    ],
)  # fmt: skip
def test_where_two_models_part(
    name: str, settings: Any, others: Any, length: int, position: int, differs: Any
) -> None:
    models = (tiny_models.build(name, **each) for each in (settings, others))
    [parting] = against(*models, max_length=40)
    assert (len(parting.ids), parting.position) == (length, position)
    assert {x.property: x.layers for x in parting.readings} == differs


def test_another_implementation_of_the_same_positions_does_not_part() -> None:
    model, other = tiny_models.build("Llama"), tiny_models.build("Llama")
    use_position(other, "rope")
    assert against(model, other) == []


@pytest.mark.parametrize("settings", [{}, OTHER_BASE])
def test_other_weights_part_without_a_property(settings: Any) -> None:
    """A rotation does not act on a single token."""
    model, other = tiny_models.build("Llama"), tiny_models.build("Llama", **settings)
    other.model.layers[1].mlp.up_proj.weight.data *= 2
    [parting] = against(model, other)
    assert (len(parting.ids), parting.readings) == (1, ())


def test_a_single_token_parts_by_a_table() -> None:
    model, other = tiny_models.build("RoBERTa"), tiny_models.build("RoBERTa")
    other.roberta.embeddings.padding_idx = 0
    [parting] = against(model, other)
    [reading] = parting.readings
    assert (reading.measured, reading.declared, parting.position) == ("2", "1", 0)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Llama", {"vocab_size": 70}, "logits of other shapes"),
        ("T5", {}, "is an encoder-decoder, and the other is not"),
    ],
)
def test_models_that_cannot_be_compared(name: str, settings: Any, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        against(tiny_models.build("Llama"), tiny_models.build(name, **settings))


def test_the_command_compares_two_models(tmp_path: Path) -> None:
    tiny_models.build("Llama").save_pretrained(tmp_path / "a")
    tiny_models.build("Llama", **OTHER_BASE).save_pretrained(tmp_path / "b")
    paths = str(tmp_path / "a"), str(tmp_path / "b")
    run = CliRunner().invoke
    same = run(app, ["check", paths[0], "--against", paths[0], "--max-length", "9"])
    assert same.exit_code == 0, same.output
    other = run(app, ["check", paths[0], "--against", paths[1]])
    assert other.exit_code == 1
    assert "from 2 tokens on, at position 1" in other.output
    assert "base 500" in other.output
    model = tiny_models.build("Llama")
    model.model.norm.weight.data[0] = 2
    model.save_pretrained(tmp_path / "c")
    one = run(app, ["check", paths[0], "--against", str(tmp_path / "c")])
    assert "from 1 token on, at position 0" in one.output


def test_numbers_that_are_spelled_in_the_same_way_are_compared() -> None:
    """The first three numbers of a bias, which is all that its text has, are equal."""
    far = {"relative_attention_max_distance": 64}
    model, other = tiny_models.build("T5"), tiny_models.build("T5", **far)
    other.load_state_dict(model.state_dict())
    decoder = next(x for x in against(model, other, max_length=60) if x.side == "decoder")
    [reading] = decoder.readings
    assert reading.property == "bias"
    assert reading.measured != reading.declared


def test_tables_of_two_lengths_are_compared_as_far_as_both_reach() -> None:
    model = tiny_models.build("GPT2LMHeadModel", max_position_embeddings=64)
    shorter = tiny_models.build("GPT2LMHeadModel", max_position_embeddings=20)
    weights = model.state_dict()
    weights["transformer.wpe.weight"] = weights["transformer.wpe.weight"][:20]
    shorter.load_state_dict(weights)
    assert against(model, shorter) == against(shorter, model) == []
    shorter.transformer.h[0].mlp.c_fc.weight.data *= 2
    [parting] = against(model, shorter)
    assert parting.readings == ()
