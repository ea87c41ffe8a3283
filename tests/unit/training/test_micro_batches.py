"""A batch that is too large for the memory: named, or done in halves."""

import pytest
import torch

from shapeshift.errors import ShapeshiftError


def limit_memory(trainer, most, backward=False):
    """Let PyTorch run out of memory on batches of more than `most` sentences; return the sizes of
    all batches as they come."""
    sizes = []

    def check(count):
        if count > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def hook(module, args, out):
        if module.training:
            source = args[0]
            sizes.append(len(source))
            if not backward:
                check(len(source))
        return out

    def backward_hook(*_):  # the gradients of the decoder are there, those of the encoder are not
        if backward:
            check(sizes[-1])

    trainer.model.register_forward_hook(hook)
    trainer.model.encoder[0].feed_forward.register_full_backward_hook(backward_hook)
    return sizes


def gradients_of_one_update(lab, name, most=None, backward=False, **settings):
    trainer = lab.make(name, max_updates=1, dropout=0.0, position="rpe", **settings)
    trainer.model.double()
    sizes = limit_memory(trainer, most, backward) if most else []
    gradients = {}
    trainer.optimizer.register_step_pre_hook(
        lambda *_: gradients.update(
            (n, p.grad.clone()) for n, p in trainer.model.named_parameters()
        )
    )
    # The checkpoint of a model in float64 is none that can be continued from, but is not needed.
    lab.fit(trainer)
    return gradients, sizes


@pytest.mark.parametrize(
    ("most", "backward"),
    [(4, False), (4, True), (1, True)],  # 1: halves of halves
)
def test_halves_have_the_gradient_of_the_whole(lab, most, backward):
    whole, _ = gradients_of_one_update(lab, "whole")
    halves, sizes = gradients_of_one_update(lab, "halves", most, backward, split_on_oom=True)
    assert most == 1 or sizes == [8, 4, 4, 8, 4, 4, 4, 4]
    assert sizes[-1] == most
    assert whole.keys() == halves.keys()
    for name, expected in whole.items():
        assert expected.dtype == torch.float64
        torch.testing.assert_close(halves[name], expected, rtol=0, atol=1e-12)


def no_memory(*_):
    raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")


@pytest.mark.parametrize(
    ("split", "spoil", "said"),
    [
        (
            False,
            lambda trainer: limit_memory(trainer, 7),
            ["with a batch of 8 pairs of at most", "batch.max_tokens", "accumulation", "split_on"],
        ),
        (True, lambda trainer: limit_memory(trainer, 0), ["with a batch of 1 pairs"]),
        (
            False,
            lambda trainer: trainer.model.register_forward_pre_hook(
                lambda *_: torch.empty(1 << 60, dtype=torch.uint8)
            ),
            ["in update 1, with"],
        ),
        (
            True,
            lambda trainer: trainer.optimizer.register_step_pre_hook(no_memory),
            ["in the optimiser's step of update 1: ", "model.dim", "layers", "parallel=fsdp"],
        ),
    ],
    ids=["a batch", "a pair alone", "of a CPU", "for the moments"],
)
def test_memory_that_ends_is_one_line_with_the_remedies(lab, split, spoil, said):
    trainer = lab.make(split_on_oom=split)
    spoil(trainer)
    with pytest.raises(ShapeshiftError, match=r"^out of memory on cpu in ") as caught:
        lab.fit(trainer)
    assert all(words in str(caught.value) for words in said)
    assert "\n" not in str(caught.value)
    assert trainer.checkpoints.updates() == []


def test_other_errors_stay_as_they_are(lab):
    trainer = lab.make(split_on_oom=True)

    def hook(*_):
        raise RuntimeError("a bug")

    trainer.model.register_forward_pre_hook(hook)
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        lab.fit(trainer)
