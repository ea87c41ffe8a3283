"""Batch invariance: a sentence gives the same bits, whatever else is in its batch.

The order in which a kernel sums depends on the shape of the whole call: how many rows there are,
how far they are padded, how many are left as sentences finish. So a sentence is computed in calls
whose shapes depend on its own length alone, its `Frame`:

- it is padded to the next multiple of 4, and shares a batch only with sentences of that width
  (padding is masked, and its share of every sum is 0);
- the number of rows is that of the frame, 16 for a sentence of up to 255 subwords; missing rows
  are filled with copies, and a sentence that has finished keeps its rows;
- attention is computed by our kernel, one sentence at a time, or as two products and a softmax
  (`SDPBackend.MATH`): PyTorch's fused kernel gives equal rows of one call different bits.

What is left is that one call must treat its rows alike, as the products and the softmax of PyTorch
on CPUs do, in float32 and bfloat16. `rows_agree` measures that with the model in use; where it
fails, every frame has one row. Results are the same for one number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shapeshift.data.subwords import EOS, PAD, UNK
from shapeshift.decoding.capacity import Capacity
from shapeshift.model import Transformer

MAX_ROWS = 16
"""Sentences of a frame. Fewer waste less where few have one length, more are faster otherwise."""

_STEP = 4
_MAX_TOKENS = 4096
_PROBE_LENGTH, _PROBE_STEPS = 19, 8


@dataclass(frozen=True, slots=True)
class Frame:
    """The shape in which a sentence or a pair is always computed: the number of rows, and the
    width of each side in tokens."""

    rows: int
    widths: tuple[int, ...]


def frame(num_tokens: tuple[int, ...], capacity: Capacity, max_rows: int = MAX_ROWS) -> Frame:
    """Return the frame of a sentence or a pair; only its lengths and the model decide it.

    Args:
        num_tokens: of the source, or of source and target, each with `</s>`.
        capacity: the most tokens that the model has positions for.
        max_rows: 1 if the rows of a call are not treated alike.
    """
    widths = []
    for length, limit in zip(num_tokens, capacity, strict=False):
        width = -(-length // _STEP) * _STEP
        widths.append(width if limit is None else max(length, min(width, limit)))
    return Frame(max(1, min(max_rows, _MAX_TOKENS // max(widths))), tuple(widths))


def fill(ids: Tensor, rows: int, width: int) -> Tensor:
    """Return ids `(B, S)` as `(rows, width)`: padded on the right, then copies of the last row."""
    padded = torch.nn.functional.pad(ids, (0, width - ids.shape[1]), value=PAD)
    return torch.cat((padded, padded[-1:].expand(rows - len(padded), -1)))


def rows_agree(model: Transformer, beam: int, capacity: Capacity, device: torch.device) -> bool:
    """Return whether `MAX_ROWS` copies of a made-up sentence give the same bits in every row.

    Call it as the model will run: in evaluation mode, under its autocast and with this attention.
    """
    length, steps = _PROBE_LENGTH, _PROBE_STEPS
    if capacity.source is not None:
        length = min(length, capacity.source - 1)
    if capacity.target is not None:
        steps = min(steps, capacity.target)
    source = torch.tensor([[UNK] * length + [EOS]], device=device).repeat(MAX_ROWS, 1)
    stepper = model.start(source, beam)
    tokens = torch.full((MAX_ROWS * beam,), UNK, device=device)
    for step in range(steps):
        begins = step == 0 and hasattr(stepper, "begin")  # an exported model's has not
        logits = stepper.begin(tokens[::beam]) if begins else stepper.step(tokens)
        if not torch.equal(logits, logits[:1].expand_as(logits)):
            return False
    return True
