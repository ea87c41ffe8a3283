"""Steps of attention that are done in one way or another for the sake of speed."""

import pytest
import torch

from shapeshift.attention import backends
from shapeshift.attention.backends import attend_with_probs
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
