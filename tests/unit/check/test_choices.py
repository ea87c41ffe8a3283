"""Passes that repeat the choices of a first one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from shapeshift.check.choices import Choices

FIRST = torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]])
SECOND = -FIRST


@pytest.mark.parametrize(
    ("choose", "indices"),
    [
        (lambda x: torch.topk(x, 2), [[1, 2], [2, 0]]),
        (lambda x: x.topk(1, 0), [[1, 1, 1]]),
        (lambda x: torch.topk(input=x, k=1, dim=0), [[1, 1, 1]]),
    ],
)
def test_a_later_pass_takes_the_scores_of_the_first_choice(
    choose: Callable[[Tensor], tuple[Tensor, Tensor]], indices: list[list[int]]
) -> None:
    choices = Choices()
    for scores in (FIRST, SECOND, FIRST):
        values, chosen = choices.run(choose, scores)
        assert chosen.tolist() == indices
        assert sorted(values.abs().flatten().tolist()) == sorted(
            choose(FIRST)[0].flatten().tolist()
        )
        assert (values < 0).all() == (scores is SECOND)


def both(scores: Tensor) -> list[list[int]]:
    return [scores.argmax(-1).tolist(), torch.argmax(scores[:, :2], dim=-1).tolist()]


def test_a_later_pass_repeats_the_largest_ones_unless_they_have_other_shapes() -> None:
    choices, others = Choices(), Choices()
    assert both(SECOND) != both(FIRST)
    assert choices.run(both, FIRST) == choices.run(both, SECOND) == [[1, 2], [1, 0]]
    others.run(torch.argmax, FIRST)
    assert others.run(both, SECOND) == both(SECOND)
