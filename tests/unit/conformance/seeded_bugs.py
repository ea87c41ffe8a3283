"""One small decoder and one small encoder-decoder, right by themselves, and bugs to seed in them.

Each bug is one that a library had, or a close relative; `BUGS` says which and what must find it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DIM, HEADS, VOCABULARY = 32, 4, 60
WIDTH = DIM // HEADS


@dataclass
class Past:
    """Keys and values of each layer, and the positions of the keys."""

    pos: Tensor
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)


class Attention(nn.Module):
    """Attention with rotary positions, or a bias on the distance, in one layer."""

    def __init__(self, kind: str, bug: str | None, layer: int, limit: int):
        super().__init__()
        self.kind, self.bug, self.layer, self.limit = kind, bug, layer, limit
        self.q, self.k, self.v, self.out = (nn.Linear(DIM, DIM) for _ in range(4))
        self.table = nn.Parameter(torch.randn(HEADS, 41))  # of clipped distances, or of buckets

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        allowed: Tensor,
        pos: Tensor,
        pos_k: Tensor,
        before: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = self.heads(self.q(x)), self.heads(self.k(memory)), self.heads(self.v(memory))
        cached = before is not None
        if self.kind == "rotary":
            q, k = self.turn(q, pos), self.turn(k, pos_k[:, -k.shape[2] :])
        if before is not None:
            k, v = (torch.cat(pair, dim=2) for pair in zip(before, (k, v), strict=True))
        scores = q @ k.transpose(-1, -2) / WIDTH**0.5
        if self.kind in ("alibi", "relative", "t5"):
            scores = scores + self.bias(pos, pos_k, cached)
        scores = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
        heads = scores.softmax(-1) @ v
        return self.out(heads.transpose(1, 2).flatten(2)), (k, v)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        base = 100.0
        if self.bug == "NTK from the current length" and int(pos.max()) >= self.limit:
            base *= (int(pos.max()) + 1) / self.limit * 2
        theta = base ** (-torch.arange(WIDTH // 2) * 2 / WIDTH)
        numbers = pos.to(x.dtype if self.bug == "positions in the model's dtype" else torch.float64)
        if self.bug == "rotary in bfloat16":
            numbers, theta = numbers.bfloat16(), theta.bfloat16()
        angles = (numbers.unsqueeze(-1) * theta).double().unsqueeze(1)  # (B, 1, T, E/2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)

    def bias(self, pos: Tensor, pos_k: Tensor, cached: bool) -> Tensor:
        distance = pos_k.unsqueeze(1) - pos.unsqueeze(2)  # (B, Q, K)
        if cached and self.bug == "distance reversed with a cache":
            distance = -distance
        if cached and self.bug == "bucket off by one with a cache":
            distance = distance - 1
        if self.kind == "alibi":
            slopes = 2.0 ** -torch.arange(1, HEADS + 1)
            if cached and self.bug == "slopes of other heads with a cache":
                slopes = slopes.flip(0)
            bias = -slopes[:, None, None] * distance.abs().unsqueeze(1)
        elif self.kind == "relative":
            bias = self.table[:, distance.clamp(-20, 20) + 20].transpose(0, 1)
        else:
            far = distance.abs().clamp(min=1).double().log2().mul(2).long().clamp(max=18)
            bias = self.table[:, 20 + far * distance.sign()].transpose(0, 1)
        if cached and self.bug == "no bias with a cache":
            bias = bias * 0
        if cached and self.bug == "bias of the first layer alone with a cache" and self.layer:
            bias = bias * 0
        return bias.to(self.table.dtype)


class Layer(nn.Module):
    """Self-attention, attention to a source if there is one, and a feed-forward layer."""

    def __init__(self, kind: str, bug: str | None, layer: int, limit: int):
        super().__init__()
        self.own = Attention(kind, bug, layer, limit)
        self.cross = Attention("none", bug, layer, limit)
        self.inner, self.outer = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x: Tensor, own: tuple[Any, ...], cross: tuple[Any, ...] | None = None) -> Any:
        h = F.layer_norm(x, (DIM,))
        out, keep = self.own(h, h, *own)
        x = x + out
        if cross is not None:
            x = x + self.cross(F.layer_norm(x, (DIM,)), *cross)[0]
        return x + self.outer(F.gelu(self.inner(F.layer_norm(x, (DIM,))))), keep


class Stack(nn.Module):
    """Embeddings and layers, with whichever bug."""

    def __init__(self, kind: str, bug: str | None, limit: int, causal: bool):
        super().__init__()
        self.kind, self.bug, self.limit, self.causal = kind, bug, limit, causal
        self.tokens = nn.Embedding(VOCABULARY, DIM)
        self.places = nn.Embedding(limit, DIM) if kind == "learned" else None
        self.layers = nn.ModuleList(Layer(kind, bug, n, limit) for n in range(2))

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None,
        position_ids: Tensor | None,
        past: Past | None,
        cross: tuple[Any, ...] | None = None,
    ) -> tuple[Tensor, Past]:
        before = 0 if past is None else past.pos.shape[1]
        pos = self.number(ids, mask, position_ids, before)
        pos_k = pos if past is None else torch.cat((past.pos, pos), dim=1)
        allowed = self.allow(ids, mask, position_ids, before)
        x = self.tokens(ids)
        if self.places is not None and self.bug != "positions without effect":
            x = x + self.places(self.rows(pos))
        kept = []
        for n, layer in enumerate(self.layers):
            own = (allowed, pos, pos_k, None if past is None else past.layers[n])
            x, keep = layer(x, own, cross)
            kept.append(keep)
        return x, Past(pos_k, kept)

    def number(self, ids: Tensor, mask: Tensor | None, given: Tensor | None, before: int) -> Tensor:
        length, bug = ids.shape[1], self.bug
        plain = torch.arange(before, before + length).expand_as(ids)
        padded = mask is not None and mask.ndim == 2 and not bool(mask.all())
        pos = plain if given is None else given
        if bug == "left padding counted" and padded:
            pos = plain
        if bug == "packed sequences counted on" and given is not None and mask is not None:
            pos = given if mask.ndim == 2 else plain
        if bug == "cache off by one" and before and given is None:
            pos = plain + 1
        if bug == "a piece at one position" and before and given is None:
            pos = torch.full_like(ids, before)
        if bug == "positions from the longest" and mask is not None and mask.ndim == 2:
            pos = pos + (mask == 0).sum(1, keepdim=True)
        if bug == "source counted from its end":
            pos = length - 1 - plain
        if bug == "offset drawn in evaluation":
            pos = pos + torch.randint(8, (len(ids), 1))
        return pos

    def rows(self, pos: Tensor) -> Tensor:
        if self.bug == "table clamped":
            return pos.clamp(max=self.limit - 1)
        return pos % self.limit if self.bug == "table read modulo its length" else pos

    def allow(self, ids: Tensor, mask: Tensor | None, given: Tensor | None, before: int) -> Tensor:
        length = ids.shape[1]
        allowed = torch.ones(length, before + length, dtype=torch.bool)
        if self.causal:
            allowed = allowed.tril(0 if self.bug == "mask without the cache" else before)
        allowed = allowed[None, None]
        mixes = self.bug == "packed sequences mix"
        if mask is not None and mask.ndim == 4:
            return allowed if mixes else allowed & (mask >= 0)
        if mask is not None and self.bug != "padding attended":
            allowed = allowed & mask.bool()[:, None, None]
        is_packed = mask is None and given is not None and not before
        if is_packed and not mixes and self.bug != "packed sequences counted on":
            assert given is not None
            document = (given.diff(dim=1, prepend=given[:, :1] - 1) != 1).cumsum(1)
            allowed = allowed & (document[:, None, :, None] == document[:, None, None])
        return allowed


class Decoder(nn.Module):
    """A decoder-only model that is called like one of Hugging Face."""

    def __init__(self, kind: str = "learned", bug: str | None = None, limit: int = 64):
        super().__init__()
        self.vocab_size, self.max_length = VOCABULARY, limit
        self.stack = Stack(kind, bug, limit, causal=True)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Past | None = None,
        use_cache: bool = False,
    ) -> tuple[Tensor, Past]:
        x, past = self.stack(input_ids, attention_mask, position_ids, past_key_values)
        return F.linear(F.layer_norm(x, (DIM,)), self.stack.tokens.weight), past


class EncoderDecoder(nn.Module):
    """An encoder-decoder that is called like one of Hugging Face."""

    def __init__(self, kind: str = "t5", bug: str | None = None, limit: int = 64):
        super().__init__()
        self.vocab_size, self.max_length, self.bug = VOCABULARY, limit, bug
        self.encoder = Stack(
            "none" if bug == "encoder without positions" else kind, bug, limit, False
        )
        target_bug = None if bug and "source" in bug else bug
        self.decoder = Stack(kind, target_bug, limit, causal=True)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        past_key_values: Past | None = None,
        use_cache: bool = False,
    ) -> tuple[Tensor, Past]:
        assert decoder_input_ids is not None
        memory, source = self.encoder(input_ids, attention_mask, None, None)
        seen = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if self.bug == "source padding attended":
            seen = torch.ones_like(input_ids)
        cross = (memory, seen.bool()[:, None, None], source.pos[:, :1], source.pos)
        x, past = self.decoder(
            decoder_input_ids, decoder_attention_mask, None, past_key_values, cross
        )
        return F.linear(F.layer_norm(x, (DIM,)), self.decoder.tokens.weight), past


@dataclass(frozen=True)
class Bug:
    """A model with a bug, what finds it, and what it is like."""

    model: type[nn.Module]
    kind: str
    found_by: str
    like: str = ""
    limit: int = 64

    def build(self, name: str | None) -> nn.Module:
        torch.manual_seed(0)
        return self.model(self.kind, name, self.limit)


BUGS = {
    "left padding counted": Bug(Decoder, "learned", "left padding", "unsloth #3699, nnsight #673"),
    "cache off by one": Bug(Decoder, "learned", "cached = full"),
    "a piece at one position": Bug(Decoder, "rotary", "cached = full"),
    "mask without the cache": Bug(Decoder, "rotary", "cached = full"),
    "no bias with a cache": Bug(
        Decoder, "alibi", "cached = full", "vLLM #11780, TensorRT-LLM #13870"
    ),
    "slopes of other heads with a cache": Bug(Decoder, "alibi", "cached = full"),
    "distance reversed with a cache": Bug(Decoder, "relative", "cached = full", "ESPnet #2816"),
    "bucket off by one with a cache": Bug(EncoderDecoder, "t5", "cached = full"),
    "bias of the first layer alone with a cache": Bug(
        EncoderDecoder, "t5", "cached = full", "CTranslate2 #1478"
    ),
    "NTK from the current length": Bug(
        Decoder, "rotary", "beyond the end", "transformers #25104, vLLM #52665", 64
    ),
    "table clamped": Bug(Decoder, "learned", "beyond the end", ""),
    "table read modulo its length": Bug(Decoder, "learned", "beyond the end", ""),
    "packed sequences counted on": Bug(Decoder, "learned", "packing", "unsloth #3699"),
    "packed sequences mix": Bug(Decoder, "rotary", "packing"),
    "positions from the longest": Bug(Decoder, "learned", "batch-mates"),
    "padding attended": Bug(EncoderDecoder, "t5", "right padding"),
    "source padding attended": Bug(EncoderDecoder, "learned", "right padding"),
    "source counted from its end": Bug(EncoderDecoder, "learned", "right padding"),
    "positions in the model's dtype": Bug(Decoder, "rotary", "bfloat16", limit=320),
    "rotary in bfloat16": Bug(Decoder, "rotary", "shift"),
    "offset drawn in evaluation": Bug(Decoder, "learned", "repeatable"),
    "positions without effect": Bug(Decoder, "learned", "effect"),
    "encoder without positions": Bug(EncoderDecoder, "learned", "effect"),
}
"""Name → what is wrong."""
