"""Keys and values kept while decoding."""

import pytest
import torch
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, build
from shapeshift.model.cache import KeyValues


def block(new: int, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 2, new, 16), torch.randn(rows, 2, new, 16)


@pytest.mark.skipif(not kernels.is_available(torch.float32), reason="no C compiler")
def test_rows_that_are_remembered_and_rows_that_are_copied_are_the_same():
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("position", ["ape", "rpe"])
def test_rows_to_continue_exist(position, dtype):
    config = ModelConfig(dim=32, num_heads=2, ff_dim=32, encoder_layers=1, decoder_layers=1)
    model = build(config, position, 20, 20).to(dtype).eval()
    with torch.no_grad():
        state = model.start(torch.tensor([[5, 6, 3]]), beam=2)
        before = state.step(torch.tensor([2, 2]))
        for wrong in ([0, 2], [0, 10**6], [-1, 0], [0, 10**12]):
            with pytest.raises(IndexError, match="must be from 0 to 1, got"):
                state.reorder(torch.tensor(wrong))
        for kind in ([0.0, 1.0], [True, False], [[0, 1]]):
            with pytest.raises(ShapeshiftError, match=r"must be \(N,\) integers"):
                state.reorder(torch.tensor(kind))
        with pytest.raises(ShapeshiftError, match="on the device of the model, cpu, got meta"):
            state.reorder(torch.tensor([0, 1], device="meta"))
        with pytest.raises(ShapeshiftError, match="on the device of the model, cpu, got meta"):
            state.step(torch.tensor([5, 5], device="meta"))
        assert before.isfinite().all()
        # What was refused has changed nothing, and int32 serves as int64 does.
        made = []
        for rows in (torch.tensor([1, 0]), torch.tensor([1, 0], dtype=torch.int32)):
            state = model.start(torch.tensor([[5, 6, 3]]), beam=2)
            for tokens in ([2, 2], [7, 8]):
                state.step(torch.tensor(tokens))
            with pytest.raises(IndexError):
                state.reorder(rows + 1)
            state.reorder(rows)
            made.append(state.step(torch.tensor([9, 9])))
    assert torch.equal(*made)
    assert not torch.equal(made[0][0], made[0][1])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("rows", [[1, 0, 3, 3], [2, 3]], ids=["all", "one sentence left out"])
def test_reserved_places_are_reordered(rows, dtype):
    torch.manual_seed(0)
    shape = {"dim": 16, "num_heads": 2, "ff_dim": 16, "encoder_layers": 1, "decoder_layers": 1}
    model = build(ModelConfig(**shape), "ape", 12, 12).eval()
    results = []
    for reserves in (False, True):
        with torch.no_grad():
            source, offset = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([4, 0])
            state = model.start(source, beam=2, offset=offset)
            if reserves:
                state.reserve(2, 8)
            state.step(torch.full((4,), 2))
            state.reorder(torch.tensor(rows, dtype=dtype))
            results.append(state.step(torch.arange(4, 4 + len(rows))))
    torch.testing.assert_close(*results)


def test_rows_of_32_bits_are_the_first_to_move_reserved_places():
    model = build(ModelConfig(size="tiny", dim=16, num_heads=2), "rpe", 12, 12).eval()
    with torch.no_grad():
        state = model.start(torch.tensor([[5, 6, 3], [7, 3, 0]]))
        state.reserve(2, 8)
        state.step(torch.tensor([2, 2]))
        state.reorder(torch.tensor([0, 1], dtype=torch.int32))
        assert state.step(torch.tensor([4, 5])).isfinite().all()
