"""Rotary positions of released models: θ, attention factors and pairs are those of transformers."""

from __future__ import annotations

import json
import math
import random
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Rotary, rope_config

MODELS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "released_rope.json").read_text(encoding="utf-8")
)["models"]
CASES = [
    pytest.param(model["config"], expected, id=f"{name} {expected['layer'] or ''}")
    for name, model in MODELS.items()
    for expected in model["expected"]
]
NO_MODULE = "gptj", "codegen"
"""Models whose code has no rotary module that reads a configuration."""


def attention_factor(position: Rotary) -> float:
    factor = float(position.turn(torch.zeros(1, 1, dtype=torch.int64), torch.float32).cos[0, 0, 0])
    assert factor == position.attention_factor
    return factor


def as_object(config: dict[str, Any]) -> Any:
    """Return a configuration as transformers reads it, or skip."""
    transformers = pytest.importorskip("transformers", minversion="5")
    settings = json.loads(json.dumps(config))  # transformers changes what it gets
    return transformers.AutoConfig.for_model(settings.pop("model_type"), **settings)


def rotary_class(config: Any) -> Any:
    """Return the rotary module of a model of transformers."""
    module = import_module(type(config).__module__.replace("configuration", "modeling"))
    found = {name: each for name, each in vars(module).items() if name.endswith("RotaryEmbedding")}
    return next(found[name] for name in found if "Vision" not in name)


def of_transformers(config: Any, layer: str | None, length: int | None) -> tuple[Tensor, float]:
    """Return θ and the attention factor as transformers computes them."""
    functions = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    parameters = config.rope_parameters[layer] if layer else config.rope_parameters
    more = {"layer_type": layer} if layer else {}
    if parameters["rope_type"] != "default":
        return functions[parameters["rope_type"]](config, seq_len=length, **more)
    own = config.per_layer_config[layer] if config.model_type == "gemma4_text" else config
    return rotary_class(config).compute_default_rope_parameters(own, **more)


@pytest.mark.parametrize(("config", "expected"), CASES)
def test_released_models(config: dict[str, Any], expected: dict[str, Any]) -> None:
    layer, length = expected["layer"], expected["length"]
    position = Rotary.from_config(config, layer, length=length)
    assert position.head_dim == expected["head_dim"]
    assert position.pairs == expected["pairs"]
    assert math.isclose(attention_factor(position), expected["attention_factor"], rel_tol=1e-15)
    theta = position.frequencies()
    assert len(theta) == expected["num_pairs"]
    for n, number in expected["theta"].items():  # processors differ by some units of the last place
        assert math.isclose(theta[int(n)], number, rel_tol=2**-21)
    read = as_object(config)
    for other in (read, json.loads(read.to_json_string())):  # as transformers 5 saves it
        same = Rotary.from_config(other, layer, length=length)
        assert (same.head_dim, same.pairs) == (position.head_dim, position.pairs)
        assert torch.equal(same.frequencies(), theta)
    if config["model_type"] not in NO_MODULE:
        theirs, factor = of_transformers(read, layer, length)
        assert torch.equal(theta.float(), theirs)
        assert attention_factor(position) == factor


@pytest.mark.parametrize("head_dim", [{}, {"head_dim": 16}], ids=["", "head_dim"])
@pytest.mark.parametrize("model", sorted(rope_config.PAIRS))
def test_no_default_of_a_class_goes_unnoticed(model: str, head_dim: dict[str, int]) -> None:
    """A configuration that names the sizes and θ alone is refused, or means the same there."""
    config = {"model_type": model, "hidden_size": 32, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 8, "rope_theta": 12345.0, **head_dim}
    layer: int | str = 0
    if model in rope_config.BY_LAYER:
        layer = "sliding_attention"
        config["layer_types"] = 4 * [layer, "full_attention"]
    if model == "olmo3":  # whose sliding layers have this in transformers 5.23, whatever is named
        config["rope_theta"] = 500000.0
    if head_dim and model == "falcon":
        pytest.skip("Falcon's heads have the width of the model / num_attention_heads")
    refused = None
    try:
        position = Rotary.from_config(config, layer)
    except ShapeshiftError as error:
        refused = str(error)
    if refused:
        assert f"a {model} needs " in refused
    else:
        read = as_object(config)
        of_type = str(layer) if layer in read.rope_parameters else None
        theirs, factor = of_transformers(read, of_type, None)
        assert torch.equal(position.frequencies().float(), theirs)
        assert attention_factor(position) == factor


def draw(rng: random.Random) -> tuple[dict[str, Any], int | None]:
    """Return a random configuration of a model that rotates any share of its channels, and a
    length."""
    kind = rng.choice(
        ("default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional")
    )
    head_dim = rng.choice((8, 40, 64, 80, 96, 128, 192, 256))
    share = rng.choice((1.0, 1.0, 0.25, 0.5, 0.75))
    if int(head_dim * share) % 2 or int(head_dim * share) < 4:
        share = 1.0
    base = rng.choice((10000, 5e5, 11158840.0, round(10 ** rng.uniform(2, 9), rng.choice((0, 3)))))
    original, factor = rng.choice((512, 2048, 4096, 32768)), rng.choice((1.5, 2, 4.0, 8.0, 40.0))
    rope = {"rope_type": kind, "rope_theta": base, "partial_rotary_factor": share}
    if kind not in ("default", "longrope"):
        rope["factor"] = factor
    if kind in ("yarn", "longrope", "llama3"):
        rope["original_max_position_embeddings"] = original
    length = None
    if kind == "yarn":
        rope |= rng.choice(({}, {"truncate": False}, {"beta_fast": 16, "beta_slow": 2.5}))
        both = {"mscale": rng.choice((0.707, 1.0)), "mscale_all_dim": rng.choice((0.5, 1.0))}
        rope |= rng.choice(({}, both, {"attention_factor": rng.choice((1.0, 1.3))}))
    if kind == "longrope":
        for name in ("short_factor", "long_factor"):
            rope[name] = [rng.uniform(1, 60) for _ in range(int(head_dim * share) // 2)]
        rope |= rng.choice(({}, {"factor": factor}, {"attention_factor": 1.2}))
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice((1.0, 4.0))}
    if kind in ("dynamic", "longrope"):
        length = rng.choice((1, original, original + 1, 3 * original))
    longest = original * rng.choice((1, 8))
    sizes = {"hidden_size": 4 * head_dim, "num_attention_heads": 4, "head_dim": head_dim}
    return {"model_type": "phi", **sizes, "max_position_embeddings": longest, **rope}, length


def test_300_random_configurations_are_those_of_transformers() -> None:
    pytest.importorskip("transformers", minversion="5")
    rng, kinds = random.Random(0), set()
    for n in range(300):
        rope, length = draw(rng)
        sizes = ("model_type", "hidden_size", "num_attention_heads", "head_dim")
        config = {name: rope.pop(name) for name in (*sizes, "max_position_embeddings")}
        if n % 2:  # as in transformers 4
            config |= {name: rope.pop(name) for name in ("rope_theta", "partial_rotary_factor")}
            config["rope_scaling"] = {**rope, "type": rope["rope_type"]}
        else:
            config["rope_parameters"] = rope
        theirs, factor = of_transformers(as_object(config), None, length)
        needs = rope["rope_type"] in ("dynamic", "longrope")
        position = Rotary.from_config(config, length=length if needs else None)
        assert torch.equal(position.frequencies().float(), theirs), config
        assert attention_factor(position) == factor, config
        kinds.add(rope["rope_type"])
    assert len(kinds) == 7


EVERY = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
BY_TYPE = {"full_attention": EVERY, "sliding_attention": EVERY}
LAYERED = "gemma3_text", "gemma4_text", "laguna", "modernbert", "olmo3"
LIKE_GPT_J = {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 8}
FUNCTIONS = {
    "deepseek_v2": "apply_rotary_emb",
    "deepseek_v3": "apply_rotary_pos_emb_interleave",
    "llama4_text": "apply_rotary_emb",
}


@pytest.mark.parametrize("model", sorted(rope_config.PAIRS))
def test_pairs_are_those_of_the_models_code(model: str) -> None:
    """Scores are compared, because DeepSeek's code also reorders the channels."""
    layer = "full_attention" if model in LAYERED else None
    config: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 8}
    config |= {"rope_parameters": BY_TYPE if layer else EVERY, "global_head_dim": 8}
    config |= {"model_type": model, "pad_token_id": 0, "qk_rope_head_dim": 8}
    if model in NO_MODULE:
        config = {"model_type": model, **LIKE_GPT_J}
    elif model != "falcon":
        config["head_dim"] = 8
    pos = torch.tensor([[0, 1, 7, 30]])
    if has_axes := "_vl" in model:  # time, row, column
        config["rope_parameters"] = {**EVERY, "mrope_section": [2, 1, 1]}
        pos = torch.stack((pos, 2 * pos, 9 - pos), dim=-1)
    # In transformers 4, a configuration of Qwen2-VL was that of its text as well.
    of_text = f"{model}_text" if has_axes and "_text" not in model else model
    read = as_object(config | {"model_type": of_text})
    position = Rotary.from_config(config, layer)
    q, k = heads = torch.randn(2, 1, 4, 4, 8, generator=torch.Generator().manual_seed(0))
    module = import_module(type(read).__module__.replace("configuration", "modeling"))
    rotate = getattr(module, FUNCTIONS.get(model, "apply_rotary_pos_emb"))
    behind = model in ("llama4_text", *NO_MODULE)  # heads are behind tokens
    given = [x.transpose(1, 2) if behind else x for x in heads]
    if model in NO_MODULE:
        sin, cos = module.create_sinusoidal_positions(64, 8)[pos].split(4, dim=-1)
        theirs = [rotate(x, sin, cos) for x in given]
    else:
        embedding = rotary_class(read)(read)
        given_pos = pos.permute(2, 0, 1) if has_axes else pos
        turned = embedding(q, given_pos, **({"layer_type": layer} if layer else {}))
        turned = [turned] if isinstance(turned, Tensor) else turned
        theirs = [rotate(x, *turned) for x in given] if model == "gemma4_text" else rotate(
            *given, *turned
        )  # fmt: skip
    theirs = [x.transpose(1, 2) if behind else x for x in theirs]

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT

    ours = scores(*position.rotate(q, k, pos, pos))
    torch.testing.assert_close(ours, scores(*theirs), rtol=0, atol=1e-5)
    pairs: Any = "halves" if position.pairs == "interleaved" else "interleaved"
    axes = {"sections": position.sections, "section_order": position.section_order}
    other = Rotary(head_dim=8, pairs=pairs, **axes)
    assert not torch.allclose(ours, scores(*other.rotate(q, k, pos, pos)), atol=0.1)
