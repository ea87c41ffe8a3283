"""A small model with an optimiser, its state to compare, and an observer of training."""

import torch
from torch import nn

from shapeshift.training.manifest import MODEL, OPTIMIZER


def linear(seed, kind=torch.optim.Adam, width=2):
    """Return a linear layer and its optimiser after one step; both depend on the seed."""
    torch.manual_seed(seed)
    model = nn.Linear(width, width)
    optimizer = kind(model.parameters(), lr=0.1)
    model(torch.randn(3, width)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def state(model, optimizer):
    """Return weights and the optimiser's tensors by name."""
    tensors = dict(model.state_dict())
    for index, values in optimizer.state_dict()["state"].items():
        tensors.update((f"{index}.{key}", value) for key, value in values.items())
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def files(trainer, update):
    """Return the weights and the optimiser's state of a checkpoint, as they are on the disk."""
    folder = trainer.checkpoints.path(update)
    return [(folder / name).read_bytes() for name in (MODEL, OPTIMIZER)]


class Recorder:
    """Remembers what it receives; calls a function when an update is logged."""

    def __init__(self, at=None, do=None):
        self.at, self.do = at, do
        self.updates, self.validations, self.seen = [], [], []

    def advanced(self, update):
        self.seen.append(update)

    def updated(self, update, loss, tokens_per_s):
        assert tokens_per_s > 0
        self.updates.append((update, loss))
        if update == self.at:
            self.do()

    def validated(self, update, values):
        self.validations.append((update, values))
