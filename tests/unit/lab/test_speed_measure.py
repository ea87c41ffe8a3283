"""The measure `speed`, by a clock that the steps themselves move."""

from itertools import count

import pytest

from shapeshift.lab import speed
from shapeshift.lab.speed import measure_speed
from shapeshift.positions import PRESETS


@pytest.fixture
def shape(make_run):
    return make_run("position=shape")


@pytest.fixture
def clock(monkeypatch):
    """Time passes in steps alone: `seconds(step number)` for APE, twice as much for others."""

    class Clock:
        now = 0.0
        stepped = 0
        seconds = staticmethod(lambda number: 1.0)

        def stepper(self, run, data, scheme, device):
            slowness = 1 if scheme == PRESETS["ape"] else 2
            numbers = count()

            def step(batch):
                self.stepped += 1
                self.now += slowness * self.seconds(next(numbers))

            return step

    clock = Clock()
    monkeypatch.setattr(speed, "_stepper", clock.stepper)
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(speed.time, name, lambda: clock.now)
    return clock


def value(found):
    [measurement] = found
    assert (measurement.metric, measurement.dataset) == ("speed", "train")
    return measurement.value


@pytest.mark.parametrize(
    "seconds",
    [
        lambda number: 1.0,
        lambda number: 1.0 + number**2,  # something slows the machine more and more
        lambda number: 1000.0 if number == 6 else 1.0,  # one step stalls
    ],
)
def test_a_model_that_takes_twice_the_time_has_half_the_speed(shape, clock, seconds):
    clock.seconds = seconds
    assert value(measure_speed(*shape, budget_s=50)) == pytest.approx(0.5)


def test_the_budget_is_kept_but_for_the_first_rounds_and_ape_needs_none(shape, make_run, clock):
    assert value(measure_speed(*make_run("position=ape"))) == 1.0
    assert clock.stepped == 0
    measure_speed(*shape, budget_s=0.0)
    least = clock.stepped
    began = clock.now
    measure_speed(*shape, budget_s=90.0)
    assert clock.stepped - least > least
    # A step of both takes 3 s, and each of the four batches is warmed up with one of each.
    assert clock.now - began <= 90 + 3 + 4 * 3


def test_real_steps_leave_the_run_as_it_was(shape):
    run, data = shape
    before = run.weights().read_bytes()
    assert value(measure_speed(run, data, budget_s=0.0)) > 0
    assert run.weights().read_bytes() == before
