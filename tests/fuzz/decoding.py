"""Decoding token by token, with caches, reordered beams and several tokens at once, against the
decoder over whole sequences in float64."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from shapeshift.model import Transformer

from . import models
from .compare import Case, Outcome, Results
from .definition import UNIT
from .kinds import InvalidCaseError
from .twin import references

SIMPLEST: Case = {
    **{name: models.SIMPLEST[name] for name in models.SHAPE},
    "dtype": "float32",
    "B": 1,
    "S": 1,
    "beam": 1,
    "offset": None,
    "steps": [["step", 1]],
    "no_grad": True,
    "for_inference": False,
}


def draw(rng: random.Random) -> Case:
    beam = rng.choice((1, 1, 2, 3))
    steps: list[list[Any]] = []
    if rng.random() < 0.15:
        steps.append(["reserve", 80])
    for _ in range(rng.choice((1, 2, 5, 9, 40 if rng.random() < 0.2 else 3))):
        several = rng.random() < 0.2 and steps[:1] != [["reserve", 80]]
        steps.append(["step", rng.choice((2, 3, 7)) if several else 1])
        if rng.random() < 0.5:
            steps.append(["reorder", rng.randrange(10**6)])
        if rng.random() < 0.05:
            steps.append(["drop", rng.randrange(10**6)])
    return {
        **models.draw_shape(rng, decoding=True),
        "dtype": rng.choice(("float32", "float32", "autocast", "bfloat16")),
        "B": rng.choice((1, 2, 3)),
        "S": rng.choice((1, 2, 5, 9, 20)),
        "beam": beam,
        "offset": rng.choice((None, None, 3, "each")),
        "steps": steps,
        "no_grad": rng.random() < 0.9,
        "for_inference": rng.random() < 0.3,
    }


def run(case: Case) -> Outcome:
    """Compute a case both ways; see `attend.run`."""
    case = SIMPLEST | case
    model = models.build(case).eval()
    dtype = torch.bfloat16 if case["dtype"] == "bfloat16" else torch.float32
    is_autocast = case["dtype"] == "autocast"
    model = model.to(dtype)
    unit = UNIT[torch.bfloat16 if is_autocast else dtype]
    torch.manual_seed(case["seed"])
    B, beam = case["B"], case["beam"]
    source = models.padded(B, case["S"])
    offset = torch.randint(0, 30, (B,)) if case["offset"] == "each" else case["offset"]
    used = models.for_inference(model, is_autocast) if case["for_inference"] else model
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=is_autocast)
    with autocast, torch.set_grad_enabled(not case["no_grad"]):
        found, history, sentences = _decode(used, source, beam, offset, case["steps"])

    def whole(twin: Any) -> Results:
        with torch.no_grad():
            shift = offset[sentences] if isinstance(offset, Tensor) else offset
            memory = twin.encode(source[sentences], offset=shift)
            out = twin.decode(history, memory, offset=shift)
            return {"logits": twin.project(out)}

    exact, rounded = references(model, unit, whole)
    longest = models.longest_sum(case, unit, history.shape[1])
    return Outcome({"logits": found}, exact, rounded, longest_sum=longest)


def _decode(
    model: Transformer, source: Tensor, beam: int, offset: Any, steps: list[list[Any]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits `(N, T, V)` of all steps, the tokens `(N, T)` of each row and the sentence
    `(N,)` of each."""
    state = model.start(source, beam, offset=offset)
    sentences = torch.arange(len(source)).repeat_interleave(beam)
    history = torch.empty(len(sentences), 0, dtype=torch.int64)
    logits = torch.empty(len(sentences), 0, models.VOCABULARY)
    fixed = any(name == "reserve" for name, _ in steps)
    for name, number in steps:
        rng = torch.Generator().manual_seed(number)
        if name == "reserve":
            if not state.reserves:
                raise InvalidCaseError("a kind with a state does not reserve")
            state.reserve(number, number)
        elif name == "step":
            for size in [1] * number if fixed else [number]:
                ids = torch.randint(4, models.VOCABULARY, (len(sentences), size))
                if not history.shape[1]:
                    ids[:, 0] = 2
                out = state.step(ids[:, 0])[:, None] if size == 1 else None
                if out is None:
                    out = model.project(state.extend(ids))
                history = torch.cat((history, ids), 1)
                logits = torch.cat((logits, out.double()), 1)
        else:
            rows = torch.arange(len(sentences))
            rows = rows - rows % beam + torch.randint(0, beam, (len(rows),), generator=rng)
            if name == "drop" and len(rows) > beam:
                kept = torch.rand(len(rows) // beam, generator=rng) < 0.6
                kept[0] |= not kept.any()
                rows = rows.view(-1, beam)[kept].flatten()
            state.reorder(rows if number % 2 else rows.int())
            history, logits, sentences = history[rows], logits[rows], sentences[rows]
    return logits, history, sentences
