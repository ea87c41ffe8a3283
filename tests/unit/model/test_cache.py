"""Keys and values kept while decoding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.model.cache import KeyValues


def block(new: int, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 2, new, 16), torch.randn(rows, 2, new, 16)


@pytest.mark.skipif(not kernels.is_available(torch.float32), reason="no C compiler")
def test_rows_that_are_remembered_and_rows_that_are_copied_are_the_same() -> None:
    cache, other = KeyValues(), KeyValues()
    rows = [[0, 1, 2], [2, 0, 0], [1, 1, 2], [0, 2], [1, 0]]
    for step, selected in enumerate(rows):
        num_rows = len(rows[step - 1]) if step else 3
        keys, values = block(1, num_rows)
        q = torch.randn(num_rows, 2, 1, 16)
        expected = F.scaled_dot_product_attention(q, *other.append(keys, values))
        if step == 3:  # in between, somebody asks for them
            kept = cache.append(*block(0, num_rows))
            assert torch.equal(kept[0], other.append(*block(0, num_rows))[0][:, :, :-1])
        got, _ = cache.attend(q, keys, values)
        torch.testing.assert_close(got.transpose(1, 2), expected)
        cache.select(torch.tensor(selected))
        other.select(torch.tensor(selected))
    assert torch.equal(cache.append(*block(0, 2))[1], other.append(*block(0, 2))[1])
