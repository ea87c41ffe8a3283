"""One process alone, and what ends a group before it is one; the rest is in test_distributed.py."""

import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.config import TrainingConfig
from shapeshift.training.parallel import join


def test_a_process_that_is_alone_asks_nobody():
    with join(TrainingConfig(device="cpu")) as parallel:
        assert parallel.is_main
        assert parallel.share("abc") == [(0, "a"), (1, "b"), (2, "c")]
        assert parallel.all_reduce(torch.tensor([2.0, 3.0])).tolist() == [2.0, 3.0]
        assert parallel.broadcast(3) == 3
        with parallel.main_first():
            pass
    assert not torch.distributed.is_initialized()


def set_environment(monkeypatch, **changes):
    """Set what torchrun sets, with changes; None unsets."""
    whole = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1", "MASTER_PORT": "29400"}
    for key, value in (whole | {"MASTER_ADDR": "127.0.0.1"} | changes).items():
        monkeypatch.delenv(key, raising=False)
        if value is not None:
            monkeypatch.setenv(key, value)


def test_batches_that_cannot_be_shared_evenly_are_refused_with_what_to_set(monkeypatch):
    set_environment(monkeypatch, WORLD_SIZE="8")
    settings = {"device": "cpu", "batch": {"max_tokens": 4096}}
    remedy = (
        "set training.accumulation=8, and training.batch.max_tokens=512 for updates of the same"
    )
    with pytest.raises(ShapeshiftError, match=remedy), join(TrainingConfig(**settings)):
        pytest.fail("there is no group to join")


@pytest.mark.parametrize(
    ("name", "value"), [("WORLD_SIZE", "abc"), ("RANK", "2"), ("MASTER_ADDR", "")]
)
def test_an_environment_that_is_not_torchrun_s_ends_in_one_line(monkeypatch, name, value):
    set_environment(monkeypatch, **{name: value})
    with (
        pytest.raises(ShapeshiftError, match=r"WORLD_SIZE is set.*torchrun") as caught,
        join(TrainingConfig(accumulation=2, device="cpu")),
    ):
        pytest.fail("there is no group to join")
    assert "\n" not in str(caught.value)
    monkeypatch.delenv("WORLD_SIZE")  # as the message says
    with join(TrainingConfig(device="cpu")) as parallel:
        assert parallel.world_size == 1
