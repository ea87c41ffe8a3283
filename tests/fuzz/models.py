"""Whole models: the loss and the gradient of each parameter in the dtypes that users train in,
against the same model in float64 by the definition, without packing."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import shapeshift.model
from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, Transformer, label_smoothed_loss
from shapeshift.model.inference import copy_for_inference
from shapeshift.positions import KINDS, POSITION_IDS, Part, PositionIds, Scheme

from .compare import Case, Outcome, Results, floor_of, gradients
from .definition import UNIT
from .kinds import OWN, WHOLE, InvalidCaseError, draw_options, full_name
from .twin import references

VOCABULARY, EPSILON = 23, 0.1

SHAPE: Case = {
    "parts": [],
    "position_ids": ["absolute", {}],
    "dim": 8,
    "num_heads": 1,
    "ff_dim": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "norm": "pre",
    "activation": "gelu",
    "share_embeddings": True,
    "tie_output": True,
    "output_bias": False,
}
"""Options of a model."""

SIMPLEST: Case = {
    **SHAPE,
    "dtype": "float32",
    "lengths": [[1, 1]],
    "padded": False,
    "packs": True,
    "train": False,
}


def draw_shape(rng: random.Random, *, decoding: bool = False) -> Case:
    parts = []
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        own = rng.random() < 0.15
        ours = [name for name, kind in OWN.items() if not (decoding and kind in WHOLE)]
        name = rng.choice(ours if own else [*KINDS])
        build = OWN[name] if own else KINDS[name].build
        place = rng.choice(build.places)
        stacks = (
            "decoder"
            if place == "cross" or build.causal_only
            else rng.choice(("both", "both", "encoder", "decoder"))
        )
        options = draw_options(rng, name)
        if place == "embedding":
            options.pop("add_to", None)
        some = rng.choice((None, None, None, 1, [1], {"every": 2}, {"except": 1}))
        layers = some if place != "embedding" else None
        parts.append([name, place, stacks, layers, options])
    ids: list[Any] = ["absolute", {}]
    if not decoding and rng.random() < 0.3:
        ids = [rng.choice([*POSITION_IDS]), {}]
        options = {
            "shifted": {"max_offset": 30},
            "randomized": {"max_position": 1000},
            "packed": {"separator": 5},
            "abacus": {"digits": [5, 7, 8, 9]},
            "coupled": {"function": "torch:zeros_like", "max_offset": 3},
        }
        ids[1] = options.get(ids[0], {})
    num_heads = rng.choice((1, 2, 4))
    return {
        "parts": parts,
        "position_ids": ids,
        "num_heads": num_heads,
        "dim": num_heads * rng.choice((4, 6, 8, 10, 16, 32)),
        "ff_dim": rng.choice((8, 20, 32, 64)),
        "encoder_layers": rng.choice((1, 1, 2)),
        "decoder_layers": rng.choice((1, 1, 2)),
        "norm": rng.choice(("pre", "post")),
        "activation": rng.choice(("relu", "gelu", "silu")),
        "share_embeddings": rng.random() < 0.7,
        "tie_output": rng.random() < 0.7,
        "output_bias": rng.random() < 0.3,
    }


def draw(rng: random.Random) -> Case:
    most = rng.choice((3, 8, 20, 40))
    lengths = [
        [rng.randint(1, most), rng.randint(1, most)] for _ in range(rng.choice((1, 2, 3, 5)))
    ]
    return {
        **draw_shape(rng),
        "dtype": rng.choice(("float32", "autocast")),
        "lengths": lengths,
        "padded": rng.random() < 0.7,
        "packs": rng.random() < 0.8,
        "train": rng.random() < 0.7,
    }


def build(case: Case) -> Transformer:
    """Return the model of a case, with random weights.

    Raises:
        InvalidCaseError: if it cannot have these positions.
    """
    torch.manual_seed(case["seed"])
    sizes = {n: case[n] for n in SHAPE if n not in ("parts", "position_ids")}
    config = ModelConfig(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, **sizes)
    try:
        parts = tuple(
            Part(full_name(name), place, stacks, layers, options)
            for name, place, stacks, layers, options in case["parts"]
        )
        scheme = Scheme(PositionIds(*case["position_ids"]), parts)
        model = shapeshift.model.build(config, scheme, VOCABULARY, VOCABULARY)
    except ShapeshiftError as error:
        raise InvalidCaseError(str(error)) from error
    with torch.no_grad():
        for parameter in model.parameters():  # none is zero or one, as biases and gains begin
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def for_inference(model: Transformer, in_bf16: bool) -> Transformer:
    """Return the copy with which the command line translates."""
    return copy_for_inference(model, torch.bfloat16 if in_bf16 else next(model.parameters()).dtype)


def longest_sum(case: Case, unit: float, num_pairs: int) -> int:
    """Return `Outcome.longest_sum`: the terms of products in all layers after each other, or the
    pairs of tokens of a batch."""
    depth = 3 * (case["encoder_layers"] + case["decoder_layers"])
    products = depth * max(case["dim"], case["ff_dim"])
    return 1 if unit == UNIT[torch.bfloat16] else max(products, num_pairs)


def padded(num: int, length: int) -> Tensor:
    """Return sentences `(B, T)` with padding on the right; the first has none."""
    ids = torch.randint(4, VOCABULARY, (num, length))
    sizes = torch.randint(1, length + 1, (num, 1))
    sizes[0] = length
    return ids.masked_fill(torch.arange(length) >= sizes, 0)


def batch(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources, target inputs and target outputs."""
    torch.manual_seed(case["seed"])
    lengths = torch.tensor(case["lengths"])
    if not case["padded"]:
        lengths = lengths[:1].expand(len(lengths), -1)
    sides = []
    for side in (0, 1):
        size = lengths[:, side]
        ids = torch.randint(4, VOCABULARY, (len(size), int(size.max())))
        sides.append(ids.masked_fill(torch.arange(ids.shape[1]) >= size[:, None], 0))
    source, target = sides
    target_input = torch.where(target > 0, target.roll(1, 1), target)
    target_input[:, 0] = 2
    return source, target_input, target


def run(case: Case) -> Outcome:
    """Compute a case both ways; see `attend.run`."""
    case = SIMPLEST | case
    model = build(case).train(case["train"])
    model.packs = case["packs"]
    is_autocast = case["dtype"] == "autocast"
    unit = UNIT[torch.bfloat16 if is_autocast else torch.float32]
    source, target_input, target = batch(case)

    def results(loss: Tensor, model: Any) -> Results:
        return {"loss": loss.detach()} | gradients(loss, dict(model.named_parameters()))

    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        torch.manual_seed(case["seed"])  # of random position ids
        loss = label_smoothed_loss(model, source, target_input, target, EPSILON).smoothed
    found = results(loss, model)

    def by_definition(twin: Any) -> Results:
        torch.manual_seed(case["seed"])
        hidden, real = twin(source, target_input), target > 0
        logits = twin.project(hidden)[real]
        loss = F.cross_entropy(logits, target[real], reduction="sum", label_smoothing=EPSILON)
        return results(loss, twin)

    exact, rounded = references(model, unit, by_definition)
    # Hidden units near zero switch in bf16, and with them a part of the gradients: all of that of
    # their own weights.
    switches = is_autocast and case["activation"] == "relu"
    skipped = frozenset(name for name in exact if switches and "inner" in name)
    num_pairs = len(source) * max(source.shape[1], target.shape[1]) ** 2
    longest = longest_sum(case, unit, num_pairs)
    return Outcome(
        found, exact, rounded, skipped, longest, 3.0 if switches else 1.0, floor_of(exact, unit)
    )
