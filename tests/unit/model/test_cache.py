"""Keys and values kept while decoding."""

from __future__ import annotations

import torch

from shapeshift.model.cache import KeyValues, SourceKeyValues


def block(new: int, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 2, new, 4), torch.randn(rows, 2, new, 4)


def test_growing_copies_seldom() -> None:
    cache, moved, last = KeyValues(), 0, 0
    for _ in range(200):
        keys, _ = cache.append(*block(1))
        moved += keys.data_ptr() != last
        last = keys.data_ptr()
    assert moved <= 10


def test_a_source_is_kept_once_and_its_sentences_are_selected() -> None:
    cache, (keys, values) = SourceKeyValues(), block(5)
    cache.select(torch.tensor([0]))  # nothing there yet: nothing to do
    cache.append(keys, values)
    cache.select(torch.tensor([2, 0]))
    kept_keys, kept_values = cache.append(*block(0, rows=2))
    assert cache.length == 5
    assert torch.equal(kept_keys, keys[[2, 0]])
    assert torch.equal(kept_values, values[[2, 0]])
