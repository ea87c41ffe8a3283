"""Bugs that are seeded in models that are right by themselves: the suite finds each of them.

Each bug is one that a library had, or a close relative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit import tiny_models
from torch import Tensor, nn

from shapeshift import model as ours
from shapeshift import use_position
from shapeshift.check import Finding, check
from shapeshift.interop.changed import cache_of
from shapeshift.positions import ALiBi, Representation, Rotary
from shapeshift.positions.turns import Turn, rotate

HEADS, DIM = 4, 32
ROTARY = {"head_dim": DIM // HEADS, "base": 100.0, "pairs": "halves"}
NTK = {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 100.0, "original_max_position_embeddings": 64,
    "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [1.0, 2.0, 4.0, 8.0],
}  # fmt: skip
Seed = Callable[[Any], object]
"""Puts a bug into a model."""


@dataclass(frozen=True)
class Bug:
    """A model of transformers, or ours with the positions of T5, with a bug; what finds it, and
    what it is like."""

    model: str
    seed: Seed
    found_by: str
    like: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def claim(self) -> Any:
        return "absolute" if self.model in ("GPT-2", "BART") else "relative"

    def failures(self) -> list[Finding]:
        torch.manual_seed(0)
        if self.model == "ours":
            shape = {"num_heads": HEADS, "ff_dim": DIM, "encoder_layers": 2, "decoder_layers": 2}
            model: Any = ours.build(ours.ModelConfig(dim=DIM, **shape), "t5", 60, 60)
        else:
            model = tiny_models.build(self.model, **{"positions": 64, **self.settings})
        self.seed(model)
        max_length = 300 if self.found_by == "bfloat16" else 10
        findings = check(model, positions=self.claim, max_length=max_length)
        return [finding for finding in findings if finding.outcome == "FAIL"]


def argument(name: str, change: Callable[[SimpleNamespace], Any]) -> Seed:
    """Return a bug in an argument of each call of a model."""

    def hook(module: nn.Module, args: tuple[Tensor], given: dict[str, Any]) -> tuple[Any, Any]:
        cache, mask = cache_of(given), given.get("attention_mask")
        start = 0 if cache is None else cache.get_seq_length()
        plain = torch.arange(start, start + args[0].shape[1]).expand_as(args[0])
        pads = mask is not None and mask.ndim == 2
        given[name] = change(
            SimpleNamespace(
                start=start,
                mask=mask,
                pos=given.get("position_ids", plain),
                plain=plain,
                num_padding=(mask == 0).sum(1, keepdim=True) if pads else torch.tensor(0),
                is_packed="position_ids" in given and not pads,
            )
        )
        return args, given

    return lambda model: model.register_forward_pre_hook(hook, with_kwargs=True)


numbered = partial(argument, "position_ids")
masked = partial(argument, "attention_mask")


def mask_without_cache(call: SimpleNamespace) -> Tensor | None:
    if not call.start or call.mask is not None:
        return call.mask
    num_queries = call.pos.shape[1]
    return torch.full((1, 1, num_queries, call.start + num_queries), -1e9).triu(1)


class WithCache(Representation):
    """A position whose bias is another one in calls with a cache."""

    def __init__(self, position: Representation, wrong: Callable[..., Tensor]) -> None:
        super().__init__()
        self.position, self.wrong = position, wrong

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        bias = partial(self.position.bias, dtype=dtype)
        is_cached = pos_q.shape[1] != pos_k.shape[1]
        return self.wrong(bias, pos_q, pos_k) if is_cached else bias(pos_q, pos_k)


def alibi(wrong: Callable[..., Tensor]) -> Seed:
    return lambda model: use_position(model, WithCache(ALiBi(num_heads=HEADS), wrong))


def t5(wrong: Callable[..., Tensor], first: int = 0) -> Seed:
    def seed(model: Any) -> None:
        for layer in model.decoder[first:]:
            layer.attention.position = WithCache(layer.attention.position, wrong)

    return seed


class Rounded(Rotary):
    """Positions in the type of the model."""

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(q, k, *(pos.to(q.dtype).long() for pos in (pos_q, pos_k)))


class RoundedAngles(Rotary):
    """Angles in bfloat16."""

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        theta = self.frequencies().bfloat16()
        at_q, at_k = ((pos.bfloat16()[..., None] * theta).double() for pos in (pos_q, pos_k))
        turns = (Turn(at.cos(), at.sin(), False) for at in (at_q, at_k))
        return rotate(q, next(turns)), rotate(k, next(turns))


def output_of(name: str, change: Callable[[Tensor], Tensor]) -> Seed:
    """Return a bug in what a table of positions gives."""
    return lambda model: model.get_submodule(name).register_forward_hook(
        lambda _, args, out: change(out)
    )


def source_padding_attended(model: Any) -> None:
    model.get_decoder().register_forward_pre_hook(
        lambda _, args, given: (args, {**given, "encoder_attention_mask": None}), with_kwargs=True
    )


CACHED, RIGHT, BEYOND = "cached = full", "right padding", "beyond the end"
TABLE, SOURCE = "transformer.wpe", "model.encoder.embed_positions"
BUGS = {
    "left padding counted": Bug(
        "GPT-2", numbered(lambda c: torch.where(c.num_padding > 0, c.plain, c.pos)),
        "left padding", "unsloth #3699, nnsight #673",
    ),
    "cache off by one": Bug("GPT-2", numbered(lambda c: c.pos + (c.start > 0)), CACHED),
    "a piece at one position": Bug(
        "Llama", numbered(lambda c: c.pos[:, :1].expand_as(c.pos) if c.start else c.pos), CACHED
    ),
    "mask without the cache": Bug("Llama", masked(mask_without_cache), CACHED),
    "no bias with a cache": Bug(
        "Llama", alibi(lambda bias, *pos: 0 * bias(*pos)),
        CACHED, "vLLM #11780, TensorRT-LLM #13870",
    ),
    "slopes of other heads with a cache": Bug(
        "Llama", alibi(lambda bias, *pos: bias(*pos).flip(1)), CACHED
    ),
    "distance reversed with a cache": Bug(
        "ours", t5(lambda bias, pos_q, pos_k: bias(-pos_q, -pos_k)), CACHED, "ESPnet #2816"
    ),
    "bucket off by one with a cache": Bug(
        "ours", t5(lambda bias, pos_q, pos_k: bias(pos_q + 1, pos_k)), CACHED
    ),
    "bias of the first layer alone with a cache": Bug(
        "ours", t5(lambda bias, *pos: 0 * bias(*pos), first=1), CACHED, "CTranslate2 #1478"
    ),
    "NTK from the current length": Bug(
        "Llama", id, BEYOND, "transformers #25104, vLLM #52665", {"rope_parameters": NTK}
    ),
    "LongRoPE from the current length": Bug(
        "Phi3ForCausalLM", id, BEYOND, "vLLM #27431, llama.cpp #24875",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": 64, "positions": 128},
    ),
    "table clamped": Bug("GPT-2", numbered(lambda c: c.pos.clamp(max=63)), BEYOND),
    "table read modulo its length": Bug("GPT-2", numbered(lambda c: c.pos % 64), BEYOND),
    "packed sequences counted on": Bug(
        "GPT-2", numbered(lambda c: c.plain if c.is_packed else c.pos),
        "packing", "unsloth #3699, OLMo-core #591, torchtitan #2559, nanoVLM #201",
    ),
    "packed sequences mix": Bug(
        "Llama", masked(lambda c: torch.ones_like(c.pos) if c.is_packed else c.mask), "packing"
    ),
    "positions from the longest": Bug(
        "GPT-2", numbered(lambda c: c.pos + c.num_padding), "batch-mates"
    ),
    "padding attended": Bug("BART", masked(lambda c: None), RIGHT),
    "source padding attended": Bug("BART", source_padding_attended, RIGHT),
    "source counted from its end": Bug("BART", output_of(SOURCE, lambda x: x.flip(-2)), RIGHT),
    "positions in the model's dtype": Bug(
        "Llama", lambda model: use_position(model, Rounded(**ROTARY)),
        "bfloat16", settings={"positions": 320, "initializer_range": 0.3},
    ),
    "rotary in bfloat16": Bug(
        "Llama", lambda model: use_position(model, RoundedAngles(**ROTARY)), "shift"
    ),
    "offset drawn in evaluation": Bug(
        "GPT-2", numbered(lambda c: c.pos + torch.randint(8, (len(c.pos), 1))), "repeatable"
    ),
    "positions without effect": Bug("GPT-2", output_of(TABLE, lambda x: 0 * x), "effect"),
    "encoder without positions": Bug("BART", output_of(SOURCE, lambda x: 0 * x), "effect"),
}  # fmt: skip
"""Name → what is wrong."""


def some_long(names: Iterable[str]) -> list[object]:
    """Mark those with sequences of 300 tokens."""
    long = "positions in the model's dtype", "rotary"
    return [pytest.param(n, marks=pytest.mark.long) if n in long else n for n in names]


@pytest.mark.parametrize("name", some_long(BUGS))
def test_a_seeded_bug_is_found(name: str) -> None:
    found = BUGS[name].failures()
    assert BUGS[name].found_by in {finding.property for finding in found}
    assert all(finding.ids for finding in found)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["MixtralForCausalLM", pytest.param("Qwen3MoeForCausalLM", marks=pytest.mark.slow)]
)
def test_a_mixture_of_experts_hides_no_bug_in_bfloat16(name: str) -> None:
    settings = {"positions": 320, "initializer_range": 0.1}
    bug = replace(BUGS["positions in the model's dtype"], model=name, settings=settings)
    assert {finding.property for finding in bug.failures()} == {"bfloat16"}
    right = replace(bug, seed=lambda model: use_position(model, Rotary(**ROTARY)))
    assert right.failures() == []


WITHOUT = {
    "numbers": Bug("GPT-2", numbered(lambda c: c.pos), ""),
    "masks": Bug("Llama", masked(lambda c: c.mask), ""),
    "ours": Bug("ours", t5(lambda bias, *pos: bias(*pos)), ""),
    "rotary": replace(
        BUGS["positions in the model's dtype"],
        seed=lambda model: use_position(model, Rotary(**ROTARY)),
    ),
}


@pytest.mark.parametrize("name", some_long(WITHOUT))
def test_there_is_no_false_alarm_without_a_bug(name: str) -> None:
    assert WITHOUT[name].failures() == []


def test_the_smallest_failing_input_is_reported() -> None:
    by_name = {x.property: x for x in BUGS["mask without the cache"].failures()}
    assert [len(row) for row in by_name["cached = full"].ids] == [2]
    assert [len(row) for row in by_name["batch-mates"].ids] == [2, 2]


def test_the_guide_lists_the_bugs_and_what_finds_them() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/checking.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", guide, re.M)
    listed = {name: (found_by, like.partition(" (")[0].strip()) for name, found_by, like in rows}
    assert {name: listed.get(name) for name in BUGS} == {
        name: (bug.found_by, bug.like) for name, bug in BUGS.items()
    }
    assert f"{len(BUGS)} bugs" in guide
