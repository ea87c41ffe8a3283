"""Scaled dot-product attention with any position representation, on every device."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shapeshift.positions import Representation

from .backends import BACKENDS, choose, reference, run
from .backends.reference import causal_mask
from .backends.sdpa import ANY_SHAPE
from .call import Call
from .explain import example, explain
from .masks import additive_for, check_call
from .recording import recording

__all__ = [
    "ANY_SHAPE",
    "BACKENDS",
    "Call",
    "attend",
    "attend_with_probs",
    "causal_mask",
    "choose",
    "example",
    "explain",
    "recording",
    "run",
]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    dropout_p: float = 0.0,
    *,
    causal: bool = False,
    state: Tensor | None = None,
) -> Tensor:
    """Return the attention output `(B, H, Q, E)`, computed by the first backend that serves. A
    query that may see no key gets zeros and no gradient. `backends.reference` has the equations.

    Args:
        q, k, v: heads `(B, H, Q|K, E)` of one dtype; the queries are not scaled.
        mask: broadcastable to `(B, H, Q, K)`; boolean, true where attention is allowed, or a float
            that is added to the scores, where `-inf` forbids. A finite number beyond the range of
            the scores' dtype stays finite: it becomes half of the lowest one.
        position: its `bias`, `query_bias`, `value_bias` and `score` act, or what they are derived
            from is read; the caller has called `inputs`, `rotate` and `state`.
        pos_q, pos_k: positions `(B|1, Q|K)`, or `(B|1, Q|K, A)` if `position` has A > 1 axes.
        dropout_p: of the probabilities; 0 in evaluation.
        causal: whether query i sees only the keys up to i + K - Q, so that the last query sees all.
            Without a bias, a fused kernel needs no mask for it.
        state: of the keys, `(B, K, F)`, what `position("state", x, pos_k)` returns for their input
            x; for a position that acts by `state`. The queries must be the last Q of the keys then.

    Raises:
        ShapeshiftError: if heads, positions, the mask, the state and the sizes of `position` do not
            fit each other, heads have different dtypes (outside autocast), or the mask is neither
            boolean nor float.
    """
    options = {"dropout_p": dropout_p, "causal": causal, "state": state}
    return run(_checked((q, k, v), mask, position, (pos_q, pos_k), **options)).transpose(1, 2)


def attend_with_probs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    dropout_p: float = 0.0,
    *,
    causal: bool = False,
    state: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Like `attend`, computed by `reference`. Also return the probabilities `(B, H, Q, K)` after
    dropout, zeros for a query that may see no key."""
    options = {"dropout_p": dropout_p, "causal": causal, "state": state}
    call = _checked((q, k, v), mask, position, (pos_q, pos_k), **options)
    return reference.with_probabilities(call)


def _checked(
    heads: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    position: Representation,
    at: tuple[Tensor, Tensor],
    **options: Any,
) -> Call:
    check_call(*heads, position, *at, options["state"])
    mask = None if mask is None else additive_for(mask, heads[0], heads[1].shape[2])
    return Call(heads, position, *at, mask, rotated=True, **options)
