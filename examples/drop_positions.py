"""Take the rotary positions out of a trained Llama, and train it a little further without any
(DroPE: Gelberg et al. 2025, "Extending the Context of Pretrained LLMs by Dropping Their Positional
Embeddings").

    pip install '.[hf]'
    python examples/drop_positions.py

A small Llama with random weights learns sequences of three counters that take turns, such as
4 9 1 5 10 2 6 …. The loss, in nats a token, is given at the trained length and at longer ones: of
the rotary model, as soon as its positions are removed, and after a few more steps.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from shapeshift import use_position

NUM_TOKENS, COUNTERS = 16, 3
LENGTHS = (16, 32, 64)
"""The first one is trained."""


def counting(num_sequences: int, length: int, generator: torch.Generator | None = None) -> Tensor:
    """Return sequences `(B, T)` of counters that start anywhere."""
    starts = torch.randint(NUM_TOKENS, (num_sequences, COUNTERS), generator=generator)
    turn = torch.arange(length)
    return (starts[:, turn % COUNTERS] + turn // COUNTERS) % NUM_TOKENS


def loss_of(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    logits = model(input_ids=ids).logits[:, COUNTERS - 1 : -1]  # what comes before is chance
    return F.cross_entropy(logits.flatten(0, 1), ids[:, COUNTERS:].flatten())


def train(model: LlamaForCausalLM, steps: int) -> None:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        loss = loss_of(model, counting(64, LENGTHS[0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def report(name: str, model: LlamaForCausalLM) -> None:
    model.eval()
    batches = [counting(128, n, torch.Generator().manual_seed(1)) for n in LENGTHS]
    losses = "".join(f"{loss_of(model, ids).item():8.3f}" for ids in batches)
    print(f"{name:14}{losses}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=600, help="with positions; then half as many")
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=NUM_TOKENS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=80, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    print("loss at a length of")
    print(f"{'positions':14}" + "".join(f"{n:8}" for n in LENGTHS))
    train(model, steps)
    report("rotary", model)
    use_position(model, "nope")  # <- this is all
    report("removed", model)
    train(model, steps // 2)
    report("recalibrated", model)


if __name__ == "__main__":
    main()
