"""The training step that is measured."""

import copy

import pytest
import torch

from shapeshift.data.batching import collate, plan_epoch
from shapeshift.data.subwords import SPECIAL_PIECES
from shapeshift.training.step import TrainingStep, random_batch


@pytest.mark.parametrize("clip_norm", [None, 0.01])
def test_it_has_the_gradient_of_the_first_update_of_training(lab, clip_norm):
    trainer = lab.make(
        position="ape", dropout=0.0, max_updates=1, accumulation=1, clip_norm=clip_norm
    )
    config, train = trainer.config, trainer.train
    lengths = train.source_lengths, train.target_lengths
    plan = plan_epoch(*lengths, config.batch, seed=config.seed, epoch=0)
    step = TrainingStep(copy.deepcopy(trainer.model), config)
    step(collate(train, plan[0]))
    lab.fit(trainer)
    for ours, theirs in zip(step.model.parameters(), trainer.model.parameters(), strict=True):
        means = (
            optimizer.state[p]["exp_avg"]
            for optimizer, p in ((step.optimizer, ours), (trainer.optimizer, theirs))
        )
        torch.testing.assert_close(*means, rtol=1e-3, atol=1e-7)


def test_random_sentences_have_the_length_that_is_asked_for():
    batch = random_batch(7, 12, (30, 60), torch.device("cpu"))
    assert batch.source.shape == batch.target_input.shape == batch.target_output.shape == (7, 12)
    first = len(SPECIAL_PIECES)
    assert first <= batch.source[:, :-1].min()
    assert batch.source.max() < 30
    assert batch.target_output.max() >= 30
    again = random_batch(7, 12, (30, 60), torch.device("cpu"))
    assert torch.equal(batch.source, again.source)
