"""Attention on labelled, directed graphs: work out what logic circuits compute.

    python examples/graph_attention.py

A circuit is a graph. Its first nodes are inputs, each 0 or 1, the others AND and OR gates with an
edge to each of their two operands, labelled 0, as it is, or 1, negated. The task: the value of each
gate. Who reads whom, and how, stands in the edges alone, so the encoder that knows them has two
others next to it: one knows the nodes alone, one the edges without their labels. A gate of depth d
waits for one of depth d − 1: it takes d layers.
"""

from __future__ import annotations

import argparse
import random
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift.interop.torch_nn import TransformerEncoderLayer
from shapeshift.positions import Graph, use_edges

DIM, HEADS, LAYERS, MAX_DEPTH = 32, 4, 3, 3
AND, OR = 2, 3  # a node is one of these, or 0 or 1: an input of that value


@dataclass
class Circuit:
    """Its nodes, each after its operands, and edges (gate, operand, negated)."""

    nodes: list[int]
    edges: list[tuple[int, int, int]]
    values: list[int]
    depths: list[int]


def draw(rng: random.Random) -> Circuit:
    """Return a random circuit of 4 to 8 inputs and at least 4 gates."""
    inputs = rng.choices((0, 1), k=rng.randint(4, 8))
    made = Circuit(list(inputs), [], list(inputs), [0] * len(inputs))
    for gate in range(len(inputs), len(inputs) + rng.randint(4, len(inputs))):
        below = [node for node, depth in enumerate(made.depths) if depth < MAX_DEPTH]
        operands = [(node, rng.randrange(2)) for node in rng.sample(below, 2)]
        bits = [made.values[node] ^ negated for node, negated in operands]
        kind = rng.choice((AND, OR))
        made.nodes.append(kind)
        made.edges += [(gate, node, negated) for node, negated in operands]
        made.values.append(max(bits) if kind == OR else min(bits))
        made.depths.append(1 + max(made.depths[node] for node, _ in operands))
    return made


class Evaluator(nn.Module):
    """A torch.nn.TransformerEncoder that tells how likely each node is 1.

    `knows` is `nodes`, `edges` (without labels) or `labels`.
    """

    def __init__(self, knows: str):
        super().__init__()
        self.knows = knows
        position = (
            None
            if knows == "nodes"
            else Graph(num_heads=HEADS, head_dim=DIM // HEADS, num_labels=2)
        )
        layer = TransformerEncoderLayer(
            DIM, HEADS, 2 * DIM, 0.0, batch_first=True, norm_first=True, position=position
        )
        self.embed = nn.Embedding(4, DIM)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(DIM, 1)

    def forward(self, circuits: list[Circuit]) -> Tensor:
        """Return logits `(B, n)`."""
        x = self.embed(padded([c.nodes for c in circuits]))  # (B, n, D)
        labels = torch.full((*x.shape[:2], x.shape[1]), -1)  # (B, n, n)
        for b, circuit in enumerate(circuits):
            for i, j, label in circuit.edges:
                labels[b, i, j] = label if self.knows == "labels" else 0
        sizes = torch.tensor([len(c.nodes) for c in circuits])
        padding = torch.arange(x.shape[1]) >= sizes.unsqueeze(1)  # (B, n)
        with nullcontext() if self.knows == "nodes" else use_edges(self, labels):
            hidden = self.encoder(x, src_key_padding_mask=padding)
        logits: Tensor = self.out(hidden).squeeze(-1)
        return logits


def padded(rows: list[list[int]]) -> Tensor:
    tensors = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True)


def train(knows: str, circuits: list[Circuit], steps: int) -> Evaluator:
    torch.manual_seed(0)
    rng = random.Random(0)
    model = Evaluator(knows)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        batch = rng.sample(circuits, 64)
        gates = padded([c.depths for c in batch]) > 0
        values = padded([c.values for c in batch])
        loss = F.binary_cross_entropy_with_logits(model(batch)[gates], values[gates].float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def accuracy(model: Evaluator, circuits: list[Circuit]) -> list[float]:
    """Return the percentage of gates worked out right, by their depth."""
    depths = padded([c.depths for c in circuits])
    right = (model(circuits) > 0) == padded([c.values for c in circuits])
    return [100 * right[depths == d].float().mean().item() for d in range(1, MAX_DEPTH + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=500, help="updates of each model")
    args = parser.parse_args()
    rng = random.Random(1)
    circuits = [draw(rng) for _ in range(8000)]
    held_out = [draw(rng) for _ in range(500)]
    print("gates worked out right, %, by depth")
    print("knows   " + "".join(f"{depth:>6}" for depth in range(1, MAX_DEPTH + 1)))
    for knows in ("nodes", "edges", "labels"):
        model = train(knows, circuits, args.steps)
        row = "".join(f"{right:6.0f}" for right in accuracy(model, held_out))
        print(f"{knows:<8}{row}", flush=True)


if __name__ == "__main__":
    main()
