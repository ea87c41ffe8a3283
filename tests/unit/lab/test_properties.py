"""Memory of a step, speed of decoding."""

import pytest
import torch

from shapeshift.lab import properties, speed
from shapeshift.lab.properties import (
    TensorBytes,
    measure_decoding_speed,
    measure_step_memory,
)


@pytest.fixture
def trained(make_run):
    return lambda position: make_run(f"position={position}")


def values(measurements):
    return {m.metric: m.value for m in measurements}


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


def test_bytes_that_only_the_backward_pass_needs_are_counted():
    x = torch.zeros(500, requires_grad=True)
    with TensorBytes() as counted:
        loss = x.sin().cos().sum()
        kept = counted.now
        loss.backward()
    assert kept >= 2004  # the sine, which nobody names, and the sum
    assert counted.now < kept + 2004


def test_a_step_of_relative_positions_takes_more_memory_than_one_of_absolute_ones(
    trained, monkeypatch
):
    monkeypatch.setattr(properties, "MEMORY_LENGTH", 64)
    relative, absolute = (values(measure_step_memory(*trained(p))) for p in ("tupe", "ape"))
    again = values(measure_step_memory(*trained("ape")))
    assert absolute["step_memory"] == 1
    assert again == absolute  # it does not depend on the moment
    assert relative["step_memory"] > 1
    ratio = relative["step_bytes"] / absolute["step_bytes"]
    assert ratio == pytest.approx(relative["step_memory"])


def test_memory_is_measured_at_lengths_that_the_model_has_positions_for(trained):
    parts = "[{kind: learned, num_positions: 20}]"
    run, data = trained(f"{{name: short, position_ids: {{name: absolute}}, parts: {parts}}}")
    assert {x.bucket for x in measure_step_memory(run, data)} == {"length 20"}


def test_decoding_speed_is_one_for_ape_and_a_ratio_for_others(trained, monkeypatch):
    monkeypatch.setattr(properties, "DECODED_LENGTH", 8)
    assert values(measure_decoding_speed(*trained("ape"))) == {"decoding_speed": 1}
    times = iter([2.0, 1.0] * 6)  # whoever goes first takes twice as long, by turns
    monkeypatch.setattr(speed, "_seconds", lambda work, device: next(times))
    assert values(measure_decoding_speed(*trained("rpe")))["decoding_speed"] in (0.5, 2)
