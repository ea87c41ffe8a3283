"""Speed, by a clock that the steps themselves move; speed of decoding, and memory of a step."""

from itertools import count

import pytest
import torch

from shapeshift.positions import SCHEMES
from shapeshift.run import costs
from shapeshift.run.costs import (
    TensorBytes,
    measure_decoding_speed,
    measure_speed,
    measure_step_memory,
)


@pytest.fixture
def shape(make_run):
    return make_run("position=shape")


def values(measurements):
    return {m.metric: m.value for m in measurements}


@pytest.fixture
def clock(monkeypatch):
    """Time passes in steps alone: `seconds(step number)` for APE, twice as much for others."""

    class Clock:
        now = 0.0
        stepped = 0
        seconds = staticmethod(lambda number: 1.0)

        def __init__(self, model, config):
            self.slowness, self.numbers = 1 if model == SCHEMES["ape"] else 2, count()

        def __call__(self, batch):
            Clock.stepped += 1
            Clock.now += self.slowness * Clock.seconds(next(self.numbers))

    monkeypatch.setattr(costs, "TrainingStep", Clock)
    monkeypatch.setattr(costs, "_fresh_model", lambda run, data, scheme, device: scheme)
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(costs.time, name, lambda: Clock.now)
    return Clock


@pytest.mark.parametrize(
    "seconds",
    [
        lambda number: 1.0 + number**2,  # something slows the machine more and more
        lambda number: 1000.0 if number == 6 else 1.0,  # one step stalls
    ],
)
def test_a_model_that_takes_twice_the_time_has_half_the_speed(shape, clock, seconds):
    clock.seconds = staticmethod(seconds)
    assert values(measure_speed(*shape, budget_s=50)) == {"speed": pytest.approx(0.5)}


def test_ape_needs_no_measurement_and_others_keep_the_budget(shape, make_run, clock):
    assert values(measure_speed(*make_run("position=ape"))) == {"speed": 1.0}
    assert clock.stepped == 0
    measure_speed(*shape, budget_s=90.0)
    # A step of both takes 3 s, and each of the four batches is warmed up with one of each.
    assert 90 <= clock.now <= 90 + 3 + 4 * 3


def test_real_steps_leave_the_run_as_it_was(shape):
    run, data = shape
    before = run.weights().read_bytes()
    assert values(measure_speed(run, data, budget_s=0.0))["speed"] > 0
    assert run.weights().read_bytes() == before


def test_bytes_of_tensors_are_counted_until_they_are_freed():
    x = torch.zeros(1000, requires_grad=True)
    with TensorBytes() as counted:
        y = x * 2
        assert counted.now == 4000
        y.view(10, 100).add_(1)  # neither a view nor a change in place is memory
        assert counted.now == 4000
        z = y.exp()  # whose result the backward pass needs
        del z, y
        assert counted.now <= 4000
        (x * 3).sum().backward()
        del x
    assert counted.peak == 8000  # the product and its exponential


def test_a_step_of_relative_positions_takes_more_memory_than_one_of_absolute_ones(
    make_run, monkeypatch
):
    monkeypatch.setattr(costs, "MEMORY_LENGTH", 64)
    relative, absolute = (
        values(measure_step_memory(*make_run(f"position={p}"))) for p in ("tupe", "ape")
    )
    again = values(measure_step_memory(*make_run("position=ape")))
    assert absolute["step_memory"] == 1
    assert again == absolute  # it does not depend on the moment
    assert relative["step_memory"] > 1
    ratio = relative["step_bytes"] / absolute["step_bytes"]
    assert ratio == pytest.approx(relative["step_memory"])


def test_a_measured_step_has_no_more_sentences_than_a_batch(make_run, monkeypatch):
    monkeypatch.setattr(costs, "MEMORY_LENGTH", 16)
    sizes, make_batch = [], costs.random_batch

    def batch(num_sentences, *others):
        sizes.append(num_sentences)
        return make_batch(num_sentences, *others)

    monkeypatch.setattr(costs, "random_batch", batch)
    limits = ("training.batch.max_tokens=64", "training.batch.max_sentences=3")
    measure_step_memory(*make_run("position=ape", *limits))
    assert set(sizes) == {3}


def test_decoding_speed_is_one_for_ape_and_a_ratio_for_others(make_run, monkeypatch):
    monkeypatch.setattr(costs, "DECODED_LENGTH", 8)
    assert values(measure_decoding_speed(*make_run("position=ape"))) == {"decoding_speed": 1}
    assert values(measure_decoding_speed(*make_run("position=rpe")))["decoding_speed"] > 0


def test_decoding_speed_is_measured_within_the_positions_of_a_model(make_run):
    position = "position={parts: [{kind: learned, num_positions: 20}]}"
    assert values(measure_decoding_speed(*make_run(position)))["decoding_speed"] > 0
