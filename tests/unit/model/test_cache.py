"""Keys and values kept while decoding."""

from __future__ import annotations

import torch

from shapeshift.model.cache import KeyValues, SourceKeyValues


def block(new: int, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 2, new, 4), torch.randn(rows, 2, new, 4)


def test_everything_appended_is_kept_in_order() -> None:
    torch.manual_seed(0)
    cache, blocks = KeyValues(), [block(new) for new in (3, 1, 1, 9, 1, 0, 2)]
    first = blocks[0][0].clone()
    for count, (keys, values) in enumerate(blocks, start=1):
        got = cache.append(keys, values)
        for kept, column in zip(got, (0, 1), strict=True):
            assert torch.equal(kept, torch.cat([each[column] for each in blocks[:count]], dim=2))
        assert torch.equal(blocks[0][0], first)  # what was appended is not written to
    assert cache.length == 17


def test_growing_copies_seldom() -> None:
    cache, moved, last = KeyValues(), 0, 0
    for _ in range(200):
        keys, _ = cache.append(*block(1))
        moved += keys.data_ptr() != last
        last = keys.data_ptr()
    assert moved <= 10


def test_rows_are_selected_repeated_and_dropped() -> None:
    cache, first, second = KeyValues(), block(2), block(1, rows=4)
    cache.select(torch.tensor([0]))  # nothing there yet: nothing to do
    cache.append(*first)
    rows = torch.tensor([2, 0, 0, 1])
    cache.select(rows)
    keys, values = cache.append(*second)
    assert torch.equal(keys, torch.cat([first[0][rows], second[0]], dim=2))
    assert torch.equal(values, torch.cat([first[1][rows], second[1]], dim=2))


def test_a_source_is_kept_once_and_its_sentences_are_selected() -> None:
    cache, (keys, values) = SourceKeyValues(), block(5)
    cache.select(torch.tensor([0]))  # nothing there yet: nothing to do
    cache.append(keys, values)
    cache.select(torch.tensor([2, 0]))
    kept_keys, kept_values = cache.append(*block(0, rows=2))
    assert cache.length == 5
    assert torch.equal(kept_keys, keys[[2, 0]])
    assert torch.equal(kept_values, values[[2, 0]])
