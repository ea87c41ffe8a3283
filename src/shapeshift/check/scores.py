"""What is added to the scores of each layer: windows and biases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from shapeshift.positions import T5, ALiBi

from .comparison import Comparison, Reading, shortened
from .watch import MASKED, Call

BIAS_PRECISION = 2.0**-7
"""Part of a bias by which it may be off: Falcon computes its slopes in bfloat16."""


def read_scores(it: Comparison, rotates: bool) -> Iterator[Reading]:
    """Yield the windows and biases of all layers.

    Args:
        rotates: whether queries and keys rotate in some layer.
    """
    for layer, call in sorted(it.scores.items()):
        if call.scores is None:
            continue
        seen = call.scores[0, 0] > MASKED  # (2, T)
        if it.side == "decoder":
            yield _window(it, layer, seen)
        else:
            yield from _window_of_both_sides(it, layer, seen[0])
        if not it.tables:
            yield from _bias(it, layer, call, seen, rotates)


def _window(it: Comparison, layer: int, seen: Tensor) -> Reading:
    """Return how many tokens the last query and the one in the middle see, themselves included."""
    kind, window = _declared_window(it, layer)
    if kind is not None:
        return it.reading("window", layer, f"{kind} is not known here", "", "not measured")
    first, length = int(seen[1].int().argmax()), seen.shape[1]
    measured, size = "none", length
    if first:
        size = length - first
        measured = f"{size} tokens"
    elif it.given:
        measured += f" in {length} tokens"
    middle = length // 2
    expected = torch.arange(length)
    expected = (expected <= middle) & (expected > middle - size)
    slides = torch.equal(seen[0], expected)
    if not slides:
        measured += f" at the end, {int(seen[0].sum())} of {middle + 1} in the middle"
    stated = "none" if window is None else f"{window} tokens"
    if window is not None and window >= length:
        why = f"it is longer than the {length} tokens of the test"
        return it.reading("window", layer, why, stated, "not measured")
    if not it.given:
        return it.reading("window", layer, measured, "", "not declared")
    return it.agree("window", layer, measured, stated, slides and size == (window or length))


def _window_of_both_sides(it: Comparison, layer: int, seen: Tensor) -> Iterator[Reading]:
    """Yield how many tokens before and after it the query in the middle sees, if not all."""
    length, middle = len(seen), len(seen) // 2
    visible = seen.nonzero().flatten()
    before, after = middle - int(visible[0]), int(visible[-1]) - middle
    measured = f"{before} tokens before and {after} after"
    is_full = bool(seen.all())
    if len(visible) != before + after + 1:
        measured = f"{len(visible)} tokens, not one after the other"
    if is_full:
        measured = f"none in {length} tokens" if it.given else "none"
    width = None if _kind_of(it, layer) == "full_attention" else it.given.get("local_attention")
    if width is None:
        if not (is_full and it.given):
            yield it.reading("window", layer, measured, "", "not declared")
    elif width // 2 >= middle:
        why = f"it is longer than the {length} tokens of the test"
        yield it.reading("window", layer, why, f"{width} tokens", "not measured")
    else:
        stated = f"{width // 2} tokens before and {width // 2} after"  # of ModernBERT
        yield it.agree("window", layer, measured, stated, measured == stated)


def _kind_of(it: Comparison, layer: int) -> str | None:
    types = it.given.get("layer_types") or it.given.get("attention_layers")
    return types[layer] if types and layer < len(types) else None


def _declared_window(it: Comparison, layer: int) -> tuple[str | None, int | None]:
    """Return the type of a layer if it is not known here, and how many tokens a query sees, itself
    included; None for all."""
    given, kind = it.given, _kind_of(it, layer)
    size = given.get("sliding_window") or given.get("attention_window_size")
    size = given.get("window_size") if kind == "local" else size
    if kind in ("full_attention", "global") or given.get("use_sliding_window") is False:
        return None, None
    if kind not in (None, "sliding_attention", "local"):
        return kind, None
    return None, size if isinstance(size, int) else None


def _bias(it: Comparison, layer: int, call: Call, seen: Tensor, rotates: bool) -> Iterator[Reading]:
    """Yield what is added to scores at each distance from the middle and the last token."""
    added = _added(call)
    if added is None and rotates:
        why = "scores are not a multiple of the products of queries and keys, and a bias"
        yield it.reading("bias", layer, why, "", "not measured")
        return
    assert call.scores is not None
    scores = call.scores.double() if added is None else added
    length = scores.shape[-1]
    which, at = (0, length // 2) if it.side == "encoder" else (1, length - 1)
    row, visible = scores[:, :, which], seen[which]
    distances = (torch.arange(length) - at)[visible]
    bias = row[..., visible] - row[..., [at]]  # (B, H, visible)
    if not torch.allclose(bias[:1], bias, atol=max(1e-5, 1e-4 * float(bias.abs().max()))):
        yield it.reading("bias", layer, "it depends on tokens", "", "not measured")
        return
    bias = bias[0]
    stated = _declared_bias(it, distances)
    if stated is None:
        if bias.abs().max() > 1e-4:
            reading = it.reading("bias", layer, spell(bias, distances), "", "not declared")
            yield replace(reading, values=tuple(bias.flatten().tolist()))
        return
    stated = (stated - stated[:, distances == 0]).expand(max(len(stated), len(bias)), -1)
    off = (bias - stated).abs() > 1e-5 + BIAS_PRECISION * stated.abs()
    wrong = distances[off.any(0)]
    measured = spell(bias, distances)
    if len(wrong):
        measured += f"; from distance {int(wrong.abs().min())}"
    yield it.agree("bias", layer, measured, spell(stated, distances), not len(wrong))


def _added(call: Call) -> Tensor | None:
    """Return what is added to the scaled products of queries and keys, `(B, H, 2, T)`; None if
    they were not reached, or scores are something else."""
    assert call.scores is not None
    scores = call.scores.double()
    if call.is_mask:
        return scores
    if call.query is None or call.key is None:
        return None
    query, key = call.query.double(), call.key.double()
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    products = query[..., [query.shape[2] // 2, -1], :] @ key.mT
    if products.shape != scores.shape:
        return None
    # The difference of two tokens has no bias in it.
    visible = (scores > MASKED).all(0)
    given, added = (x[1:, visible] - x[:1, visible] for x in (products, scores))
    scale = (given * added).sum() / (given * given).sum()
    fits = (added - scale * given).abs().max() <= 1e-4 * added.abs().max()
    return scores - scale * products if fits else None


def _declared_bias(it: Comparison, distances: Tensor) -> Tensor | None:
    """Return the declared numbers `(H, distances)`: of ALiBi, or of the buckets of T5."""
    given, attn = it.given, it.given.get("attn_config") or {}
    model_type = given.get("model_type")
    if model_type == "bloom" or given.get("alibi") or attn.get("alibi"):
        names = ("num_attention_heads", "n_head", "n_heads")
        num_heads = next(given[name] for name in names if given.get(name))
        bias = ALiBi(num_heads=num_heads).distance_bias(distances, torch.float64)
        if model_type == "falcon":  # multiplies them with the scores by 1 / sqrt(E)
            bias = bias * (given["hidden_size"] // num_heads) ** -0.5
        return bias
    weights = [
        part.weight
        for name, part in it.model.named_modules()
        if name.endswith("relative_attention_bias") and f"{it.side}." in name
    ]
    if not weights or "relative_attention_max_distance" not in given:
        return None
    t5 = T5(
        dim=1,
        num_heads=weights[0].shape[1],
        num_buckets=given["relative_attention_num_buckets"],
        max_distance=given["relative_attention_max_distance"],
        causal=it.side == "decoder",
    )
    t5.weight.data = weights[0].detach().double()
    return t5.distance_bias(distances, torch.float64)


def spell(bias: Tensor, distances: Tensor) -> str:
    """Return the slopes of a bias `(H, distances)` if it has slopes, else the first numbers of its
    first head."""
    near = distances.abs().argsort(stable=True)
    slopes = -bias[:, near[1]]
    if torch.allclose(bias, -slopes[:, None] * distances.abs(), rtol=2e-2, atol=1e-5):
        return f"slopes {shortened(slopes)}"
    shown = [f"{float(bias[0, n]):.3g} at {int(distances[n])}" for n in near[1:4]]
    return f"head 0: {', '.join(shown)}, …"
