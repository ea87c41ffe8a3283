"""SHAPE in a Hugging Face model: one call, and a learned table is trained to its end.

    pip install '.[hf]'
    python examples/shape_in_huggingface.py

A small GPT-2 with random weights learns sequences of three counters that take turns, such as
4 9 1 5 10 2 6 …: the next token is the one three places back plus one. It is trained on 16 tokens
and tested on more. Without SHAPE the rows of its position table beyond 16 are never trained; with
it, all are.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from shapeshift import shift_positions

NUM_TOKENS, COUNTERS, TRAINED_LENGTH = 16, 3, 16


def counting(num_sequences: int, length: int, generator: torch.Generator | None = None) -> Tensor:
    """Return sequences `(B, T)` of counters that start anywhere."""
    starts = torch.randint(NUM_TOKENS, (num_sequences, COUNTERS), generator=generator)
    turn = torch.arange(length)
    return (starts[:, turn % COUNTERS] + turn // COUNTERS) % NUM_TOKENS


def train(max_offset: int, steps: int) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=NUM_TOKENS, n_positions=80, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).train()
    if max_offset:
        shift_positions(model, max_offset, max_length=TRAINED_LENGTH)  # <- this is all
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        ids = counting(64, TRAINED_LENGTH)
        logits = model(input_ids=ids).logits[:, COUNTERS - 1 : -1]  # what comes before is chance
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, COUNTERS:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: GPT2LMHeadModel, length: int) -> float:
    """Return the percentage of the tokens that are predicted right."""
    ids = counting(128, length, torch.Generator().manual_seed(1))
    right = model(input_ids=ids).logits[:, COUNTERS - 1 : -1].argmax(-1) == ids[:, COUNTERS:]
    return 100 * right.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=800, help="updates of each model")
    parser.add_argument("--max-offset", type=int, default=64, help="K")
    args = parser.parse_args()
    lengths = (16, 24, 32, 48, 64, 80)
    print(f"tokens predicted right, %, by length (trained on {TRAINED_LENGTH})")
    print("length    " + "".join(f"{length:>6}" for length in lengths))
    for name, max_offset in (("absolute", 0), ("SHAPE", args.max_offset)):
        model = train(max_offset, args.steps)
        row = "".join(f"{accuracy(model, length):6.0f}" for length in lengths)
        print(f"{name:<10}{row}", flush=True)


if __name__ == "__main__":
    main()
