"""Attention, dropout, the loss, products and search in C, for a CPU.

The libraries are built with the package (setup.py), one for each instruction set and dtype. Where
there are none, or for other dtypes and devices, `serves` is false and callers compute the same in
steps of PyTorch. `SHAPESHIFT_KERNELS` names the instruction set to use, or `none`; by default it is
the fastest that the processor has.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from shapeshift.errors import ShapeshiftError

from .library import DTYPES, SENTENCES, TABLE, TURN, describe
from .library import address as _address
from .library import call as _call
from .library import library as _library

__all__ = ["describe"]

MAX_KEYS = 1 << 16
"""A thread keeps a row of scores on its stack."""

EDGE = 32
"""Both sizes of a weight are a multiple of it in `weight_gradient`."""

LANES = 16
"""Numbers in a vector of the kernels are this many, or a divisor of it."""

HAS_TRITON = importlib.util.find_spec("triton") is not None


def serves(x: Tensor) -> bool:
    """Return whether `x (…, Q, K)`, contiguous from here on, can be given to the kernels in C."""
    if x.device.type != "cpu" or x.dtype not in DTYPES or not x.ndim or x.shape[-1] > MAX_KEYS:
        return False
    return _is_plain(x) and is_available(x.dtype)


def serves_on_gpu(x: Tensor) -> bool:
    """Return whether `x` can be given to the kernels of `gpu`, in training or not."""
    kinds = torch.float32, torch.bfloat16, torch.float16
    return x.dtype in kinds and compiles_for(x.device.type) and _is_plain(x)


def compiles_for(device: str) -> bool:
    """Return whether Triton compiles kernels for a device: NVIDIA's from Ampere on."""
    if device != "cuda" or not HAS_TRITON or torch.version.hip:
        return False
    # `torch.compile`, which cannot ask, needs such a GPU itself.
    return torch.compiler.is_compiling() or torch.cuda.get_device_capability() >= (8, 0)


def _is_plain(x: Tensor) -> bool:
    """Return whether `x` is a tensor in memory, with gradients in reverse mode at most."""
    if is_traced() or type(x) is not Tensor or not x.numel():
        return False
    if forward_ad._current_level >= 0:  # derivatives in forward mode
        return False
    return _is_in_memory(x)


def _is_in_memory(x: Tensor) -> bool:
    """Return whether `x` is a single tensor; a batch of gradients is not."""
    try:
        x.data_ptr()
    except RuntimeError:
        return False
    return True


def is_traced() -> bool:
    """Return whether this is compiled, recorded by `torch.jit.trace`, or computed in a transform of
    torch.func such as `vmap`, where PyTorch has to see each step."""
    return is_captured() or torch._C._are_functorch_transforms_active()


def is_captured() -> bool:
    """Return whether this is compiled or exported, or recorded by `torch.jit.trace`."""
    is_tracing: Any = torch.jit.is_tracing  # type: ignore[attr-defined]
    return torch.compiler.is_compiling() or is_tracing()


def is_available(dtype: torch.dtype) -> bool:
    """Return whether there are kernels for a dtype."""
    return dtype in DTYPES and _library(dtype) is not None


def needs_steps(grad: Tensor) -> bool:
    """Return whether a backward pass has to be steps of PyTorch: what it returns will be
    differentiated (`create_graph`), or `grad` is a batch of gradients (`is_grads_batched`)."""
    is_batch = (
        not torch.compiler.is_compiling() and type(grad) is Tensor and not _is_in_memory(grad)
    )
    return is_batch or torch.is_grad_enabled()


def differentiate(
    run: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of `inputs`, which have gradients in turn, for those of `run(*inputs)`,
    one or several tensors computed in steps of PyTorch."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast(grads[0].device.type, enabled=False):
        # Views, because one tensor may be several inputs.
        own = [x if x is None or not x.requires_grad else x.view_as(x) for x in inputs]
        wanted = [x for x in own if x is not None and x.requires_grad]
        how: Any = {"create_graph": create_graph, "allow_unused": True}
        found = iter(torch.autograd.grad(run(*own), wanted, grads, **how))
    return [next(found) if x is not None and x.requires_grad else None for x in own]


class Rows(NamedTuple):
    """Of R rows, query i and key j have j − i − shift, or the first or last if there is none."""

    num_rows: int
    shift: int


class Spans(NamedTuple):
    """Sentences in rows of tokens: the first row and the number of rows of each, `(B,)` int64."""

    first: Tensor
    size: Tensor

    def check(self, num_rows: int) -> None:
        """Raise a `ShapeshiftError` if a sentence has rows that do not exist."""
        for first, size in zip(self.first.tolist(), self.size.tolist(), strict=True):
            if not 0 <= first <= first + size <= num_rows:
                raise ShapeshiftError(
                    f"sentences must lie in the {num_rows} rows of tokens, got one of {size} from"
                    f" row {first} on"
                )


class Turn(NamedTuple):
    """Pairs (a, b) of channels of each token that become (a cos - b sin, a sin + b cos)."""

    cos: Tensor
    """`(B|1, T, r/2)`; it may include a scale, as `sin`."""
    sin: Tensor
    halves: bool
    """Whether a pair are channels m and m + r/2, in place of 2m and 2m + 1."""


class Attention:
    """One attention of whole sentences, for its forward and its backward pass.

    Args:
        heads: queries, keys and values, `(B, H, Q|K, E)`, or with `spans` `(1, H, N, E)`.
        tables: `(H|1, R, E)`, added to keys and to values by distance, or None.
        rows: which row of its table each pair has.
        bias, mask, spans, causal, turns: as of `shapeshift.attention.backends.attend_rows`; a bias
            of two dimensions has numbers by distance.
        origin: the distance of which number is that of the first query and key.
    """

    def __init__(
        self,
        heads: Sequence[Tensor],
        tables: Sequence[Tensor | None],
        rows: Sequence[Rows | None],
        bias: Tensor | None,
        mask: Tensor | None,
        spans: Sequence[Spans] | None,
        causal: bool,
        turns: Sequence[Turn] | None = None,
        origin: int = 0,
    ):
        self._heads = [x if x.stride(-1) == 1 else x.contiguous() for x in heads]
        q, is_padded = heads[0], spans is not None
        shapes = [tuple(x.shape) for x in heads]
        if shapes[1] != shapes[2] or shapes[0] != (*shapes[1][:2], q.shape[2], shapes[1][3]):
            raise wrong_size("queries, keys and values", shapes, "(B, H, Q|K, E)")
        self._apart = spans is None  # else sentences are one behind the other
        if spans is None:
            first = torch.arange(len(q), device="cpu")
            spans = [Spans(first, torch.full_like(first, x.shape[2])) for x in heads[:2]]
        else:
            for span, tokens in zip(spans, heads[:2], strict=True):
                span.check(tokens.shape[2])
        pairs = q.shape[1] * spans[0].size * spans[1].size
        self._tensors = *spans[0], *spans[1], pairs.cumsum(0) - pairs
        self.num_pairs = int(pairs.sum())  # of queries and keys
        self._rows = [x or Rows(0, 0) for x in rows]
        self._table_sizes = [() if x is None else tuple(x.shape) for x in tables]
        for size, (num_rows, _) in zip(self._table_sizes, self._rows, strict=True):
            each = (num_rows, q.shape[3])
            if size and size not in ((1, *each), (q.shape[1], *each)):
                wanted = f"(H or 1, distances, E) = {(q.shape[1], *each)}"
                raise wrong_size("vectors of a table", size, wanted)
        self._num_tables = max((len(x) for x in tables if x is not None), default=1)
        self._tables = [
            None if x is None else x.float().expand(self._num_tables, -1, -1).contiguous()
            for x in tables
        ]
        self._turns = [
            Turn(x.cos.float().contiguous(), x.sin.float().contiguous(), x.halves)
            for x in turns or ()
        ]
        self._causal, self._most = causal, [int(span.size.max()) for span in spans]
        for turn, most in zip(self._turns, self._most, strict=False):
            size = turn.cos.shape
            fits = size == turn.sin.shape and len(size) == 3 and size[0] in (1, len(pairs))
            if not fits or size[1] < most or 2 * size[2] > q.shape[3]:
                wanted = f"(B or 1, T, pairs) = {(len(pairs), most, q.shape[3] // 2)}"
                raise wrong_size("cosines and sines of turns", size, wanted)
        self.most_keys = self._most[1]
        self._origin = origin
        self._by_distance = bias is not None and bias.ndim == 2
        self._added: list[Tensor | None] = [bias, mask]
        for n, x in enumerate(self._added):
            if x is None:
                continue
            if n == 0 and self._by_distance:  # a vector of 32 pairs may reach over the end
                before, after = self._most
                if origin < before - 1 or x.shape[1] - origin < after:
                    wanted = f"(H or 1, distances) for {before} queries and {after} keys"
                    raise wrong_size("a bias by distance", x.shape, wanted)
                self._added[n] = F.pad(x.to(q.dtype).expand(q.shape[1], -1), (0, 32))[:, origin:]
                continue
            x = x if x.ndim > 1 else x[None]
            sizes = [w if w > 1 else m for w, m in zip(x.shape[-2:], self._most, strict=True)]
            larger = is_padded and all(w >= m for w, m in zip(sizes, self._most, strict=True))
            sizes = sizes if larger else self._most  # a batch may have more padding than it needs
            if not broadcasts(x.shape, (len(pairs), q.shape[1], *sizes)):
                wanted = f"(B, H, Q, K) = {(len(pairs), q.shape[1], *self._most)}, or 1"
                raise wrong_size("a bias or mask", x.shape, wanted)
            x = x.to(q.dtype).expand(len(pairs), q.shape[1], *sizes)
            self._added[n] = x if x.stride(-1) == 1 else x.contiguous()

    def forward(
        self,
        out: Tensor,
        drawn: tuple[int, int, float],
        saved: Tensor | None,
    ) -> None:
        """Write the attention to `out (B, H, Q, E)` or `(1, H, N, E)`.

        Args:
            drawn: seed, threshold and scale, what `shapeshift.attention.dropout.draw_seed` returns.
            saved: `(num_pairs,)`, what `backward` may read, written.
        """
        inputs = self._batch(out), *self._added, *drawn
        arguments = *self._heads, *inputs, self._kept(saved), out, torch.get_num_threads()
        _call("attention_forward", 2 * self.num_pairs * out.shape[3], *arguments)

    def _kept(self, saved: Tensor | None) -> Tensor | None:
        if saved is not None and saved.shape != (self.num_pairs,):
            raise wrong_size("what is saved", saved.shape, f"({self.num_pairs},)")
        return saved

    def backward(
        self,
        grad: Tensor,
        drawn: tuple[int, int, float],
        saved: Tensor | None,
        grads: Sequence[Tensor],
        bias_shape: torch.Size | None,
    ) -> list[Tensor | None]:
        """Write the gradients of the heads to `grads`, for that of the result; return those of the
        bias, if it has a shape `(B|1, H|1, Q|1, K|1)` or `(H|1, R)`, and of the tables, in
        float32."""
        threads, (Q, K), num = torch.get_num_threads(), self._most, len(self._tensors[0])
        H, bias, sums = grad.shape[1], None, None
        if bias_shape is not None and self._by_distance:
            numbers = grad.new_zeros(threads, H, bias_shape[1] + 32, dtype=torch.float32)
            sums = numbers[..., self._origin :]
        elif bias_shape is not None and bias_shape[0] == num:
            make = grad.new_empty if self._apart else grad.new_zeros
            bias = make(num, H, Q, K)
        elif bias_shape is not None:
            shape = threads, H, Q, -(-K // 32) * 32  # rounded as in `attention.c`
            sums = grad.new_zeros(shape, dtype=torch.float32)
        table_grads = [
            None if x is None else x.new_zeros(threads, *x.shape, dtype=torch.float32)
            for x in self._tables
        ]
        inputs = self._batch(grad, grads), *self._added, *drawn, self._kept(saved)
        arguments = *inputs, *grads, bias, sums, *table_grads, threads
        work = 5 * self.num_pairs * grad.shape[3]
        _call("attention_backward", work, *self._heads, grad, *arguments)
        if bias_shape is not None and self._by_distance:
            bias = numbers[..., : bias_shape[1]].sum(0).sum_to_size(bias_shape)
        elif bias_shape is not None:
            bias = sums[..., :K].sum(0, keepdim=True) if sums is not None else bias
            assert bias is not None
            rows, columns = (
                w - m if w > 1 else 0 for w, m in zip(bias_shape[2:], (Q, K), strict=True)
            )
            bias = F.pad(bias, (0, columns, 0, rows)) if rows or columns else bias
            bias = bias.sum_to_size(bias_shape)
        by_table = zip(table_grads, self._table_sizes, strict=True)
        return [bias, *(None if x is None else x.sum(0).sum_to_size(n) for x, n in by_table)]

    def _batch(self, out: Tensor, grads: Sequence[Tensor] = ()) -> Any:
        """Return `struct batch` of `attention.c`."""
        tensors = *self._heads, out, *(grads or self._heads)
        for x, like in zip(tensors, (*self._heads, self._heads[0], *self._heads), strict=True):
            if x.shape != like.shape:
                raise wrong_size("a result or a gradient", x.shape, str(tuple(like.shape)))
        steps = [x.stride(n) for x in tensors for n in (0 if self._apart else 2, 1, 2)]
        for added in self._added:
            by_distance = added is not None and added.ndim == 2  # the next query's begin one before
            first = (0, 0, 0) if added is None else added.stride()[:3]
            steps += (0, first[0], -1) if by_distance else first
        numbers = [len(self._tensors[0]), out.shape[1], out.shape[3], self._causal, *self._most]
        numbers += [_address(x, SENTENCES) for x in self._tensors]
        numbers += steps
        numbers += [_address(x, TABLE) for x in self._tables]
        numbers += [self._num_tables, *self._rows[0], *self._rows[1]]
        for cos, sin, halves in self._turns:
            step = 0 if len(cos) == 1 else cos.stride(0)
            numbers += [_address(x, TURN) for x in (cos, sin)]
            numbers += [cos.shape[-1], halves, step]
        numbers += [0] * (0 if self._turns else 10)
        return (ctypes.c_long * (len(numbers) + 1))(*numbers)  # and `stopped`


def broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether a tensor of a shape can be expanded to the `wanted` one."""
    own = [1] * (len(wanted) - len(shape)) + list(shape)
    return len(own) == len(wanted) and all(w in (1, m) for w, m in zip(own, wanted, strict=True))


def wrong_size(what: str, size: Sequence[object], wanted: str) -> ShapeshiftError:
    return ShapeshiftError(f"{what} must be {wanted}, got {tuple(size)}")


def cross_entropy(
    logits: Tensor, targets: Tensor, confidence: float, replace: bool
) -> tuple[Tensor, Tensor]:
    """Return log Σ exp(logits) and the log probability of the target, `(N,)` each, in float32.

    Args:
        logits: `(N, V)`, contiguous; with `replace` they become the probabilities, that of the
            target less `confidence`.
        targets: N integers.

    Raises:
        IndexError: if a target is no column.
    """
    N, V = logits.shape
    targets = targets.long() if targets.dtype == torch.int32 else targets
    log_sums, log_probs = logits.new_empty(2, N, dtype=torch.float32).unbind()
    arguments = targets.contiguous(), confidence, replace, log_sums, log_probs, N, V
    try:
        _call("cross_entropy", 16 * N * V, logits, *arguments, torch.get_num_threads())
    except IndexError as error:
        raise IndexError(f"targets must be from 0 to {V - 1}") from error
    return log_sums, log_probs


def weight_gradient(grad: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return, in float32, the gradients of W `(N, K)` and b `(N,)` in x W^T + b, for that of the
    result, `grad (M, N)`, and `x (M, K)`; N and K are multiples of `EDGE`."""
    (M, N), K, threads = grad.shape, x.shape[1], torch.get_num_threads()
    if N % EDGE or K % EDGE:
        raise wrong_size("a weight", (N, K), f"of multiples of {EDGE}")
    weight = grad.new_empty(N, K, dtype=torch.float32)
    sums = weight.new_zeros(threads, N)
    arguments = grad.contiguous(), x.contiguous(), weight, sums, M, N, K, threads
    _call("weight_gradient", M * N * K, *arguments)
    return weight, sums.sum(0)


def dropout(
    x: Tensor,
    seed: int,
    threshold: int,
    scale: float,
    relu: bool = False,
    added: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `x`, or max(0, x), after dropout, and which elements were kept, a bit each as
    `kernels.c` says; for the other arguments see `shapeshift.attention.dropout`.

    Args:
        added: float32, of the same shape: its sum with `x` is returned, in float32.
    """
    x, added = x.contiguous(), None if added is None else added.contiguous()
    out = torch.empty_like(x if added is None else added)
    kept = x.new_empty(-(-x.numel() // 16) * 2, dtype=torch.uint8)
    either = (out, None) if added is None else (None, out)
    how, count = (seed, threshold, scale, relu), x.numel()
    _call("dropout_forward", count, x, added, *how, *either, kept, count, torch.get_num_threads())
    return out, kept


def dropout_backward(grad: Tensor, kept: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Return the gradient of `x`, in its `dtype`, for that of the result."""
    if torch.is_grad_enabled() or not serves(grad):  # for the gradient of a gradient
        bits = kept[:, None] >> torch.arange(8, dtype=torch.uint8, device=kept.device) & 1
        return (grad * bits.flatten()[: grad.numel()].view(grad.shape)).mul_(scale).to(dtype)
    grad = grad.contiguous()
    out = torch.empty_like(grad, dtype=dtype)
    either = (grad, None) if grad.dtype == dtype else (None, grad.float())
    if kept.shape != (-(-grad.numel() // 16) * 2,):
        raise wrong_size("what is kept", kept.shape, f"a bit for each of {grad.numel()} numbers")
    arguments = out, *either, kept, scale, grad.numel(), torch.get_num_threads()
    _call("dropout_backward", grad.numel(), *arguments)
    return out


def attend_few(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    rows: Tensor | None = None,
    keeps: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return softmax(q k^T / sqrt(E) + bias + mask) v for few queries, as in decoding,
    `(N, Q, H, E)`, and if it `keeps` them the probabilities `(N, H, Q, K)`.

    Args:
        q: `(N, H, Q, E)`, E a multiple of `LANES`.
        k, v: `(M, H, K, E)`.
        mask: `(N|1, 1, 1, K)`.
        bias: `(N|1, H|1, Q|1, K|1)`.
        rows: `(K, N)` int32: where in keys and values row n finds its j-th; by default, row n.
    """
    N, H, Q, E = q.shape
    M, _, K, _ = k.shape
    fits = k.shape == v.shape == (M, H, K, E) and (M >= N or rows is not None)
    if not fits or E % LANES or K > MAX_KEYS:
        shapes = [tuple(x.shape) for x in (q, k, v)]
        wanted = f"(N, H, Q, E) and (M, H, K, E), E a multiple of {LANES}"
        raise wrong_size("queries, keys and values", shapes, wanted)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if mask is not None:
        mask = mask.to(q.dtype).expand(N, 1, 1, K).contiguous()
    if bias is not None:
        bias = bias.to(q.dtype).expand(N, H, Q, K)
        bias = bias if bias.stride(-1) == 1 else bias.contiguous()
    if rows is not None:
        rows = rows.contiguous()
    of_bias = (0, 0, 0) if bias is None else bias.stride()[:3]
    steps = (ctypes.c_long * 13)(*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *of_bias)
    out = q.new_empty(N, Q, H, E)
    probs = q.new_empty(N, H, Q, K) if keeps else None
    sizes = N, H, Q, K, E, M, torch.get_num_threads()
    arguments = steps, rows, bias, mask, E**-0.5, out, probs, *sizes
    _call("attend_few", 2 * out.numel() * K, q, k, v, *arguments)
    return out, probs


def best_continuations(
    logits: Tensor, sums: Tensor, forced: Tensor, count: int, never: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the `count` best sums of log-probabilities of each sentence, best first, `(A, count)`,
    -inf where there are no more, and their columns, beam · V + token. Among equals, the lower
    column comes first.

    Args:
        logits: `(A · B, V)` of the B beams of each of A sentences; the softmax is over all V.
        sums: `(A, B)` float32: the log-probabilities of the beams.
        forced: `(A,)` int64: the only token that may follow, or -1.
        never: tokens that never follow.
    """
    (A, B), V = sums.shape, logits.shape[-1]
    if count < 1 or V > MAX_KEYS:
        raise wrong_size("continuations", (count,), f"at least 1, of at most {MAX_KEYS} tokens")
    logits, sums = logits.contiguous(), sums.contiguous()
    best, columns = sums.new_empty(A, count), forced.new_empty(A, count)
    arguments = forced, *never, best, columns, A, B, V, count, torch.get_num_threads()
    _call("best_continuations", 16 * A * B * V, logits, sums, *arguments)
    return best, columns


def panels(weight: Tensor) -> Tensor:
    """Return a float32 weight `(N, K)` in the layout that `linear` reads."""
    N, K = weight.shape
    out = weight.new_empty(-(-N // LANES) * LANES, K)
    _call("lay_out_panels", N * K, weight.contiguous(), out, N, K, torch.get_num_threads())
    return out


def linear(x: Tensor, panels: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """Return x W^T + b, `(…, N)`, with the negative ones 0 if `relu`. A row has the same bits
    whichever rows are next to it.

    Args:
        x: `(…, K)` float32.
        panels: of W `(N, K)`.
        bias: `(N,)`.
    """
    x, (*batch, K), (N,) = x.contiguous(), x.shape, bias.shape
    if panels.shape != (-(-N // LANES) * LANES, K):
        wanted = f"(…, {panels.shape[-1]}), as the weight has inputs"
        raise wrong_size("what a linear layer multiplies", x.shape, wanted)
    out = x.new_empty(*batch, N)
    M = math.prod(batch)
    arguments = x, panels, bias, relu, out, M, N, K, torch.get_num_threads()
    _call("linear", M * N * K, *arguments)
    return out
