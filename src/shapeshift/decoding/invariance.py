"""Batch invariance: the same bits for a sentence, whatever stands beside it in a batch.

Why results differ at all. Sums of floating-point numbers depend on their order, and a kernel takes
its order from the shape of the whole call: a matrix product of one row goes through other code than
one of 64; padding lengthens the sums of attention, and a longer softmax is split otherwise; a fused
attention kernel divides rows among threads wherever the total divides evenly. A sentence thus sees
its neighbours through three numbers: how many rows there are, how far they are padded, and how many
are left as sentences finish. In exact arithmetic none of them would matter.

So here a sentence is computed in calls whose shapes depend on its own length alone, its `Frame`:

- it is padded to the next multiple of 4 of its own length, and shares a batch only with sentences
  that are padded to the same width (padding is masked, and its share of every sum is 0);
- there are always as many rows as the frame says, 16 for a sentence of up to 255 subwords; what is
  missing is filled with copies, and a sentence that has finished stays where it is (`FixedRows`);
- attention is computed as two products and a softmax (`by_shape_alone`), for the fused kernel of a
  CPU gives row 3 and row 4 of one call different bits.

What is left is that one call must treat its rows alike. The products and the softmax of PyTorch on
CPUs do, in float32 and bfloat16, as measured; `rows_agree` checks the model at hand before it is
relied upon, and where it fails, every frame has one row, which is exact by construction.

The number of threads belongs to the shape, too: results are the same for one setting of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from shapeshift.data.subwords import BOS, EOS, UNK
from shapeshift.decoding.search import Stepper

MOST_ROWS = 16
"""Sentences of a frame. Fewer waste less where few have one length, more are faster otherwise."""

_STEP = 4
_MOST_TOKENS = 4096
_PROBE_LENGTH, _PROBE_STEPS = 19, 8


@dataclass(frozen=True, slots=True)
class Frame:
    """The shape in which a sentence is always computed: rows × width, in sentences and tokens."""

    rows: int
    width: int


def frame(num_tokens: int, capacity: int | None = None, most_rows: int = MOST_ROWS) -> Frame:
    """Return the frame of a sentence, which depends on nothing but its length and the model.

    Args:
        num_tokens: with `</s>`.
        capacity: the most tokens that the model has positions for.
        most_rows: 1 if the rows of a call are not treated alike.
    """
    width = -(-num_tokens // _STEP) * _STEP
    if capacity is not None:
        width = max(num_tokens, min(width, capacity))
    return Frame(max(1, min(most_rows, _MOST_TOKENS // width)), width)


def fill(tensor: Tensor, size: Frame, padding: int) -> Tensor:
    """Return ids `(B, S)` as `(rows, width)`: padded on the right, with copies of the last row."""
    wide = torch.nn.functional.pad(tensor, (0, size.width - tensor.shape[1]), value=padding)
    copies = wide[-1:].expand(size.rows - len(wide), -1)
    return torch.cat((wide, copies))


class FixedRows:
    """A stepper that computes all the rows it began with at every step, whoever has finished.

    Args:
        stepper: with `beam` rows for each of `rows` sentences.
        num_sentences: the first so many are real.
        rows: sentences of the frame.
        beam: rows of a sentence.
    """

    def __init__(self, stepper: Stepper, num_sentences: int, rows: int, beam: int):
        self._stepper = stepper
        self._num_rows = rows * beam
        self._beam = beam
        self._live: Tensor | None = None  # (A·beam,): where the live rows stand
        self._num_live = num_sentences * beam

    def step(self, tokens: Tensor) -> Tensor:
        """Feed the last token of every live row; return `(A·beam, V)` logits of the next."""
        live = self._live_rows(tokens.device)
        everyone = tokens.new_full((self._num_rows,), BOS)
        everyone[live] = tokens
        return self._stepper.step(everyone)[live]

    def reorder(self, rows: Tensor) -> None:
        """Let live row i go on from live row `rows[i]`, each sentence in the rows that it has."""
        before = self._live_rows(rows.device)[rows]
        first = before[:: self._beam] // self._beam * self._beam  # of each sentence that is left
        self._live = (first[:, None] + torch.arange(self._beam, device=rows.device)).flatten()
        order = torch.arange(self._num_rows, device=rows.device)
        order[self._live] = before
        self._stepper.reorder(order)

    def _live_rows(self, device: torch.device) -> Tensor:
        if self._live is None:
            self._live = torch.arange(self._num_live, device=device)
        return self._live


@contextmanager
def by_shape_alone() -> Iterator[None]:
    """Compute attention in a way in which the rows of a call are alike."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def probe(rows: int, capacity: int | None, device: torch.device) -> Tensor:
    """Return source ids `(rows, S)` of one made-up sentence in every row, which the model has
    positions for."""
    length = _PROBE_LENGTH if capacity is None else min(_PROBE_LENGTH, capacity - 1)
    return torch.tensor([[UNK] * length + [EOS]], device=device).repeat(rows, 1)


def rows_agree(stepper: Stepper, num_rows: int, capacity: int | None, device: torch.device) -> bool:
    """Return whether all rows of a state that was started from `probe` give the same bits.

    Called where the model will be: in evaluation mode, under its autocast, `by_shape_alone`.
    """
    tokens = torch.full((num_rows,), UNK, device=device)
    for _ in range(_PROBE_STEPS if capacity is None else min(_PROBE_STEPS, capacity)):
        logits = stepper.step(tokens)
        if not torch.equal(logits, logits[:1].expand_as(logits)):
            return False
    return True
