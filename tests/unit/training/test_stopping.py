"""The first signal is noted, the second does what it does elsewhere."""

import os
import signal
import time

import pytest

from shapeshift.training.stopping import SIGNALS, StoppedError, StopSignals

from .models import Recorder, files


def test_a_second_signal_interrupts_unless_it_comes_at_once():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with StopSignals(grace_s=0.1) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == signal.SIGTERM
        time.sleep(0.2)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_was_ignored_stays_ignored(request):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def stop_after(lab, update, **settings):
    """Train; a signal comes after an update. Return the trainer and what it raised."""
    trainer = lab.make(log_every=1, **settings)
    trainer.resume()
    recorder = Recorder(update, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(StoppedError) as caught, StopSignals() as stop:
        lab.fit(trainer, observer=recorder, stop=stop)
    return trainer, caught.value


def test_a_stop_changes_neither_weights_nor_which_checkpoints_are_averaged(lab, whole):
    trainer, stopped = stop_after(lab, 9)
    path = trainer.checkpoints.path(10)
    assert str(stopped).startswith(f"stopped by SIGTERM after update 10, saved in {path};")
    assert [StoppedError(x, 7, path).status for x in SIGNALS] == [143, 130]
    assert trainer.checkpoints.updates() == [4, 8, 10]
    assert trainer.progress.best_update in (4, 8)
    trainer, _ = stop_after(lab, 12)  # goes on, past a regular checkpoint
    assert trainer.checkpoints.updates() == [8, 12, 13]

    again = lab.make(log_every=1)
    assert again.resume().progress.update == 13
    lab.fit(again)
    assert again.checkpoints.updates() == whole.checkpoints.updates()
    assert all(files(again, x) == files(whole, x) for x in whole.checkpoints.updates())


def test_a_stop_does_not_wait_for_a_validation_which_is_made_on_resuming(lab):
    settings = {"checkpoint_every": 2, "max_updates": 4}
    stopped, _ = stop_after(lab, 3, **settings)  # within update 4, which ends in a validation
    assert stopped.progress.validated_update == 2
    again = lab.make(log_every=1, **settings)
    again.resume()
    recorder = lab.fit(again)
    assert [update for update, _ in recorder.validations] == [4]
    assert recorder.updates == []
    assert again.checkpoints.progress(4).validated_update == 4


@pytest.mark.parametrize("update", [1, 2])
def test_a_stop_at_the_end_is_a_stop(lab, update):
    trainer, stopped = stop_after(lab, update, max_updates=2)
    assert "after update 2," in str(stopped)
    assert trainer.checkpoints.updates() == [2]
