"""Golden vectors: what each kind of position representation computes, for engines in other
languages to compare with; see docs/guides/testing-engines.md.

golden.json         the cases: kind, options, the names of their tensors
golden.safetensors  the tensors, `CASE.NAME`, in float64; positions are int64
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_safetensors
from torch import Tensor

from shapeshift import __version__
from shapeshift._system.files import save
from shapeshift.positions import Rotary, get
from shapeshift.positions.registry import find_kind
from shapeshift.positions.released import released

Case = tuple[str, dict[str, Any], dict[str, Tensor]]
"""Its name; its kind and options, to which `write` adds those with defaults; its tensors."""

E, HEADS = 16, 4
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e6, "original_max_position_embeddings": 4096}
YARN |= {"factor": 16.0}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096,
    "factor": 32.0, "short_factor": [1.0, 1.05, 1.1, 1.2, 1.5, 1.8, 2.0, 2.5],
    "long_factor": [1.1, 1.5, 3.0, 8.0, 20.0, 40.0, 60.0, 64.0],
}  # fmt: skip
RELEASED: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 5e5},
    "default-partial": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {
        "rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0,
        "original_max_position_embeddings": 2048, "length": 8192,
    },
    "yarn": YARN,
    "yarn-not-truncated": {**YARN, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-attention-factor": {**YARN, "attention_factor": 1.0, "partial_rotary_factor": 0.5},
    "yarn-partial": {**YARN, "partial_rotary_factor": 0.5},
    "yarn-mscale": {**YARN, "mscale": 0.707, "mscale_all_dim": 1.0},
    "longrope-short": {**LONGROPE, "length": 4096},
    "longrope-long": {**LONGROPE, "length": 4097},
    "llama3": {
        "rope_type": "llama3", "rope_theta": 5e5, "original_max_position_embeddings": 8192, **LLAMA3
    },
    "proportional": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
}  # fmt: skip
"""Name → `rope_parameters`, with the `length` that they need."""

PLAIN: dict[str, dict[str, Any]] = {
    "interleaved": {},
    "halves": {"pairs": "halves"},
    "partial": {"pairs": "halves", "fraction": 0.25},
    "linear": {"scaling": "linear", "factor": 4.0},
    "ntk": {"scaling": "ntk", "factor": 4.0},
    "yarn-of-the-paper": {"scaling": "yarn", "factor": 16.0, "original_length": 4096},
    "sections": {"pairs": "halves", "sections": [4, 2, 2]},
    "sections-interleaved": {
        "pairs": "halves", "sections": [4, 2, 2], "section_order": "interleaved"
    },
    "sections-of-qwen2-vl": {
        "pairs": "halves", "sections": [4, 2, 2],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
}  # fmt: skip
"""Name → options of `rotary` with the formulas of the papers, or with axes."""

POSITIONS = (0, 1, 2, 17, 511, 4095, 131071)


def write(folder: Path) -> int:
    """Write the golden vectors into a folder, and return the number of cases.

    Raises:
        ShapeshiftError: the disk refuses.
    """
    tensors: dict[str, Tensor] = {}
    cases = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for name, described, numbers in _cases():
            parameters = find_kind(described["kind"]).options().items()
            defaults = {option: parameter.default for option, parameter in parameters}
            described["options"] = defaults | described["options"]
            cases.append({"name": name, **described, "tensors": [*numbers]})
            for key, tensor in numbers.items():
                wide = tensor if tensor.dtype is torch.int64 else tensor.detach().double()
                tensors[f"{name}.{key}"] = wide.contiguous().clone()
    about = {"format": 1, "shapeshift": __version__, "cases": cases}
    save(folder / "golden.json", json.dumps(about, indent=1) + "\n")
    save(folder / "golden.safetensors", to_safetensors(tensors))
    return len(cases)


def _cases() -> Iterator[Case]:
    for name, options in PLAIN.items():
        yield _rotary(f"rotary-{name}", {"head_dim": E, "pairs": "interleaved"} | options)
    for name, given in RELEASED.items():
        parameters = dict(given)
        length = {"length": parameters.pop("length")} if "length" in parameters else {}
        pairs = "interleaved" if name == "yarn-mscale" else "halves"
        options = {"head_dim": E, "pairs": pairs, "rope_parameters": parameters, **length}
        yield _rotary(f"released-{name}", options)
    yield _rotary("xpos", {"head_dim": E, "pairs": "interleaved"}, "xpos")
    for order in ("same", "alternating"):
        options = {"head_dim": E, "num_axes": 2, "base": 100.0, "order": order}
        yield _rotary(f"axial-{order}", options, "axial")
    yield _polar()
    for heads in (8, 12):
        yield _bias(f"alibi-{heads}-heads", "alibi", {"num_heads": heads})
    yield _bias("kerple", "kerple", {"num_heads": HEADS})
    t5 = {"dim": 8, "num_heads": HEADS, "num_buckets": 32, "max_distance": 128}
    yield _bias("t5-encoder", "t5", {**t5, "causal": False})
    yield _bias("t5-decoder", "t5", {**t5, "causal": True})
    yield _bias("fire", "fire", {"num_heads": HEADS, "hidden": 8, "threshold": 20.0})
    for kind, options in (("shaw", {"max_distance": 4}), ("skew", {"max_distance": 4})):
        yield _vectors(kind, {"num_heads": HEADS, "head_dim": E, **options})
    for channels in ("interleaved", "halves", "tensor2tensor"):
        options = {"dim": E, "channels": channels}
        pos = torch.tensor(POSITIONS)
        table = get("sinusoidal", **options).double()
        vectors = table("embed", torch.zeros(1, len(pos), E, dtype=torch.float64), pos[None])[0]
        numbers = {"positions": pos, "vectors": vectors}
        described = {"kind": "sinusoidal", "options": options}
        yield f"sinusoidal-{channels}", described, numbers


def _rotary(name: str, options: dict[str, Any], kind: str = "rotary") -> Case:
    position = get(kind, **options)
    limit = position.max_position()
    pos = torch.tensor([p for p in POSITIONS if limit is None or p <= limit])
    if position.num_axes > 1:
        pos = torch.stack([pos.roll(axis) for axis in range(position.num_axes)], dim=-1)
    described: dict[str, Any] = {"kind": kind, "options": options}
    numbers = {"positions": pos}
    if isinstance(position, Rotary):
        numbers["theta"] = position.frequencies()
        if position.rope_parameters is not None:
            # As released, θ has the errors of float32, which differ by processor. The vectors are
            # those of the formulas.
            exact = released(position.rope_parameters, E, position.length, torch.float64)
            numbers |= {"theta": exact.theta, "theta_float32": position.frequencies()}
            position._theta = exact.theta
            described["attention_factor"] = exact.attention_factor
    q, k = (torch.rand(1, 1, len(pos), E, dtype=torch.float64) * 2 - 1 for _ in "qk")
    turned_q, turned_k = position("rotate", q, k, pos[None], pos[None])
    heads = {"q": q, "k": k, "q_rotated": turned_q, "k_rotated": turned_k}
    return name, described, numbers | {key: x[0, 0] for key, x in heads.items()}


def _polar() -> Case:
    options = {"num_heads": HEADS, "head_dim": E}
    position = get("pope", **options).double()
    torch.nn.init.uniform_(position.phase, -7, 1)  # type: ignore[arg-type]
    pos = torch.tensor(POSITIONS)
    q, k = torch.rand(2, 1, HEADS, len(pos), E, dtype=torch.float64) * 2 - 1
    polar_q, polar_k = position("rotate", q, k, pos[None], pos[None])
    heads = {"q": q[0], "k": k[0], "q_rotated": polar_q[0], "k_rotated": polar_k[0]}
    numbers = {"positions": pos, **position.state_dict(), **heads}
    return "pope", {"kind": "pope", "options": options}, numbers


def _bias(name: str, kind: str, options: dict[str, Any]) -> Case:
    position = get(kind, **options).double()
    pos = torch.tensor([0, 1, 2, 3, 5, 8, 17, 40, 64, 90, 127, 128, 200, 511])
    bias = position("bias", pos[None], pos[None], dtype=torch.float64)[0]
    weights = {key.replace(".", "_"): x for key, x in position.state_dict().items()}
    numbers = {"positions": pos, **weights, "bias": bias}
    return name, {"kind": kind, "options": options}, numbers


def _vectors(kind: str, options: dict[str, Any]) -> Case:
    position = get(kind, **options).double()
    pos = torch.arange(12)
    q = torch.rand(1, HEADS, len(pos), E, dtype=torch.float64) * 2 - 1
    probs = torch.rand(1, HEADS, len(pos), len(pos), dtype=torch.float64).softmax(-1)
    numbers = {"positions": pos, **position.state_dict(), "q": q[0]}
    numbers["query_bias"] = position("query_bias", q, pos[None], pos[None])[0]
    if (values := position("value_bias", probs, pos[None], pos[None])) is not None:
        numbers |= {"probs": probs[0], "value_bias": values[0]}
    return kind, {"kind": kind, "options": options}, numbers
