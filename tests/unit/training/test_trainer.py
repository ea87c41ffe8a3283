"""The training loop on a tiny model that reverses its source."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import make_batch, plan_epoch
from shapeshift.training.log import read_log
from shapeshift.training.optim import learning_rate
from shapeshift.training.precision import choose_precision

from .models import files, same


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def lines(trainer):
    """The log, without what a clock decides."""
    log = read_log(trainer.checkpoints.directory.parent / "log.jsonl")
    clock = ("tokens_per_s", "elapsed_s")
    return [{key: line[key] for key in line if key not in clock} for line in log]


def losses_of(model, store, pairs, **options):
    """Return the loss of each token of these pairs, computed one by one."""
    losses = []
    for pair in pairs:
        batch = make_batch(*([side.tolist()] for side in store[int(pair)]))
        logits = model.project(model(batch.source, batch.target_input))[0]
        target = batch.target_output[0]
        losses.append(
            torch.nn.functional.cross_entropy(logits, target, reduction="none", **options)
        )
    return torch.cat(losses)


@pytest.mark.parametrize(
    ("settings", "stop_at", "resumed_at"),
    [
        ({}, 3, 0),  # before the first checkpoint
        ({}, 6, 4),  # the 13 batches of an epoch end within update 7
        ({"checkpoint_every": 13}, 15, 13),  # exactly between two epochs
        ({"max_updates": 6}, None, 6),  # it was finished, and now has more updates
    ],
)
def test_stopped_and_resumed_is_the_same_run(lab, whole, settings, stop_at, resumed_at):
    lab.fit(lab.make(**settings), stop_at)
    again = lab.make(**(settings | {"max_updates": 20}))
    assert (again.resume() is not None) == (resumed_at > 0)
    assert again.progress.update == resumed_at
    assert lab.fit(again).seen == [*range(resumed_at, 21)]  # where it goes on, and each update

    assert whole.progress.epoch == again.progress.epoch == 3
    assert whole.progress.batch == again.progress.batch == 1
    assert files(again, 20) == files(whole, 20)
    assert same(weights(again.model), weights(whole.model))
    if not settings:  # which would move lines of the log
        assert again.checkpoints.updates() == whole.checkpoints.updates()
        assert all(files(again, x) == files(whole, x) for x in whole.checkpoints.updates())
        assert lines(again) == lines(whole)
    assert lab.fit(again).updates == []
    assert same(weights(again.model), weights(whole.model))


def test_the_gradient_is_that_of_the_mean_loss_of_a_token_over_all_batches(lab, stores):
    trainer = lab.make(dropout=0.0, position="ape", max_updates=1, accumulation=3)
    first = weights(trainer.model)
    seen = {}
    trainer.optimizer.register_step_pre_hook(
        lambda *_: seen.update({n: p.grad.clone() for n, p in trainer.model.named_parameters()})
    )
    lab.fit(trainer)
    assert (trainer.progress.epoch, trainer.progress.batch) == (0, 3)

    twin = lab.make("twin", dropout=0.0, position="ape")
    assert same(weights(twin.model), first)
    lengths = (stores.train.source_lengths, stores.train.target_lengths)
    pairs = np.concatenate(plan_epoch(*lengths, twin.config.batch, seed=1, epoch=0)[:3])
    losses = losses_of(twin.model, stores.train, pairs, label_smoothing=0.1)
    losses.mean().backward()
    for name, parameter in twin.model.named_parameters():
        torch.testing.assert_close(seen[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_the_optimiser_gets_the_rate_of_the_schedule(lab):
    rates = []
    for max_updates in (4, 9):
        trainer = lab.make(max_updates=max_updates, schedule={"name": "noam", "warmup_updates": 5})
        trainer.optimizer.register_step_pre_hook(
            lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"])
        )
        trainer.resume()
        lab.fit(trainer)
    schedule = trainer.config.schedule
    assert rates == [learning_rate(schedule, u, dim=32, max_updates=9) for u in range(1, 10)]
    logged = {line["update"]: line["learning_rate"] for line in lines(trainer) if "loss" in line}
    assert logged == {update: rates[update - 1] for update in (3, 4, 6, 8, 9)}


def test_validation_loss_is_the_mean_over_tokens(lab, stores):
    trainer, modes = lab.make(max_updates=4), set()
    trainer.model.register_forward_hook(
        lambda model, *_: modes.add((model.training, torch.is_grad_enabled()))
    )
    recorder = lab.fit(trainer)
    assert modes == {(True, True), (False, False)}
    trainer.model.eval()
    with torch.no_grad():
        losses = losses_of(trainer.model, stores.valid, range(len(stores.valid)))
    mean = pytest.approx(float(losses.mean()), rel=1e-5)
    assert recorder.validations == [(4, {"valid_loss": mean})]


def make_with_scores(lab, scores, **settings):
    """Make a trainer whose validation finds `scores`: update → COMET."""

    def validate():
        assert not trainer.model.training
        return {"valid_comet": scores[trainer.progress.update]}

    return (trainer := lab.make(validate=validate, best_metric="comet", **settings))


@pytest.mark.parametrize("best", [3, 6, 7])
def test_the_best_of_all_validations_has_a_checkpoint(lab, best):
    """Also where validations and checkpoints have intervals that do not fit."""
    scores = {update: 52.5 * (update >= best) - 10 for update in range(1, 8)}
    intervals = {"validate_every": 3, "checkpoint_every": 2, "max_updates": 7}
    trainer = make_with_scores(lab, scores, **intervals)
    validations = dict(lab.fit(trainer).validations)
    assert trainer.progress.best_update == best  # the first of equals
    assert trainer.progress.best_score == 42.5
    assert trainer.progress.best_loss == validations[best]["valid_loss"]
    assert trainer.checkpoints.updates() == sorted({4, 6, 7, best})
    logged = {x["update"]: x["valid_comet"] for x in lines(trainer) if "valid_comet" in x}
    assert logged == {update: scores[update] for update in (3, 6, 7)}


def test_training_ends_after_validations_without_a_better_one(lab):
    scores = {2: 1.0, 4: 3.0, 6: 2.0, 8: 3.0, 10: 5.0}
    settings = {"checkpoint_every": 2, "max_updates": 10}
    trainer = make_with_scores(lab, scores, patience=2, **settings)
    lab.fit(trainer)
    assert (trainer.progress.update, trainer.progress.best_update) == (8, 4)
    assert trainer.checkpoints.updates() == [4, 6, 8]

    for patience, last, best in ((2, 8, 4), (3, 10, 10)):
        again = make_with_scores(lab, scores, patience=patience, **settings)
        again.resume()
        lab.fit(again)
        assert (again.progress.update, again.progress.best_update) == (last, best)


def test_an_error_in_validation_loses_no_update_and_is_not_passed_over(lab):
    settings = {"validate_every": 3, "max_updates": 7, "best_metric": "comet"}

    def broken_validate():
        raise RuntimeError("the device is gone")

    broken = lab.make(validate=broken_validate, **settings)
    with pytest.raises(RuntimeError, match="the device is gone"):
        lab.fit(broken)
    assert broken.checkpoints.updates() == [3]
    assert [line for line in lines(broken) if "valid_loss" in line] == []
    again = lab.make(validate=lambda: {"valid_comet": 1.0}, **settings)
    assert again.resume().progress.update == 3
    assert [update for update, _ in lab.fit(again).validations] == [3, 6, 7]


def poison(trainer, at):
    """Make the loss of the second batch of update `at` infinite; return the update's pairs."""
    lengths = (trainer.train.source_lengths, trainer.train.target_lengths)
    plan = plan_epoch(*lengths, trainer.config.batch, seed=1, epoch=0)
    calls = []

    def hook(module, arguments, out):
        if module.training:
            calls.append(None)
            return out * math.inf if len(calls) == 2 * at else out
        return out

    trainer.model.register_forward_hook(hook)
    return sorted(map(int, np.concatenate(plan[2 * at - 2 : 2 * at])))


NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])])
def test_a_loss_that_is_not_finite_ends_training_before_the_step(lab, device):
    settings = {"log_every": 50, "max_updates": 8, "device": device}
    trainer = lab.make(**settings)
    bad = poison(trainer, at=6)
    steps = []
    trainer.optimizer.register_step_post_hook(lambda *_: steps.append(weights(trainer.model)))
    with pytest.raises(ShapeshiftError, match="the loss of update 6 is not finite") as caught:
        lab.fit(trainer)
    assert f"are {', '.join(map(str, bad[:20]))}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert same(weights(trainer.model), steps[4])  # on a GPU there are more steps, without effect
    assert trainer.checkpoints.updates() == [4]
    assert all(math.isfinite(line.get("loss", 0.0)) for line in lines(trainer))

    cured = lab.make(**settings)
    assert cured.resume()
    lab.fit(cured)
    assert cured.progress.update == 8


def test_a_validation_loss_that_is_not_finite_ends_training(lab):
    trainer = lab.make()
    trainer.model.register_forward_hook(
        lambda module, _, out: out if module.training else out * math.nan
    )
    with pytest.raises(ShapeshiftError, match="validation loss is nan after update 4"):
        lab.fit(trainer)
    assert trainer.checkpoints.updates() == [4]
    assert trainer.progress.best_loss is None
    assert [line for line in lines(trainer) if "valid_loss" in line] == []


@pytest.mark.parametrize("split", ["train", "valid"])
def test_data_that_cannot_be_trained_on_are_refused_at_once(lab, stores, split):
    nothing = lab.write_store(lab.folder / "nothing", [])
    data = SimpleNamespace(**(vars(stores) | {split: nothing}))
    with pytest.raises(ShapeshiftError, match="nothing: holds no pairs"):
        lab.make(data=data)


@pytest.mark.skipif(
    choose_precision("auto", torch.device("cpu")) == torch.float32, reason="this CPU has no bf16"
)
def test_bf16_learns_as_well(lab):
    losses = {}
    for precision in ("fp32", "bf16"):
        trainer = lab.make(precision, precision=precision, max_updates=9, checkpoint_every=9)
        losses[precision] = lab.fit(trainer).updates[-1][1]
        assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)
    assert losses["bf16"] != losses["fp32"]
