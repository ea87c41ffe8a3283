"""Seeds from names."""

from __future__ import annotations

import torch

from shapeshift.seeds import derive


def test_the_same_on_every_machine() -> None:
    # The first 16 hexadecimal digits of `printf 1/offsets/3/0 | sha256sum`, halved. Another value
    # would silently change every published run.
    assert derive(1, "offsets", 3, 0) == 6558645140497532048


def test_labels_and_their_order_matter() -> None:
    seeds = {derive(1), derive(2), derive(1, "a"), derive(1, "b"), derive(1, "a", "b")}
    seeds |= {derive(1, "b", "a"), derive(1, "a", 1), derive(1, "a", 11), derive(1, 1, "a")}
    assert len(seeds) == 9
    for seed in seeds:
        torch.Generator().manual_seed(seed)
