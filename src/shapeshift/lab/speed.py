"""Training speed compared with absolute positions, on a machine that also does other work.

Tokens a second from a log depend on what else ran at the time. Here both models take whole
training steps (forward, backward, update) by turns, on the same batches: whatever slows the machine
slows two neighbouring steps equally, and their ratio stays. On a CPU the time of this process is
measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import cycle
from statistics import median

import torch

from shapeshift.data.batching import Batch, collate, plan_epoch
from shapeshift.data.prepared import Prepared
from shapeshift.lab.measures import Measurement
from shapeshift.lab.run import Run
from shapeshift.model import Transformer, build
from shapeshift.positions import PRESETS, Scheme
from shapeshift.training.precision import choose_device, tuned
from shapeshift.training.step import TrainingStep

Step = Callable[[Batch], object]
Work = Callable[[], object]

BASELINE = PRESETS["ape"]
_NUM_BATCHES = 4
_MIN_ROUNDS = 9


def measure_speed(run: Run, data: Prepared, budget_s: float = 4.0) -> list[Measurement]:
    """Measure the speed of training over that of the same configuration with `position=ape` (Kiyono
    et al. 2021, Table 2): ape's time for a step over the model's own, the median over rounds of one
    step each. 1 for ape itself, by definition. The steps take the first batches of training and
    fresh weights; the trained ones stay as they are.

    Args:
        run, data: what to measure.
        budget_s: how long to measure; nine rounds are measured however long they take.
    """
    own, training = run.config.position.scheme, run.config.training
    ratio = 1.0
    if own != BASELINE:
        device = choose_device(training.device)
        plan = plan_epoch(
            data.train.source_lengths,
            data.train.target_lengths,
            training.batch,
            seed=training.seed,
            epoch=0,
        )
        batches = [collate(data.train, pairs).to(device) for pairs in plan[:_NUM_BATCHES]]
        with tuned(device):
            steps = [_stepper(run, data, scheme, device) for scheme in (BASELINE, own)]
            for batch in batches:  # the first step on a new shape is slow, for the first model most
                for step in steps:
                    step(batch)
            works = (tuple(partial(step, batch) for step in steps) for batch in cycle(batches))
            ratio = ratio_by_turns(works, device, rounds=_MIN_ROUNDS, budget_s=budget_s)
    return [Measurement(metric="speed", value=ratio, dataset="train")]


def ratio_by_turns(
    works: Iterable[Sequence[Work]], device: torch.device, *, rounds: int, budget_s: float = 0.0
) -> float:
    """Return the first work's time over the second's, the median over rounds. Each of the two is
    done before the other as often as after it.

    Args:
        works: the two of each round.
        device: that they work on.
        rounds: to do at least.
        budget_s: more rounds are done until this many seconds are over.
    """
    ratios: list[float] = []
    began = time.perf_counter()
    for pair in works:
        if len(ratios) >= rounds and time.perf_counter() - began >= budget_s:
            break
        order = (0, 1) if len(ratios) % 2 else (1, 0)
        times = {number: _seconds(pair[number], device) for number in order}
        ratios.append(times[0] / times[1])
    return median(ratios)


def fresh_model(
    run: Run, data: Prepared, scheme: Scheme, device: torch.device | str
) -> Transformer:
    """Return an untrained model of a run's settings, but with this position scheme."""
    subwords = data.subwords
    model = build(run.config.model, scheme, subwords.source_size, subwords.target_size)
    return model.to(device)


def _stepper(run: Run, data: Prepared, scheme: Scheme, device: torch.device) -> Step:
    return TrainingStep(fresh_model(run, data, scheme, device), run.config.training)


def _seconds(work: Work, device: torch.device) -> float:
    began = _now(device)
    work()
    return _now(device) - began


def _now(device: torch.device) -> float:
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()
