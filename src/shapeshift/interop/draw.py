"""The draw of SHAPE's offsets as one operator, which `torch.compile` leaves whole.

The stream is a count in a tensor, not a generator: the draw that a forward pass made can be made
again when the backward pass recomputes it. Each draw is `shapeshift.positions.draws`', from a seed
of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import draws
from shapeshift.seeds import derive


def new_stream(seed: int) -> Tensor:
    """Return the state of a stream of offsets: its seed, its draws so far, the B of the last one.

    int64 `(3,)`, on the CPU. The n-th draw depends on the seed, n and the process's rank alone.
    """
    return torch.tensor([seed, 0, 0], device="cpu")


@torch.library.custom_op(
    "shapeshift::draw_offsets",
    mutates_args={"stream"},
    schema="(Tensor(a!) stream, SymInt num_sequences, int max_offset) -> Tensor",
)
def draw_offsets(stream: Tensor, num_sequences: int, max_offset: int) -> Tensor:
    """Return the next offsets `(B,)` of a stream, k ~ U{0, …, K}; int64, on the CPU.

    Within a backward pass nothing new is drawn: what runs there recomputes activations (gradient
    checkpointing), and must see the offsets of the forward pass that it repeats, the last one.

    Args:
        stream: from `new_stream`; counts the draw.
        num_sequences: B.
        max_offset: K.

    Raises:
        ShapeshiftError: if a backward pass asks for another B than the last forward pass.
    """
    seed, count, last = stream.tolist()
    if count and torch._C._current_graph_task_id() != -1:
        if last != num_sequences:
            raise ShapeshiftError(
                "gradient checkpointing recomputes a forward pass that is not the last one; run the"
                " backward pass of each before the next"
            )
    else:
        count += 1
        stream[1], stream[2] = count, num_sequences
    rank = distributed.get_rank() if _is_distributed() else 0
    generator = draws.seeded(derive(seed, rank, count))
    offsets: Tensor = draws.integers(generator, max_offset + 1, num_sequences)
    return offsets


@draw_offsets.register_fake
def _(stream: Tensor, num_sequences: int, max_offset: int) -> Tensor:
    return stream.new_empty(num_sequences)


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()
