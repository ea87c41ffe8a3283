"""Decoder-only models of Hugging Face after `use_position`: logits of real tokens, with a cache or
without, and gradients, against the same model in float64 by the definition."""

from __future__ import annotations

import os
import random
from functools import cache
from typing import Any

import torch
from torch import Tensor

from shapeshift import use_position
from shapeshift._system.errors import ShapeshiftError

from .compare import Case, Outcome, Results, floor_of, gradients
from .definition import UNIT
from .kinds import InvalidCaseError, draw_options
from .twin import references

VOCABULARY = 60

SIMPLEST: Case = {
    "family": "Llama",
    "kind": ["none", {}],
    "dtype": "float32",
    "B": 1,
    "H": 2,
    "E": 4,
    "T": 1,
    "padding": "none",
    "gaps": False,
    "chunks": [],
    "grad": False,
}

KINDS = ("none", "shaw", "skew", "t5", "alibi", "kerple", "fire", "rotary", "xpos", "tupe")
"""Those that act on heads or scores."""

FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Gemma 2": ("Gemma2ForCausalLM", {}),  # caps scores
    "GPT-NeoX": ("GPTNeoXForCausalLM", {}),
    "GPT-2": (
        "GPT2LMHeadModel",
        {
            "hidden_size": "n_embd",
            "num_attention_heads": "n_head",
            "num_hidden_layers": "n_layer",
            "intermediate_size": "n_inner",
        },
    ),
}
"""The class of a family, and its names of sizes."""


@cache
def library() -> Any:
    """Return transformers, or None where it is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import transformers
    except ImportError:
        return None
    transformers.logging.set_verbosity_error()
    return transformers


def draw(rng: random.Random) -> Case:
    T = rng.choice((1, 2, 5, 9, 17, 33, 40))
    kind = rng.choice(KINDS)
    chunks: list[int] = []
    while rng.random() < 0.6 and sum(chunks) < T:
        chunks.append(rng.choice((1, 1, 2, 5)))
    return {
        "family": rng.choice([*FAMILIES]),
        "kind": [kind, draw_options(rng, kind)],
        "dtype": rng.choice(("float32", "float32", "bfloat16", "autocast")),
        "B": rng.choice((1, 2, 3)),
        "H": rng.choice((2, 4)),
        "E": rng.choice((4, 8, 16)),
        "T": T,
        "padding": rng.choice(("none", "left", "right")),
        "gaps": rng.random() < 0.2,
        "chunks": chunks,
        "grad": not chunks and rng.random() < 0.5,
    }


def build(case: Case) -> Any:
    """Return a model with random weights and other positions."""
    if library() is None:
        raise InvalidCaseError("transformers is not installed")
    torch.manual_seed(case["seed"])
    name, renamed = FAMILIES[case["family"]]
    head = getattr(library(), name)
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": case["H"] * case["E"],
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": case["H"],
    }
    sizes = {renamed.get(n, n): size for n, size in sizes.items()}
    if case["family"] in ("Llama", "Gemma 2"):
        sizes |= {"num_key_value_heads": case["H"] // 2, "head_dim": case["E"]}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    sizes |= dropout if case["family"] == "GPT-2" else {}
    model = head(head.config_class(**sizes)).eval()
    try:
        use_position(model, case["kind"][0], **case["kind"][1])
    except ShapeshiftError as error:
        raise InvalidCaseError(str(error)) from error
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def run(case: Case) -> Outcome:
    """Compute a case both ways; see `attend.run`."""
    case = SIMPLEST | case
    model = build(case)
    if case["dtype"] == "bfloat16":
        model = model.bfloat16()
    unit = UNIT[torch.float32 if case["dtype"] == "float32" else torch.bfloat16]
    B, T = case["B"], case["T"]
    ids = torch.randint(4, VOCABULARY, (B, T))
    real = torch.ones(B, T, dtype=torch.bool)
    if case["padding"] != "none":
        size = torch.randint(1, T + 1, (B, 1))
        real = torch.arange(T) < size
        real = real.flip(1) if case["padding"] == "left" else real
    pos = None
    if case["gaps"]:
        pos = torch.randint(0, 3 * T + 3, (B, T)).sort(1)[0]
    # Without a mask, transformers takes a gap for the beginning of another text.
    has_mask = case["gaps"] or case["padding"] != "none"
    cotangent = torch.randn(B, T, VOCABULARY)

    def call(model: Any, chunks: list[int]) -> Results:
        cached, outputs, begin = None, [], 0
        ends = [e for e in torch.tensor([0, *chunks]).cumsum(0).tolist()[1:] if e < T]
        with torch.set_grad_enabled(case["grad"]):
            for end in [*ends, T]:
                out = model(
                    ids[:, begin:end],
                    attention_mask=real[:, :end].long() if has_mask else None,
                    position_ids=None if pos is None else pos[:, begin:end],
                    past_key_values=cached,
                    use_cache=bool(chunks),
                )
                cached, begin = out.past_key_values, end
                outputs.append(out.logits)
            logits: Tensor = torch.cat(outputs, 1)[real]
        found = {"logits": logits.detach()}
        if case["grad"]:
            wanted = {n: p for n, p in model.named_parameters() if p.requires_grad}
            found |= gradients(logits, wanted, cotangent[real].to(logits.dtype))
        return found

    with torch.autocast("cpu", torch.bfloat16, enabled=case["dtype"] == "autocast"):
        found = call(model, case["chunks"])
    exact, rounded = references(model, unit, lambda twin: call(twin, []))
    sums = 1 if unit == UNIT[torch.bfloat16] else max(B * T * T, 12 * case["H"] * case["E"])
    return Outcome(found, exact, rounded, frozenset(), sums, floor=floor_of(exact, unit))
