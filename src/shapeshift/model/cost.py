"""What one batch costs a Transformer, before there is one: parameters, FLOPs, activation memory.

B pairs, S and T tokens a side, D, H, F widths as in `ModelConfig`. The Transformer's own products
and tensors are counted by formula; what a position representation adds is counted by running its
hooks on two small batches, so that every kind, also one of tomorrow, is counted as it computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from shapeshift.positions import Representation, Scheme, Stack, build_indices, place

from .attend import RECOMPUTED_FROM, prefers_fused, widens
from .config import ModelConfig
from .loss import CHUNK
from .transformer import Transformer

FP32 = 4
"""Bytes of a number in the weights, the gradients and the residual stream."""


@dataclass(frozen=True)
class ByPart:
    """One number for each part of the model. `positions` is what the position representations
    hold, multiply and keep by themselves, wherever they act; scores that attention has to keep for
    them are the attention's."""

    embeddings: int = 0
    encoder: int = 0
    decoder: int = 0
    positions: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        return sum(getattr(self, field.name) for field in fields(self))

    def scaled(self, factor: int) -> ByPart:
        """Return every number times `factor`."""
        return ByPart(**{field.name: factor * getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class BatchShape:
    """B sentence pairs of S source and T target tokens each, `</s>` included, without padding."""

    num_pairs: int
    source_length: int
    target_length: int


def count_parameters(model: Transformer) -> ByPart:
    """Return the number of parameters; one that serves twice (tied tables) is counted once, as an
    embedding. The model may live on the `meta` device."""
    seen: set[int] = set()

    def count(*modules: nn.Module) -> int:
        new = {id(p): p.numel() for m in modules for p in m.parameters() if id(p) not in seen}
        seen.update(new)
        return sum(new.values())

    positions = count(*(m for m in model.modules() if isinstance(m, Representation)))
    return ByPart(
        embeddings=count(model.source, model.target),
        encoder=count(model.encoder, model.encoder_norm),
        decoder=count(model.decoder, model.decoder_norm),
        positions=positions,
        output=count(model.output),
    )


def forward_flops(
    config: ModelConfig, scheme: Scheme, vocab_size: int, shape: BatchShape
) -> ByPart:
    """Return the floating-point operations of a forward pass with its logits.

    A product of (n, m) and (m, p) is n·m·p multiply-adds, two operations each; additions, norms,
    softmax and dropout are left out, as is usual. For each pair:

        encoder     layers · (8 S D² + 4 S² D + 4 S D F)
        decoder     layers · (8 T D² + 4 T² D + (4 T + 4 S) D² + 4 T S D + 4 T D F)
        output      2 T D V
        positions   the products in the hooks, such as Shaw's q·a^K: 2 T H R E a layer

    The terms of a layer: projections, scores and their use, then the feed-forward layer; in the
    decoder attention to itself, then to the source. A causal mask saves nothing: all T² scores are
    made. Training costs three times as much, for the backward pass has two products for each one.

    Args:
        config: the model's shape.
        scheme: its positions.
        vocab_size: V of the target side.
        shape: the batch.
    """
    D, F = config.dim, config.ff_dim
    totals = {"encoder": 0, "decoder": 0}
    for site in _sites(config, scheme, shape):
        Q, K = site.num_queries, site.num_keys
        totals[site.stack] += 4 * (Q + K) * D**2 + 4 * Q * K * D
    totals["encoder"] += config.encoder_layers * 4 * shape.source_length * D * F
    totals["decoder"] += config.decoder_layers * 4 * shape.target_length * D * F
    return ByPart(
        encoder=shape.num_pairs * totals["encoder"],
        decoder=shape.num_pairs * totals["decoder"],
        positions=_hook_costs(config, scheme, shape, torch.float32, "cpu").flops,
        output=shape.num_pairs * 2 * shape.target_length * D * vocab_size,
    )


def activation_bytes(
    config: ModelConfig,
    scheme: Scheme,
    vocab_size: int,
    shape: BatchShape,
    *,
    dtype: torch.dtype,
    device: str,
) -> ByPart:
    """Return the bytes that a forward pass in training keeps for its backward pass.

    With a bytes in `dtype`, the residual stream in fp32, and a mask of one byte an element wherever
    a dropout rate is not zero (each term in brackets), a token of a layer keeps

        each residual       4 D + 8 (input and statistics of the norm) [+ D]
        feed-forward        a (D + F) [+ F (1 + a)]; GELU: a F more
        attention           a D (input) + a D (query, then as much for each key and value)
                            + a D (output)
          fused kernel      4 H, and a H K for a position bias (counted under positions)
          recomputed        nothing more (a CPU from 512 keys on)
          otherwise         4 H K (softmax; a H K on a CPU) [+ H K], and a H K more if what meets
                            the values is not the softmax's own: in another dtype, or after dropout

    and besides: embeddings 8 [+ D] a token, the final norms 4 D + 8 a token, `dtype`'s copy of the
    memory in each attention to the source, what the position hooks save, and at the output the
    gradient that `linear_cross_entropy` has ready, 4 (D (T + V)), with one chunk of logits.
    Buffers that live within one operation are left out.

    Args:
        config: the model's shape.
        scheme: its positions.
        vocab_size: V of the target side.
        shape: the batch.
        dtype: of matrix products, float32 or bfloat16 (autocast).
        device: `cuda` or `cpu`, which have the fused attention from another length on.
    """
    B, S, T, D = shape.num_pairs, shape.source_length, shape.target_length, config.dim
    a = dtype.itemsize
    dropped = D if config.dropout else 0
    norm = 4 * D + 8
    final = norm if config.norm == "pre" else 0
    feed_forward = _feed_forward_bytes(config, a) + norm + dropped
    totals = {
        "encoder": S * (final + config.encoder_layers * feed_forward),
        "decoder": T * (final + config.decoder_layers * feed_forward),
    }
    for site in _sites(config, scheme, shape):
        totals[site.stack] += site.num_queries * (norm + dropped)
        totals[site.stack] += _attention_bytes(config, site, a, device)
    chunk = min(CHUNK, B * T) * vocab_size
    return ByPart(
        embeddings=B * (S + T) * (8 + dropped),
        encoder=B * totals["encoder"],
        decoder=B * totals["decoder"],
        positions=_hook_costs(config, scheme, shape, dtype, device).saved_bytes,
        output=FP32 * D * (B * T + vocab_size) + (FP32 + a) * chunk,
    )


def _feed_forward_bytes(config: ModelConfig, a: int) -> int:
    """Bytes a token."""
    inner = config.ff_dim * a * (2 if config.activation == "gelu" else 1)
    dropped = config.ff_dim * (1 + a) if config.activation_dropout else 0
    return config.dim * a + inner + dropped


@dataclass(frozen=True)
class _Site:
    """One attention: where it stands, and how many queries look at how many keys."""

    stack: str
    position: Representation
    cross: bool
    num_queries: int
    num_keys: int


def _sites(config: ModelConfig, scheme: Scheme, shape: BatchShape) -> Iterator[_Site]:
    S, T = shape.source_length, shape.target_length
    encoder = Stack("encoder", config.dim, config.num_heads, config.encoder_layers, False)
    decoder = Stack("decoder", config.dim, config.num_heads, config.decoder_layers, True)
    for position in place(scheme, encoder).self_attention:
        yield _Site("encoder", position, False, S, S)
    placed = place(scheme, decoder)
    for position in placed.self_attention:
        yield _Site("decoder", position, False, T, T)
    for position in placed.cross_attention:
        yield _Site("decoder", position, True, T, S)


def _attention_bytes(config: ModelConfig, site: _Site, a: int, device: str) -> int:
    """Bytes a sentence, without the norm and the dropout around it."""
    D, H, Q, K = config.dim, config.num_heads, site.num_queries, site.num_keys
    kept = a * D * (2 * Q + Q + 2 * K)
    if site.cross and a != FP32:
        kept += a * D * K
    if _is_fused(config, site, device, a):
        return kept + FP32 * H * Q
    if _is_recomputed(site, device):
        return kept
    # Autocast makes it fp32 on a GPU alone.
    softmax = a if device == "cpu" and not widens(device, a, K) else FP32
    masked = 1 if config.attention_dropout else 0
    copied = a if a != softmax or config.attention_dropout else 0
    return kept + H * Q * K * (softmax + masked + copied)


def _is_fused(config: ModelConfig, site: _Site, device: str, a: int) -> bool:
    """As `attend` decides it."""
    dtype = torch.float32 if a == FP32 else torch.bfloat16
    return prefers_fused(site.position, device, dtype, site.num_keys, config.attention_dropout)


def _is_recomputed(site: _Site, device: str) -> bool:
    """As `attend` decides it, where the fused kernel does not serve."""
    return device == "cpu" and site.num_keys >= RECOMPUTED_FROM


@dataclass(frozen=True)
class _HookCosts:
    flops: int
    saved_bytes: int


def _hook_costs(
    config: ModelConfig, scheme: Scheme, shape: BatchShape, dtype: torch.dtype, device: str
) -> _HookCosts:
    """Count what all position hooks multiply and save, for the whole batch.

    One pair and two are run; the difference is what each pair costs, the rest what the batch costs
    once (such as the rows of a table that all its sentences share).
    """
    flops = saved_bytes = 0
    for site in _sites(config, scheme, shape):
        if type(site.position) is Representation:
            continue
        fused = _is_fused(config, site, device, dtype.itemsize)
        keeps = fused or not _is_recomputed(site, device)
        one, two = (_run_hooks(config, scheme, site, count, dtype, keeps) for count in (1, 2))
        flops += one.flops + (shape.num_pairs - 1) * (two.flops - one.flops)
        saved_bytes += one.saved_bytes
        saved_bytes += (shape.num_pairs - 1) * (two.saved_bytes - one.saved_bytes)
        if fused and (site.position.overrides("bias") or site.position.overrides("query_bias")):
            scores = shape.num_pairs * config.num_heads * site.num_queries * site.num_keys
            saved_bytes += dtype.itemsize * scores
    return _HookCosts(flops, saved_bytes)


def _run_hooks(
    config: ModelConfig,
    scheme: Scheme,
    site: _Site,
    num_pairs: int,
    dtype: torch.dtype,
    keeps_scores: bool,
) -> _HookCosts:
    H, Q, K = config.num_heads, site.num_queries, site.num_keys
    E = config.dim // H
    indices = build_indices(scheme)  # in training mode: shifted positions differ by sentence
    pos_q = indices(num_pairs, Q)
    pos_k = indices(num_pairs, K) if site.cross else pos_q

    def zeros(*size: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(num_pairs, *size, dtype=dtype, requires_grad=True)

    x = zeros(Q, config.dim, dtype=torch.float32)
    memory = zeros(K, config.dim, dtype=torch.float32) if site.cross else x
    q, k, v, probs = zeros(H, Q, E), zeros(H, K, E), zeros(H, K, E), zeros(H, Q, K)
    given = {tensor.untyped_storage().data_ptr() for tensor in (x, memory, q, k, v, probs)}
    given |= {p.untyped_storage().data_ptr() for p in site.position.parameters()}
    saved: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    position = site.position
    autocast = torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32)
    counter = FlopCounterMode(display=False)
    saving = saved_tensors_hooks(pack, lambda tensor: tensor)
    with counter, autocast:
        with saving:
            position.inputs(x, memory, memory, pos_q, pos_k)
            position.heads(q, k, pos_q, pos_k)
        with saving if keeps_scores else nullcontext():
            position.scores(q, k, pos_q, pos_k)
            position.outputs(probs, v, pos_q, pos_k)
    kept = sum(t.untyped_storage().nbytes() for key, t in saved.items() if key not in given)
    without = 2 * 2 * num_pairs * H * Q * K * E  # the two products of attention itself
    return _HookCosts(counter.get_total_flops() - without, kept)
