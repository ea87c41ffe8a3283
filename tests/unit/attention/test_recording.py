"""`recording` collects the probabilities of its own context."""

import threading
from contextvars import copy_context

import pytest
import torch
from torch import Tensor

from shapeshift.attention import attend, recording
from shapeshift.positions import get

Q, K, V = (torch.randn(3, 1, 2, 9, 8, generator=torch.Generator().manual_seed(0))).unbind()
POS = torch.arange(9).unsqueeze(0)
ALIBI = get("alibi", num_heads=2)


def output(q: Tensor = Q) -> Tensor:
    return attend(q, K, V, None, ALIBI, POS, POS, causal=True)


def test_another_thread_is_not_recorded():
    with recording() as ours:
        theirs = threading.Thread(target=output)
        theirs.start()
        theirs.join()
        assert ours == []
        output()
    assert len(ours) == 1
    torch.testing.assert_close(ours[0] @ V, output())


def test_recordings_overlap_without_mixing():
    """Each of two tasks has a context of its own, as in asyncio, and neither ends the other."""
    tasks = [copy_context(), copy_context()]
    managers = [recording(), recording()]
    probs = [task.run(manager.__enter__) for task, manager in zip(tasks, managers, strict=True)]
    tasks[0].run(output)
    tasks[0].run(managers[0].__exit__, None, None, None)
    for _ in range(2):
        tasks[1].run(output)
    tasks[1].run(managers[1].__exit__, None, None, None)
    output()
    assert [len(x) for x in probs] == [1, 2]


def test_an_inner_recording_takes_over():
    with recording() as outer:
        output()
        with recording() as inner:
            output()
        output()
    output()
    assert (len(outer), len(inner)) == (2, 1)


@pytest.mark.slow
def test_compiled_code_is_recorded():
    compiled, whole = torch.compile(output), torch.compile(output, fullgraph=True)
    torch.testing.assert_close(compiled(Q), output())
    torch.testing.assert_close(whole(Q), output())
    with recording() as probs:
        compiled(Q)
    assert len(probs) == 1
    torch.testing.assert_close(probs[0] @ V, output())
    torch.testing.assert_close(whole(Q), output())
