"""The label-smoothed loss against a loop over tokens and words, its gradient against slopes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift.model import ModelConfig, build, label_smoothed_loss
from shapeshift.model import loss as loss_module
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.positions import SCHEMES

EPSILONS = [0.0, 0.1, 0.7]


def slow_loss(logits: list[list[float]], targets: list[int], epsilon: float) -> tuple[float, float]:
    smoothed, nll = 0.0, 0.0
    for row, target in zip(logits, targets, strict=True):
        total = math.log(sum(math.exp(logit) for logit in row))
        log_probs = [logit - total for logit in row]
        nll -= log_probs[target]
        for word, log_prob in enumerate(log_probs):
            wanted = epsilon / len(row) + (1 - epsilon if word == target else 0.0)
            smoothed -= wanted * log_prob
    return smoothed, nll


def make_inputs(num_tokens: int, vocabulary: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(num_tokens)
    hidden = torch.randn(num_tokens, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocabulary, 5, dtype=torch.float64, requires_grad=True)
    return hidden, weight, torch.randint(vocabulary, (num_tokens,))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("num_tokens", [0, 1, 4, 6, 11])
@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
def test_loss_and_gradient_across_chunks(
    num_tokens: int, epsilon: float, biased: bool, monkeypatch
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", 4)
    hidden, weight, targets = make_inputs(num_tokens)
    bias = torch.randn(len(weight), dtype=torch.float64, requires_grad=True) if biased else None
    got = linear_cross_entropy(hidden, weight, targets, epsilon, bias)
    logits = hidden @ weight.T + (bias if biased else 0.0)
    expected = slow_loss(logits.tolist(), targets.tolist(), epsilon)
    assert [x.item() for x in got] == pytest.approx(expected, abs=1e-10)
    assert [x.requires_grad for x in got] == [True, False]  # the likelihood is for reports
    wanted = F.cross_entropy(logits, targets, label_smoothing=epsilon, reduction="sum")
    inputs = (hidden, weight, bias) if biased else (hidden, weight)
    ours, theirs = (torch.autograd.grad(3.0 * loss, inputs) for loss in (got[0], wanted))
    torch.testing.assert_close(ours, theirs)


def test_rows_without_a_target_have_no_gradient(monkeypatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK", 4)
    hidden, weight, targets = make_inputs(15)
    grads = [torch.full_like(hidden, torch.nan) for _ in range(8)]  # memory that is used again
    del grads
    linear_cross_entropy(hidden, weight, targets[:5], 0.1)[0].backward()
    assert hidden.grad is not None
    assert hidden.grad[5:].eq(0).all()
    assert hidden.grad[:5].ne(0).any(dim=1).all()


def test_gradients_have_gradients() -> None:
    hidden, weight, targets = make_inputs(5)
    targets = targets[:3]  # the last rows have none
    ours = linear_cross_entropy(hidden, weight, targets, 0.1)[0]
    logits = hidden[:3] @ weight.t()
    theirs = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1)
    found = []
    for loss in (ours, theirs):
        first = torch.autograd.grad(loss, (hidden, weight), create_graph=True)
        size = sum(grad.square().sum() for grad in first)
        found.append([*first, *torch.autograd.grad(size, (hidden, weight))])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_padding_costs_nothing(epsilon: float) -> None:
    torch.manual_seed(0)
    config = ModelConfig(
        size="tiny", dim=8, num_heads=2, ff_dim=16, encoder_layers=1, decoder_layers=1
    )
    model = build(config, SCHEMES["rpe"], 9, 9).double().eval()
    source = torch.tensor([[4, 5, 3], [6, 3, 0]])
    target_input = torch.tensor([[2, 7, 8], [2, 0, 0]])
    target_output = torch.tensor([[7, 8, 3], [3, 0, 0]])
    got = label_smoothed_loss(model, source, target_input, target_output, epsilon)
    logits = model.project(model(source, target_input)).tolist()
    rows = [*logits[0], logits[1][0]]
    smoothed, nll = slow_loss(rows, [7, 8, 3, 3], epsilon)
    assert got.num_tokens == 4
    assert got.smoothed.item() == pytest.approx(smoothed, abs=1e-10)
    assert float(got.nll) == pytest.approx(nll, abs=1e-10)


def test_bfloat16_autocast_stays_close_and_keeps_float32_sums() -> None:
    torch.manual_seed(0)
    hidden, weight = (torch.randn(n, 16, requires_grad=True) for n in (600, 50))
    targets = torch.randint(50, (600,))
    exact, _ = linear_cross_entropy(hidden, weight, targets, 0.1)
    wanted = torch.autograd.grad(exact, (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        rough, _ = linear_cross_entropy(hidden, weight, targets, 0.1)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=2e-3, atol=0)
    for got, grad in zip(torch.autograd.grad(rough, (hidden, weight)), wanted, strict=True):
        assert got.dtype == torch.float32
        assert float((got - grad).norm() / grad.norm()) < 0.02
