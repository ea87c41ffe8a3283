"""Compiled steps, and steps that do not end."""

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import Call
from shapeshift.attention.backends import packed
from shapeshift.model import loss
from shapeshift.training import step


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that counts its graphs and runs them as they are."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    yield counter
    torch._dynamo.reset()


def efficient(q, k, v, where, causal):
    """As the kernels for packed sentences."""
    bounds_q, bounds_k, *longest = where
    places_q, places_k = torch.arange(len(q)), torch.arange(len(k))
    sentence_q = torch.bucketize(places_q, bounds_q[1:], right=True)
    sentence_k = torch.bucketize(places_k, bounds_k[1:], right=True)
    seen = sentence_q[:, None] == sentence_k
    seen = seen & (places_k <= places_q[:, None]) if causal else seen
    scores = torch.einsum("qhe,khe->hqk", q, k) * q.shape[-1] ** -0.5 + 0 * sum(longest)
    return torch.einsum("hqk,khe->qhe", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


@pytest.mark.long
@pytest.mark.parametrize("position", ["rpe", "rope"])
def test_a_compiled_run_has_few_graphs_for_all_lengths_and_the_same_loss(
    position, lab, compiler, monkeypatch
):
    """Layers take packed sentences where there are kernels for them; elsewhere the number of tokens
    would be one more shape."""
    packs = position == "rope"
    settings = {"dropout": 0.0, "position": position, "max_updates": 3, "checkpoint_every": 3}
    plain = lab.make("plain", **settings)
    lab.fit(plain)
    if packs:
        monkeypatch.setattr(Call, "has_varlen", True)
        for module in (loss, step):
            monkeypatch.setattr(module, "has_varlen", lambda device: True)
        monkeypatch.setattr(packed, "_efficient", efficient)
    ours = lab.make("ours", compile=True, **settings)
    lab.fit(ours)
    assert ours.model.packs == packs
    # An encoder layer and a decoder layer, once more where two lengths of a batch happen to agree.
    assert 2 <= compiler.frame_count <= 4
    graphs = [x.print_readable(print_output=False) for x in compiler.graphs]
    assert (sum("bucketize" in graph for graph in graphs) >= 2) == packs
    assert ours.progress.best_loss == pytest.approx(plain.progress.best_loss, abs=1e-4)
    again = lab.make("ours", compile=True, **settings)
    assert again.resume().progress.update == 3


def test_what_the_compiler_lacks_is_one_sentence(lab, monkeypatch):
    def broken(graph, inputs):
        raise FileNotFoundError("no C++ compiler")

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    with pytest.raises(ShapeshiftError, match=r"torch.compile failed .*no C\+\+ .*compile=false"):
        lab.fit(lab.make(compile=True))


def no_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def no_memory_of_a_cpu(*_):
    torch.empty(1 << 60, dtype=torch.uint8)


def test_memory_that_ends_is_one_line_with_the_remedies(lab):
    in_a_batch, in_the_step = lab.make(), lab.make()
    in_a_batch.model.register_forward_pre_hook(no_memory_of_a_cpu)
    with pytest.raises(ShapeshiftError, match=r"^out of memory on cpu with ") as caught:
        lab.fit(in_a_batch)
    for words in ("a batch of 8 pairs of at most", "batch.max_tokens", "accumulation"):
        assert words in str(caught.value)
    in_the_step.optimizer.register_step_pre_hook(no_memory)
    with pytest.raises(ShapeshiftError, match=r"optimiser's step; .*model"):
        lab.fit(in_the_step)
    assert in_a_batch.checkpoints.updates() == []
