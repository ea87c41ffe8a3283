"""Draw cases, run them, and make a failing one as small as possible."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from . import attend, decoding, layers, memory, models, outside
from .compare import Case, WrongResultError
from .kinds import InvalidCaseError

AREAS: dict[str, Any] = {
    "attend": attend,
    "layers": layers,
    "decoding": decoding,
    "models": models,
    "outside": outside,
    "memory": memory,
}
"""Modules with SIMPLEST, each option of a case and what it is when nothing happens; `draw(rng)`,
which returns a case; and `run(case)`, which returns its outcome."""

SHARES = {"attend": 80, "layers": 12, "decoding": 4, "models": 4, "outside": 1, "memory": 0.2}
"""How often an area is drawn."""

CHANCE, IN_BF16 = 3.0, 8.0
"""Times its limit up to which a number may be beyond it by chance."""


@dataclass
class Finding:
    """A case that fails, and why; `what` is the same for all cases with the same bug."""

    case: Case
    what: str
    error: str
    ratio: float = math.inf
    """How many times further from the exact result than its limit."""

    def __str__(self) -> str:
        case = json.dumps(self.case)
        return (
            f"{self.case['area']}, seed {self.case['seed']}: {self.error}\n"
            f"  smallest case: {case}\n"
            f"  run it: python -m tests.fuzz --case '{case}'"
        )


def draw(seed: int, areas: Iterable[str] = tuple(AREAS)) -> Case:
    """Return the case of a seed, of one of these areas."""
    rng, names = random.Random(seed), [*areas]
    area = rng.choices(names, [SHARES[name] for name in names])[0]
    return {"area": area, "seed": seed} | AREAS[area].draw(rng)


def attempt(case: Case) -> tuple[str, Finding | None]:
    """Run a case; return how it ended (`right`, `coarse`, `invalid`, `wrong`), and what is wrong.
    `coarse` has results that cannot be compared in its dtype."""
    try:
        outcome = AREAS[case["area"]].run(case)
        outcome.check()
    except InvalidCaseError:
        return "invalid", None
    except WrongResultError as error:
        return "wrong", Finding(case, error.what, str(error), error.ratio)
    except Exception as error:  # no case is refused, but for those that are `InvalidCaseError`
        what = type(error).__name__
        return "wrong", Finding(case, what, f"{what}: {error}")
    return "coarse" if outcome.skipped else "right", None


def shrink(finding: Finding, seconds: float = 60.0) -> Finding:
    """Return the smallest case that fails in the same way: greedily, option by option, as long as
    one of them can be simpler."""
    end = time.monotonic() + seconds
    simplest = AREAS[finding.case["area"]].SIMPLEST
    case = {x: y for x, y in finding.case.items() if x not in simplest or y != simplest[x]}
    best = Finding(case, finding.what, finding.error)
    progress = True
    while progress:
        progress = False
        for name in [x for x in best.case if x in simplest]:
            for value in simpler(best.case.get(name), simplest[name]):
                if time.monotonic() > end:
                    return best
                smaller = {x: y for x, y in best.case.items() if x != name}
                if value != simplest[name]:
                    smaller[name] = value
                _, found = attempt(smaller)
                if found is not None and found.what == best.what:
                    best, progress = found, True
                    break
    return best


def simpler(value: Any, simplest: Any) -> Iterator[Any]:
    """Yield simpler values of an option, the simplest first."""
    if value == simplest:
        return
    yield simplest
    if isinstance(value, bool) or isinstance(simplest, bool):
        return
    if isinstance(value, int) and isinstance(simplest, int):
        for n in (simplest + (value - simplest) // 2, value - 2, value - 1):
            if simplest < n < value:
                yield n
    elif isinstance(value, list):
        if isinstance(simplest, list) and len(value) == len(simplest):
            for n, (own, other) in enumerate(zip(value, simplest, strict=True)):
                if own != other and not isinstance(own, list):
                    yield [*value[:n], other, *value[n + 1 :]]
        else:
            for n in range(len(value)):
                yield [*value[:n], *value[n + 1 :]]
        for n, own in enumerate(value):
            if isinstance(own, list) and len(own) == 2 and isinstance(own[1], dict):
                for option in own[1]:
                    fewer = {x: y for x, y in own[1].items() if x != option}
                    yield [*value[:n], [own[0], fewer], *value[n + 1 :]]
    elif isinstance(value, str) and isinstance(simplest, str) and not simplest:
        for n in range(len(value)):
            yield value[:n] + value[n + 1 :]


def search(
    seeds: Iterable[int],
    areas: Iterable[str],
    ended: Callable[[Case, str], object] = lambda case, how: None,
) -> Finding | None:
    """Run the cases of `seeds` until one fails; return it as small as possible. `ended` is called
    with each case and how it ended."""
    names = [*areas]
    for seed in seeds:
        case = draw(seed, names)
        how, finding = attempt(case)
        if finding is not None and is_chance(finding):
            how, finding = "chance", None
        ended(case, how)
        if finding is not None:
            return shrink(finding)
    return None


def is_chance(finding: Finding) -> bool:
    """Return whether a number is little beyond its limit, in bf16, or in no other draw of the same
    case: what is simulated are independent errors, and in bf16 those of sums of equal numbers add
    up (gradients of keys for one of the sum of all outputs: 4 times the limit)."""
    if finding.case.get("dtype") in ("bfloat16", "autocast"):
        return finding.ratio <= IN_BF16
    if finding.ratio > CHANCE:
        return False
    others = ({**finding.case, "seed": finding.case["seed"] + n} for n in range(1, 11))
    return all(found is None for _, found in map(attempt, others))
