"""When a result in the users' dtype is wrong: further from the exact one than rounding explains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .definition import UNIT

FACTOR = 6.0
"""How many times further than the simulated rounding errors a result may lie from the exact one.
Those are as large as rounding allows: their standard deviation is u, that of rounding u / sqrt(3).
"""

FEW, MANY = 2, 16
"""How often rounding errors are simulated at first, and before a result is called wrong: the few of
a single number may be small by chance, though not `BLATANT` times too small."""

BLATANT = 1e4

SMALLEST = 1e-34
"""Below it, float32 and bf16 lose digits."""

Case = dict[str, Any]
"""The options of a case."""

Results = dict[str, Tensor]
"""Name → tensor."""


def gradients(
    out: Tensor, inputs: Results, cotangent: Tensor | None = None, **options: Any
) -> Results:
    """Return the gradient of each of `inputs`, zeros where `out` does not depend on it. The options
    are those of `torch.autograd.grad`."""
    tensors = [*inputs.values()]
    grads = torch.autograd.grad(out, tensors, cotangent, allow_unused=True, **options)
    return {
        f"gradient of {name}": torch.zeros_like(x) if grad is None else grad
        for (name, x), grad in zip(inputs.items(), grads, strict=True)
    }


class WrongResultError(AssertionError):
    """A result that is wrong: `what` names it, the same for all cases with this bug; `ratio` is how
    many times further from the exact one than its limit."""

    def __init__(self, what: str, detail: str, ratio: float = math.inf):
        super().__init__(f"{what}: {detail}")
        self.what, self.ratio = what, ratio


@dataclass
class Outcome:
    """What a case computed, and what it should have.

    Attributes:
        found: name → tensor, in the dtype under test.
        exact: the same by the definition, in float64.
        rounded: the same with simulated rounding errors, those of a seed.
        skipped: names that are not compared, since the dtype is too coarse for them.
        longest_sum: number of terms of the longest sum that is accumulated in the dtype itself. The
            partial sums are rounded, too, by errors that together grow with its square root; what
            is simulated are the errors of the terms alone. (bf16 accumulates in float32: 1.)
        slack: what the limit is multiplied by beyond that.
        floor: error of any gradient, for those that are zero or small because larger numbers
            cancel, whose errors stay; see `floor_of`.
    """

    found: Results
    exact: Results
    rounded: Callable[[int], Results]
    skipped: frozenset[str] = frozenset()
    longest_sum: int = 1
    slack: float = 1.0
    floor: float = 0.0

    def check(self) -> float:
        """Return how near to its limit the worst number is, from 0 to 1.

        Raises:
            WrongResultError: if one is beyond it, not finite, or of another shape.
        """
        if self.found.keys() != self.exact.keys():
            raise WrongResultError(
                "names", f"got {sorted(self.found)}, expected {sorted(self.exact)}"
            )
        samples = [self.rounded(n) for n in range(FEW)]
        try:
            return self._compare(samples)
        except WrongResultError as error:
            if error.ratio > BLATANT:
                raise
            return self._compare(samples + [self.rounded(n) for n in range(FEW, MANY)])

    def _compare(self, samples: Sequence[Results]) -> float:
        factor = FACTOR * self.slack * max(1.0, self.longest_sum**0.5 / 2)
        worst = 0.0
        for name, exact in self.exact.items():
            found = self.found[name].detach().double()
            if found.shape != exact.shape:
                raise WrongResultError(
                    name, f"shape {tuple(found.shape)}, expected {tuple(exact.shape)}"
                )
            if not exact.numel():
                continue
            if not found.isfinite().all():
                raise WrongResultError(
                    name, f"{int((~found.isfinite()).sum())} numbers are not finite"
                )
            if name in self.skipped:
                continue
            limit = factor * scale(exact, [each[name] for each in samples])
            limit = limit + factor * self.floor * name.startswith("gradient")
            # To store it, and each partial sum of terms of one sign, which are nearly as large as
            # the sum (equal terms are rounded the same way, hence twice what chance gives); sums of
            # float64 are rounded in both, term by term.
            unit = max(UNIT.get(self.found[name].dtype, 0.0), 2e-15)
            limit = limit + unit * max(1.0, 2 * (self.longest_sum / 3) ** 0.5) * exact.abs()
            error = (found - exact).abs()
            ratio = (error / limit).amax().item()
            worst = max(worst, ratio)
            if ratio > 1:
                at = int((error / limit).argmax())
                where = tuple(int(n) for n in torch.unravel_index(torch.tensor(at), error.shape))
                raise WrongResultError(
                    name,
                    f"{found.flatten()[at]:.9g} at {where}, expected {exact.flatten()[at]:.9g}"
                    f" ± {limit.expand_as(error).flatten()[at]:.2g}",
                    ratio,
                )
        return worst


def floor_of(exact: Results, unit: float) -> float:
    """Return half a unit roundoff of the largest gradient, by its root mean square."""
    sizes = [x.square().mean().sqrt().item() for n, x in exact.items() if n.startswith("gradient")]
    return 0.5 * unit * max(sizes, default=0.0)


def scale(exact: Tensor, rounded: Sequence[Tensor]) -> Tensor:
    """Return the size of rounding errors of each number: the root mean square of what was simulated
    for it, plus that in its row of the last dimension, more for a number that is larger than others
    of the row, plus half of that in the whole tensor: the few errors of one number may be small by
    chance."""
    if exact.ndim == 0:
        return scale(exact[None], [x[None] for x in rounded])[0]
    exact = exact.detach()
    squared = torch.stack([(x.detach() - exact).square() for x in rounded]).mean(0)
    rows = squared.mean(-1, keepdim=True).sqrt()
    size = exact.square().mean(-1, keepdim=True).sqrt() + SMALLEST
    larger = (exact.abs() / size).clamp(min=1)
    return squared.sqrt() + rows * larger + 0.5 * squared.mean().sqrt() + SMALLEST
