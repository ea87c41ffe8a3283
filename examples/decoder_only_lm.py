"""A small decoder-only language model with any position kind of the registry.

    python examples/decoder_only_lm.py --kinds none sinusoidal shaw

The text is the English of the built-in grammar. Sentences of up to 14 words train the model;
perplexity is given for those and for longer ones. `shapeshift positions` lists the kinds. The model
knows none of them: `place` puts a kind where it acts, and attention asks it through its hooks.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from shapeshift.attention import causal_mask
from shapeshift.data.grammar import generate
from shapeshift.model.attention import Attention
from shapeshift.model.layers import Embedding, EncoderLayer, FeedForward, Residual
from shapeshift.model.transformer import PAD
from shapeshift.positions import KINDS, Part, PositionIds, Scheme, Stack, build_position_ids, place

DIM, HEADS, LAYERS, DROPOUT = 64, 4, 2, 0.1
START, END, UNKNOWN = 1, 2, 3


class LanguageModel(nn.Module):
    """p(w_t | w_1 … w_{t−1}): encoder layers under a causal mask, tied embeddings."""

    def __init__(self, num_words: int, scheme: Scheme):
        super().__init__()
        placed = place(scheme, Stack("decoder", DIM, HEADS, LAYERS))
        tokens = nn.Embedding(num_words, DIM, padding_idx=PAD)
        nn.init.normal_(tokens.weight, std=DIM**-0.5)
        self.embedding = Embedding(tokens, build_position_ids(scheme), placed.embedding, DROPOUT)
        self.layers = nn.ModuleList(
            EncoderLayer(
                Attention(DIM, HEADS, 0.0, position),
                FeedForward(DIM, 4 * DIM, "gelu", 0.0),
                [Residual(DIM, DROPOUT, pre_norm=True) for _ in range(2)],
            )
            for position in placed.self_attention
        )
        self.norm = nn.LayerNorm(DIM)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits `(B, T, V)` for `ids (B, T)`."""
        x, pos = self.embedding(ids)
        mask = causal_mask(ids.shape[1], ids.shape[1], x.dtype, x.device)
        for layer in self.layers:
            x = layer(x, pos, mask)
        return F.linear(self.norm(x), self.embedding.tokens.weight)


def sentences(number: int, seed: int, shortest: int, longest: int) -> list[list[str]]:
    pairs = generate(number, seed=seed, min_words=shortest, max_words=longest)
    return [english.split() for english, _ in pairs]


def batches(data: list[Tensor], size: int, seed: int) -> Iterator[Tensor]:
    """Yield `(B, T)` without end; sentences of a batch are of similar length."""
    rng = random.Random(seed)
    data = sorted(data, key=len)
    while True:
        first = rng.randrange(0, max(1, len(data) - size))
        yield pad_sequence(data[first : first + size], batch_first=True, padding_value=PAD)


def loss_of(model: LanguageModel, ids: Tensor, reduction: str = "mean") -> Tensor:
    logits = model(ids[:, :-1]).flatten(0, 1)
    return F.cross_entropy(logits, ids[:, 1:].flatten(), ignore_index=PAD, reduction=reduction)


@torch.no_grad()
def perplexity(model: LanguageModel, data: list[Tensor]) -> float:
    total = sum(loss_of(model, one[None], "sum") for one in data)
    return float(torch.exp(torch.as_tensor(total) / sum(len(one) - 1 for one in data)))


def train(model: LanguageModel, data: list[Tensor], steps: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _, ids in zip(range(steps), batches(data, 64, seed=1), strict=False):
        optimizer.zero_grad()
        loss_of(model, ids).backward()
        optimizer.step()
        schedule.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=400, help="updates of each model")
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), metavar="KIND",
                        default=["none", "sinusoidal", "shaw"])  # fmt: skip
    parser.add_argument("--max-offset", type=int, default=0, help="K of SHAPE; 0 is none")
    args = parser.parse_args()
    text = sentences(8000, 1, 3, 14)
    words = {word: 4 + n for n, word in enumerate(sorted({w for line in text for w in line}))}

    def numbered(lines: list[list[str]]) -> list[Tensor]:
        return [torch.tensor([START, *(words.get(w, UNKNOWN) for w in s), END]) for s in lines]

    tests = {
        bounds: numbered(sentences(200, 2, *bounds)) for bounds in ((3, 14), (15, 28), (29, 40))
    }
    position_ids = PositionIds("shifted", {"max_offset": args.max_offset})
    print("perplexity by sentence length in words (trained on 3 to 14)")
    print(" " * 14 + "".join(f"{f'{low}-{high}':>9}" for low, high in tests))
    for kind in args.kinds:
        torch.manual_seed(0)
        model = LanguageModel(4 + len(words), Scheme(position_ids, (Part(kind),)))
        train(model, numbered(text), args.steps)
        model.eval()
        print(f"{kind:<14}" + "".join(f"{perplexity(model, x):9.2f}" for x in tests.values()),
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
