"""Attack the public interface with random calls.

    python -m tests.fuzz --minutes 5            # from a random seed on
    python -m tests.fuzz --seed 7 --cases 1     # the case of a seed
    python -m tests.fuzz --case '{"area": …}'   # exactly this case

Ends with status 1 at the first case that is wrong, after it was made as small as possible.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import secrets
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from .backends import counting
from .search import AREAS, Case, attempt, search

EVERY_S = 10.0
"""Between two lines of progress."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line says; return the exit status."""
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, help="of the first case; the next one has the next")
    parser.add_argument("--cases", type=int, help="how many, in place of --minutes")
    parser.add_argument("--area", choices=[*AREAS], action="append", help="one of them, or more")
    parser.add_argument("--case", type=json.loads, help="a single case, as a finding prints it")
    options = parser.parse_args(arguments)
    if options.case is not None:
        how, found = attempt(options.case)
        print(how if found is None else found)
        return int(found is not None)
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    begin = last = time.monotonic()
    endings: Counter[str] = Counter()

    def seeds() -> Iterator[int]:
        end, number = begin + 60 * options.minutes, 0
        while time.monotonic() < end if options.cases is None else number < options.cases:
            yield seed + number
            number += 1

    with counting() as calls:

        def line() -> str:
            areas = {name: endings[name] for name in AREAS if name in endings}
            others = {name: n for name, n in endings.items() if name not in AREAS}
            counts = ", ".join(
                " ".join(f"{name} {n}" for name, n in counter.items())
                for counter in (areas, others, dict(sorted(calls.items())))
            )
            elapsed = time.monotonic() - begin
            return f"{elapsed:5.0f} s  {sum(areas.values())} cases: {counts}"

        def ended(case: Case, how: str) -> None:
            nonlocal last
            endings.update((case["area"], how))
            if time.monotonic() - last >= EVERY_S:
                last = time.monotonic()
                print(line(), flush=True)

        found = search(seeds(), options.area or AREAS, ended)
        print(line(), flush=True)
    if found is not None:
        print(found)
    return int(found is not None)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.exit(main())
