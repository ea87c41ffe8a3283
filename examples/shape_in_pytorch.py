"""SHAPE in a plain PyTorch model: one line, and lengths beyond those of training work.

    python examples/shape_in_pytorch.py

The task: name the token that stands two places to the left. Sequences of 8 to 16 tokens train
the model; longer ones test it. With plain sinusoidal positions it has never met what stands right
of position 16. With SHAPE it has met all of them, and learnt that only their difference counts.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import SHAPE

NUM_TOKENS, DIM, BACK = 12, 64, 2


class Tagger(nn.Module):
    """A torch.nn.TransformerEncoder that names a token for each place."""

    def __init__(self, max_offset: int):
        super().__init__()
        self.embed = nn.Embedding(NUM_TOKENS, DIM)
        self.position = SHAPE(dim=DIM, max_offset=max_offset)  # <- this is all
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(DIM, NUM_TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.position(self.embed(ids))  # (B, T, D) -> (B, T, D)
        logits: Tensor = self.out(self.encoder(x))
        return logits


def train(max_offset: int, steps: int) -> Tagger:
    torch.manual_seed(0)
    model = Tagger(max_offset)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        ids = torch.randint(NUM_TOKENS, (64, int(torch.randint(8, 17, ()))))
        logits = model(ids)[:, BACK:]
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: Tagger, length: int) -> float:
    """Return the percentage of tokens named right in sequences of `length`."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(NUM_TOKENS, (64, length), generator=generator)
    right = model(ids)[:, BACK:].argmax(-1) == ids[:, :-BACK]
    return 100 * right.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000, help="updates of each model")
    parser.add_argument("--max-offset", type=int, default=60, help="K")
    args = parser.parse_args()
    lengths = (8, 16, 24, 32, 48, 64)
    print("tokens named right, %, by length (trained on 8 to 16)")
    print("length    " + "".join(f"{length:>6}" for length in lengths))
    for name, max_offset in (("absolute", 0), ("SHAPE", args.max_offset)):
        model = train(max_offset, args.steps)
        row = "".join(f"{accuracy(model, length):6.0f}" for length in lengths)
        print(f"{name:<10}{row}", flush=True)


if __name__ == "__main__":
    main()
