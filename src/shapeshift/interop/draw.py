"""The draw of SHAPE's offsets as one operator, which `torch.compile` leaves whole.

The stream is a count in a tensor, and each draw is `shapeshift.positions.draws`', from a seed of
its own: whoever knows the count can make the draw again. Under gradient checkpointing that is
`shapeshift.positions.recompute`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift.positions import draws, recompute
from shapeshift.seeds import derive


def new_stream(seed: int) -> Tensor:
    """Return the state of a stream of offsets: its seed, its draws so far, the B of the last one.

    int64 `(3,)`, on the CPU. The n-th draw depends on the seed, n and the process's rank alone.
    """
    return torch.tensor([seed, 0, 0], device="cpu")


@torch.library.custom_op(
    "shapeshift::draw_offsets",
    mutates_args={"stream"},
    schema=(
        "(Tensor(a!) stream, SymInt num_sequences, int max_offset, bool fresh, bool with_grad)"
        " -> Tensor"
    ),
)
def draw_offsets(
    stream: Tensor, num_sequences: int, max_offset: int, fresh: bool, with_grad: bool
) -> Tensor:
    """Return offsets `(B,)` of a stream, k ~ U{0, …, K}; int64, on the CPU.

    Within a backward pass nothing new is drawn: what runs there recomputes activations (gradient
    checkpointing), and gets what the forward pass that it repeats got here.

    Args:
        stream: from `new_stream`; counts the draw.
        num_sequences: B. A recomputation has that of its forward pass.
        max_offset: K.
        fresh: draw anew; else the last offsets, if they are as many.
        with_grad: `torch.is_grad_enabled()` where the offsets are asked for.

    Raises:
        ShapeshiftError: if this recomputes a pass whose draw is not known.
    """
    if not recompute.is_running():
        _, count, last = stream.tolist()
        if fresh or last != num_sequences:
            stream[1], stream[2] = count + 1, num_sequences
    seed, count, num_sequences = recompute.state_of_pass(stream, with_grad).tolist()
    generator = draws.seeded(derive(seed, recompute.rank(), count))
    offsets: Tensor = draws.integers(generator, max_offset + 1, num_sequences)
    return offsets


@draw_offsets.register_fake
def _(stream: Tensor, num_sequences: int, max_offset: int, fresh: bool, with_grad: bool) -> Tensor:
    return stream.new_empty(num_sequences)
