"""How attention runs: one file for each backend, with two functions.

    refuses(call)   why it does not serve for a call, in words, or None
    run(call)       the output (B, Q, H, E); (N, H, E) if the inputs are packed

The first backend of `BACKENDS` that does not refuse a call serves. All compute what `reference`
defines.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from torch import Tensor

from shapeshift.attention.call import Call
from shapeshift.attention.recording import is_recording

from . import blocked, cpu, decode, flex, packed, reference, sdpa, triton

BACKENDS: Mapping[str, ModuleType] = {
    "packed": packed,
    "triton": triton,
    "flex": flex,
    "decode": decode,
    "cpu": cpu,
    "sdpa": sdpa,
    "blocked": blocked,
    "reference": reference,
}
"""Name → backend, in the order in which they are asked."""


def reason(name: str, call: Call) -> str | None:
    """Return why a backend does not serve for a call, or None."""
    if name != "reference" and is_recording():
        return "probabilities are being recorded, and it returns none"
    if name not in ("reference", "blocked") and call.rescores:
        return "score changes the scores before the softmax, for which it has no step"
    if name not in ("reference", "blocked", "sdpa") and call.widens:
        return "rotate makes queries and keys of another width than values, which it does not take"
    why: str | None = BACKENDS[name].refuses(call)
    return why


def choose(call: Call) -> str:
    """Return the name of the backend that serves for a call."""
    return next(name for name in BACKENDS if reason(name, call) is None)


def run(call: Call) -> Tensor:
    """Return the attention `(B, Q, H, E)`, or `(N, H, E)` if inputs are packed."""
    out: Tensor = BACKENDS[choose(call)].run(call)
    return out
