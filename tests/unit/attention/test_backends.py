"""Steps of attention that are done in one way or another for the sake of speed."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shapeshift.attention import backends
from shapeshift.attention.backends import attend_with_probs, softmax_in_fp32
from shapeshift.model import ModelConfig, build
from shapeshift.positions import Representation


@pytest.mark.parametrize("num_keys", [1, 30, 32, 45, 90])
def test_probabilities_in_bf16_do_not_depend_on_how_they_are_computed(num_keys, monkeypatch):
    torch.manual_seed(num_keys)
    q, k, v = (torch.randn(2, 3, num_keys, 8).bfloat16() for _ in range(3))
    mask = torch.zeros(2, 1, 1, num_keys).bfloat16()
    mask[1, ..., num_keys // 2 + 1 :] = float("-inf")
    pos = torch.arange(num_keys)[None]
    made = []
    for wide in (False, True):
        monkeypatch.setattr(backends, "softmax_in_fp32", lambda *_, wide=wide: wide)
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        heads, probs = attend_with_probs(*inputs, mask, Representation(), pos, pos)
        heads.float().square().sum().backward()
        made.append([heads, probs, *(x.grad for x in inputs)])
        assert all(x.dtype is torch.bfloat16 for x in made[-1])
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_only_rows_with_long_ends_are_widened():
    widened = [n for n in range(1, 100) if softmax_in_fp32("cpu", 2, n)]
    assert widened == [*range(16, 32), *range(39, 64), *range(77, 96)]
    assert not softmax_in_fp32("cpu", 4, 30)
    assert not softmax_in_fp32("cuda", 2, 30)


class MixedSums(TorchDispatchMode):
    """Collects sums in place of two tensors of different types, which cast the larger one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[torch.Size] = []
        self.sums = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.add_.Tensor and isinstance(args[1], Tensor):
            self.sums += 1
            if args[0].dtype != args[1].dtype:
                self.shapes.append(args[0].shape)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("preset", ["ape", "rpe", "t5", "alibi"])
def test_in_half_precision_no_mask_casts_the_scores(preset: str) -> None:
    model = build(ModelConfig(size="tiny"), preset, 20, 20)
    source = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), MixedSums() as mixed:
        model(source, torch.tensor([[2, 5, 6], [2, 7, 0]]))
    assert mixed.sums
    assert mixed.shapes == []
