"""The encoder-decoder Transformer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention.packing import Packing
from shapeshift.positions.base import tied_names
from shapeshift.positions.checks import can_read, describe, whole_number

from .cache import ROOM, FixedKeyValues, KeyValues, Slots, SourceKeyValues
from .layers import NORM_EPS, DecoderLayer, Embedding, EncoderLayer, LayerCache, Memory
from .tied import keeping_ties, tie

PAD = 0
"""The id of padding, which stands right of a sentence."""


class Transformer(nn.Module):
    """An encoder-decoder Transformer over token ids (Vaswani et al. 2017).

    Built by `shapeshift.model.build`.

    Args:
        source: embeds and numbers the source.
        target: embeds and numbers the target.
        encoder, decoder: the layers.
        output: the table `(V, D)` that projects; its weight is the target's if they are tied.
        final_norm: whether the stacks end in a LayerNorm, as pre-norm ones must.
        output_bias: added to the logits, `(V,)`.

    Attributes:
        packs: whether the loss leaves padding out of the layers, where it can; see `packing`.
    """

    packs = True

    def __init__(
        self,
        source: Embedding,
        target: Embedding,
        encoder: list[EncoderLayer],
        decoder: list[DecoderLayer],
        output: nn.Embedding,
        *,
        final_norm: bool,
        output_bias: nn.Parameter | None = None,
    ):
        super().__init__()
        dim = target.tokens.embedding_dim
        self.source = source
        self.target = target
        self.encoder = nn.ModuleList(encoder)
        self.decoder = nn.ModuleList(decoder)
        self.output = output
        self.output_bias = output_bias
        self.projection: nn.Module | None = None  # in a copy for inference: what `project` does
        self.encoder_norm = nn.LayerNorm(dim, eps=NORM_EPS) if final_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(dim, eps=NORM_EPS) if final_norm else nn.Identity()
        # Hooks, because `load_state_dict` of a module around this one calls no method of this one.
        self._tied: dict[str, str] = {}
        self.register_load_state_dict_pre_hook(_note_ties)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_restore_ties)  # type: ignore[no-untyped-call]

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        with keeping_ties(self):
            super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self

    def encode(
        self, source: Tensor, *, offset: int | Tensor | None = None, packing: Packing | None = None
    ) -> Memory:
        """Encode `source (B, S)`, ids with `</s>` and padding on the right.

        Args:
            source: token ids.
            offset: shifts all positions; None leaves it to the position_ids.
            packing: of the source; the memory's hidden states are then `(N, D)`, for `decode` with
                a packing.

        Raises:
            ShapeshiftError: if padding, on a CPU, is not on the right, or a sentence has no token.
        """
        x, pos = self.source(source, offset=offset)
        if can_read(source):
            check_padding("source", source)
        mask = padding_mask(source, x.dtype)
        if packing is not None:
            x = packing.pack(x)
        for layer in self.encoder:
            x = layer(x, pos, mask, packing)
        return Memory(self.encoder_norm(x), pos, mask)

    def decode(
        self,
        target_input: Tensor,
        memory: Memory,
        *,
        offset: int | Tensor | None = None,
        packing: tuple[Packing, Packing] | None = None,
    ) -> Tensor:
        """Return the decoder's output `(B, T, D)` for `target_input (B, T)`, which starts with
        `<s>`; with the packing of source and target, `(N, D)` for the target's N tokens."""
        x, pos = self.target(target_input, offset=offset)
        if can_read(target_input) and bool((target_input[:, :1] == PAD).any()):
            raise ShapeshiftError(
                f"each row of target_input must start with <s>, with padding ({PAD}) on its right"
                " alone, for positions count from the first token; got a row that starts with"
                " padding"
            )
        if x.shape[0] != memory.mask.shape[0]:
            raise ShapeshiftError(
                f"{memory.mask.shape[0]} sources and {x.shape[0]} targets; a batch has one of"
                " each for every pair"
            )
        if packing is not None:
            x = packing[1].pack(x)
        for layer in self.decoder:
            x = layer(x, pos, pos, memory, packing=packing)
        normed: Tensor = self.decoder_norm(x)
        return normed

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits `(…, V)` for `hidden (…, D)`."""
        if self.projection is not None:
            logits: Tensor = self.projection(hidden)
            return logits
        return F.linear(hidden, self.output.weight, self.output_bias)

    def forward(
        self, source: Tensor, target_input: Tensor, packing: tuple[Packing, Packing] | None = None
    ) -> Tensor:
        """Return the decoder's output `(B, T, D)`; `project` turns it into logits. With the packing
        of source and target, return `(N, D)` for the target's N tokens."""
        memory = self.encode(source, packing=packing and packing[0])
        return self.decode(target_input, memory, packing=packing)

    def start(
        self, source: Tensor, beam: int = 1, *, offset: int | Tensor | None = None
    ) -> DecoderState:
        """Encode `source (B, S)` and return the state from which B × `beam` rows are decoded.

        Raises:
            ShapeshiftError: in training mode, where each step would draw offsets anew and drop
                other units; if `beam` is no whole number from 1.
        """
        whole_number("beam", beam, 1)
        if self.training:
            raise ShapeshiftError(
                "decoding token by token needs the model in evaluation mode, got one in training"
                " mode; call model.eval() first"
            )
        return DecoderState(self, self.encode(source, offset=offset), beam, offset)


class DecoderState:
    """Incremental decoding of N = B × beam rows; the beams of a sentence are neighbours.

    `step` gives what a full forward pass over the same prefix would give for its last token. The
    model stays in evaluation mode: in training, offsets would be drawn anew at each step.
    """

    def __init__(
        self, model: Transformer, memory: Memory, beam: int, offset: int | Tensor | None = None
    ):
        self.model = model
        self._memory = memory
        self._beam = beam
        if isinstance(offset, Tensor):  # (), (1,) or (B,) -> (N,)
            offset = offset.expand(memory.hidden.shape[0]).repeat_interleave(beam)
        self._offset = offset
        self._caches: list[LayerCache] = [(KeyValues(), SourceKeyValues()) for _ in model.decoder]
        self._pos: Tensor | None = None  # (N|1, tokens so far)
        # (N, tokens so far), where position ids depend on them.
        self._tokens: Tensor | None = None
        self._slots: Slots | None = None  # after `reserve`

    @property
    def reserves(self) -> bool:
        """Whether searches may `reserve`: position ids are known before the tokens, and no kind has
        a state, in which it would have to tell free places from tokens."""
        layers: Iterable[Any] = self.model.decoder
        has_state = any(layer.attention.position.acts("state") for layer in layers)
        return not (self.model.target.position_ids.reads_tokens or has_state)

    def reserve(self, num_tokens: int, most: int) -> int:
        """Reserve buffers for `num_tokens` tokens a row, before the first step or when they are
        full; return the capacity.

        The tensors of `step` and `reorder` then keep their addresses, so that a CUDA graph can
        replay them. `extend` takes one token at a time.

        Args:
            most: tokens that a row may ever have; there are positions for no more.

        Raises:
            ShapeshiftError: `reserves` is false.
        """
        if not self.reserves:
            raise ShapeshiftError(
                "this model cannot reserve: its position ids depend on tokens, or a kind has a"
                " state; leave reserve out"
            )
        capacity = ROOM
        while capacity < num_tokens:
            capacity *= 2
        capacity = min(capacity, most)
        num_rows, moves = self._memory.hidden.shape[0] * self._beam, self._beam > 1
        pos = self.model.target.position_ids(
            num_rows, capacity, offset=self._offset, device=self._memory.pos.device
        )
        last = None if self._slots is None else self._slots.last
        slots = self._slots = Slots(pos, num_rows, moves, last)
        self._caches = [
            (own.moved(slots) if isinstance(own, FixedKeyValues) else FixedKeyValues(slots), cross)
            for own, cross in self._caches
        ]
        return capacity

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token to each row: `tokens (N,)` -> logits of the next token `(N, V)`.

        Raises:
            ShapeshiftError: for another number of rows than N.
        """
        return self.model.project(self.extend(tokens.unsqueeze(1))[:, -1])

    def begin(self, tokens: Tensor) -> Tensor:
        """Append the first token `(B,)` of all beams, computed once for each sentence -> logits of
        the next token `(B, V)`. Not after `reserve`."""
        beam, offset = self._beam, self._offset
        self._beam = 1
        if isinstance(offset, Tensor):
            self._offset = offset[::beam]
        logits = self.step(tokens)
        self._beam, self._offset = beam, offset
        assert self._pos is not None
        rows = torch.arange(len(tokens), device=tokens.device).repeat_interleave(beam)
        if self._pos.shape[0] > 1:
            self._pos = self._pos[rows]
        if self._tokens is not None:
            self._tokens = self._tokens[rows]
        for own, _ in self._caches:
            assert isinstance(own, KeyValues)
            own.select(rows)
        return logits

    def extend(self, tokens: Tensor) -> Tensor:
        """Append `tokens (N, Q)`; return the decoder's output for them `(N, Q, D)`."""
        self._check_device("tokens", tokens)
        num_sentences = self._memory.hidden.shape[0]
        if tokens.shape[0] != num_sentences * self._beam:
            raise ShapeshiftError(
                f"each step takes tokens for all {num_sentences * self._beam} rows, {num_sentences}"
                f" sentences with {self._beam} beams, got {tokens.shape[0]}"
            )
        if self._slots is not None:
            x, pos = self.model.target(tokens, pos=self._slots.take())
            self._pos = self._slots.pos
        elif self.model.target.position_ids.reads_tokens:
            x, pos = self._read(tokens)
        else:
            before = 0 if self._pos is None else self._pos.shape[1]
            x, pos = self.model.target(tokens, start=before, offset=self._offset)
            self._pos = pos if self._pos is None else torch.cat((self._pos, pos), dim=1)
        for layer, cache in zip(self.model.decoder, self._caches, strict=True):
            x = layer(x, pos, self._pos, self._memory, cache)
        hidden: Tensor = self.model.decoder_norm(x)
        return hidden

    def _read(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the embeddings `(N, Q, D)` of `tokens (N, Q)` and their positions, which depend on
        all tokens so far."""
        target, known = self.model.target, self._pos
        so_far = tokens if self._tokens is None else torch.cat((self._tokens, tokens), dim=1)
        pos: Tensor = target.position_ids(
            *so_far.shape, offset=self._offset, device=tokens.device, tokens=so_far
        )
        before = 0 if known is None else known.shape[1]
        if known is not None and can_read(known) and bool((pos[:, :before] != known).any()):
            raise ShapeshiftError(
                f"{type(target.position_ids).__name__} has changed the position ids of earlier"
                " tokens after it saw later ones; the id of a token must depend on it and on those"
                " before it alone"
            )
        self._tokens, self._pos = so_far, pos
        embedded: tuple[Tensor, Tensor] = target(tokens, pos=pos[:, before:])
        return embedded

    def _check_device(self, what: str, x: Tensor) -> None:
        device = self._memory.hidden.device
        if x.device != device:
            raise ShapeshiftError(
                f"{what} must be on the device of the model, {device}, got {x.device}; move them"
                f" with .to({str(device)!r})"
            )

    def _check_range(self, rows: Tensor) -> None:
        num_rows = self._memory.hidden.shape[0] * self._beam
        if rows.numel() and not kernels.is_traced():
            lowest, highest = map(int, rows.aminmax())
            if lowest < 0 or highest >= num_rows:
                wrong = lowest if lowest < 0 else highest
                raise IndexError(f"rows to continue must be from 0 to {num_rows - 1}, got {wrong}")

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue row `rows[i]`. Beams stay within their sentence, and sentences keep
        their order; whole ones may be left out.

        Args:
            rows: `(≤ N,)` int64 or int32.

        Raises:
            ShapeshiftError: if `rows` are not a vector of integers, or on another device.
            IndexError: if one is not from 0 to N - 1; a GPU says so by itself, later.
        """
        self._check_device("rows to continue", rows)
        if rows.ndim != 1 or rows.dtype not in (torch.int64, torch.int32):
            raise ShapeshiftError(
                f"rows to continue must be (N,) integers, got {describe(rows)}; convert them with"
                " .long()"
            )
        if rows.device.type == "cpu":
            self._check_range(rows)
        if self._slots is not None:
            self._slots.select(rows)
        if self._tokens is not None and self._pos is not None:  # beams differ in their ids
            self._tokens, self._pos = self._tokens[rows], self._pos[rows]
        for own, _ in self._caches:
            if isinstance(own, KeyValues):
                own.select(rows)
        memory = self._memory
        if len(rows) == memory.hidden.shape[0] * self._beam:  # no sentence is left out
            return
        # The beams of a sentence have the same positions.
        if self._pos is not None and self._pos.shape[0] > 1 and self._tokens is None:
            self._pos = self._pos[rows]
        if isinstance(self._offset, Tensor):
            self._offset = self._offset[rows]
        sentences = rows[:: self._beam] // self._beam
        self._memory = replace(
            memory,
            hidden=memory.hidden[sentences],
            mask=memory.mask[sentences],
            pos=memory.pos if memory.pos.shape[0] == 1 else memory.pos[sentences],
        )
        for _, cross in self._caches:
            cross.select(sentences)


def _note_ties(model: Transformer, *_: Any) -> None:
    model._tied = tied_names(model)


def _restore_ties(model: Transformer, _: Any) -> None:
    tie(model, model._tied)


def check_padding(name: str, ids: Tensor) -> None:
    """Raise a `ShapeshiftError` if a row of `ids (B, T)`, the argument `name`, has no token, or
    padding left of one."""
    is_token = ids != PAD
    starts = is_token[:, :1].all() and ids.shape[1] > 0
    if not starts or bool((is_token[:, 1:] & ~is_token[:, :-1]).any()):
        raise ShapeshiftError(
            f"each row of {name} must be a sentence with padding ({PAD}) on its right alone, for"
            " positions count from the first token; got a row that starts with padding or has some"
            " between tokens"
        )


def padding_mask(ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `(B, 1, 1, S)` to add to scores: 0 on tokens, `-inf` on padding."""
    mask = torch.zeros(ids.shape, dtype=dtype, device=ids.device)
    return mask.masked_fill_(ids == PAD, float("-inf"))[:, None, None, :]
