"""Checks of the masks and positions that attention is called with."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import SCHEMES, Representation, Scheme, get
from shapeshift.positions.base import AT_ATTENTION, check_sizes
from shapeshift.positions.checks import can_read, describe

FORBIDS = -1000.0
"""A float mask that adds this or less forbids a key: -inf, -10000 or the lowest number."""


def check_mask(name: str, mask: Tensor | None, *shapes: tuple[int, ...]) -> None:
    """Raise a `ShapeshiftError` if `mask`, the argument `name`, is neither boolean nor float, or
    has none of these shapes."""
    if mask is None:
        return
    if tuple(mask.shape) not in shapes:
        raise ShapeshiftError(
            f"{name} must be {' or '.join(map(str, shapes))} here, got {tuple(mask.shape)}"
        )
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise ShapeshiftError(
            f"{name} must be boolean, true = not allowed, or a float to add, got {mask.dtype};"
            " where its ones are what is allowed, give mask == 0, otherwise mask.bool()"
        )


def check_dense(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raise a `ShapeshiftError` for nested tensors."""
    if query.is_nested or key.is_nested or value.is_nested:
        raise ShapeshiftError(
            "query, key and value must be ordinary tensors, got a nested tensor; pad it with"
            " torch.nested.to_padded_tensor and give key_padding_mask"
        )


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, dim: int, key_dim: int, value_dim: int
) -> None:
    """Raise a `ShapeshiftError` if these are not floating point `(B, Q|K|K, D)`, of these widths,
    with one B: no batch of 1 is expanded."""
    fits = query.ndim == key.ndim == value.ndim == 3 and key.shape[:2] == value.shape[:2]
    fits = fits and key.shape[0] == query.shape[0]
    widths = dim, key_dim, value_dim
    fits = fits and (query.shape[2], key.shape[2], value.shape[2]) == widths
    if not fits or not all(x.is_floating_point() for x in (query, key, value)):
        raise ShapeshiftError(
            f"query, key and value must be floating point of shape (B, Q, {dim}), (B, K, {key_dim})"
            f" and (B, K, {value_dim}), got {describe(query)}, {describe(key)} and"
            f" {describe(value)}, batch first"
        )


def check_widths(position: Representation, dim: int, key_dim: int, value_dim: int) -> None:
    """Raise a `ShapeshiftError` if `position` adds vectors of width D to keys or values that have
    another, or reads keys of width D."""
    if key_dim == value_dim == dim:
        return
    for kind in position.kinds():
        if kind.acts("inputs") or (kind.acts("state") and key_dim != dim):
            does = "adds vectors of width {} to query, key and value"
            does = does if kind.acts("inputs") else "reads a key of width {}"
            raise ShapeshiftError(
                f"{type(kind).__name__} {does.format(dim)}, and"
                f" kdim={key_dim}, vdim={value_dim}; use another kind, such as Rotary, or project"
                f" key and value to width {dim} first"
            )


def check_extra_keys(position: Representation, num_extra: int) -> None:
    """Raise a `ShapeshiftError` if there are keys that have no position, and `position` acts in the
    attention."""
    for kind in position.kinds() if num_extra else ():
        if any(kind.acts(hook) for hook in AT_ATTENTION):
            raise ShapeshiftError(
                "add_bias_kv and add_zero_attn append keys that have no position, which"
                f" {type(kind).__name__} needs; leave them out, or give position=None"
            )


def check_counting(position: Representation, num_queries: int, num_keys: int) -> None:
    """Raise a `ShapeshiftError` if positions cannot be counted from 0: they have several axes; or
    `position` compares them within one sequence and Q ≠ K, where queries at the end of the sequence
    would get the first positions."""
    if (num_axes := position.num_axes) > 1:
        raise ShapeshiftError(
            f"give pos_q and pos_k, (B, Q, {num_axes}) and (B, K, {num_axes}): a position has"
            f" {num_axes} axes here, along which tokens cannot be counted"
        )
    for kind in position.kinds():
        if "cross" not in kind.places and num_queries != num_keys:
            name = type(kind).__name__
            raise ShapeshiftError(
                f"give pos_q and pos_k where Q={num_queries} and K={num_keys}: {name} compares"
                " positions in one sequence, and the queries may be any of its tokens"
            )


def build(position: object, **sizes: int) -> Representation:
    """Return a position, built for D, H and E if its name is given; None is no position.

    Raises:
        ShapeshiftError: for a scheme that acts at the embedding, what is no position, and one that
            was built for another D, H or E.
    """
    if position is None or isinstance(position, Representation):
        built = position or Representation()
        check_sizes(built, **sizes)
        return built
    if not isinstance(position, str):
        given = (
            f"class {position.__name__}" if isinstance(position, type) else type(position).__name__
        )
        raise ShapeshiftError(
            "position must be a representation, such as Rotary(head_dim=64), a name or None, got"
            f" {given}; SHAPE is called with the embeddings"
        )
    if any(part.at == "embedding" for part in SCHEMES.get(position, Scheme()).parts):
        raise ShapeshiftError(
            f"the scheme {position!r} adds positions to the embeddings, which a layer does not"
            " see; add them there (shapeshift.SHAPE, with max_offset=0 for 'ape'), or give the"
            " layer a representation that adds them to its queries and keys: Sinusoidal(dim=D),"
            " Learned(dim=D)"
        )
    return get(position, **sizes)


def check_seeing_right(
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    added: Tensor | None,
    padding: Tensor | None,
    *,
    unmasked: bool,
) -> None:
    """Raise a `ShapeshiftError` if `position` has no meaning for keys right of their query, at a
    higher position, and a query sees one. Where positions cannot be read, `unmasked` decides.

    Args:
        position: acts in the attention.
        pos_q, pos_k: `(B|1, Q|K)`.
        added: to the scores, broadcastable to `(B, H, Q, K)`; see `FORBIDS`.
        padding: of self-attention, `(B, 1, 1, K)`; its queries do not count.
        unmasked: whether this is self-attention among several tokens without `attn_mask`.
    """
    if not position.causal_only:
        return
    if can_read(pos_q):
        seen = (pos_k.unsqueeze(-2) > pos_q.unsqueeze(-1)).unsqueeze(1)  # (B|1, 1, Q, K)
        if added is not None:
            seen = seen & (added > FORBIDS)
        if padding is not None:
            is_padding = padding if padding.dtype is torch.bool else padding <= FORBIDS
            seen = seen & ~is_padding.mT
        if not seen.any():
            return
    elif not unmasked:
        return
    kind = next(kind for kind in position.kinds() if kind.causal_only)
    name = type(kind).__name__
    if type(kind).causal_only:
        remedy = "another kind, such as Rotary"
    else:
        name, remedy = f"{name} with causal=True", "causal=False"
    raise ShapeshiftError(
        f"{name} has no meaning for tokens on the right (pos_k > pos_q), which a query sees here;"
        f" give the causal mask, or use {remedy}"
    )
